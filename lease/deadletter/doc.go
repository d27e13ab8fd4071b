// Package deadletter is the desk for records that a dispatcher gave up: who is on call lists them, reads them, and replays, parks or
// discards them, one by one or all in order.
//
//	cfg.DeadLetter = deadletter.Keep(letters) // of the dispatch.Config
//	…
//	report, err := deadletter.ReplayAll(ctx, letters, deadletter.Filter{Partition: "orders/3"})
//
// letters is a Store: that of leasepg, leasenats or leasekafka, or a Memory. A letter is found by partition and offset of its record, which
// are its ID. To replay it is to append its record to its source once more, behind everything that is there: same partition, key, payload and headers, and
// the header HeaderReplayOf with the ID of the letter. Then the letter is gone. A Store remembers what is gone, so that a dispatcher which
// tells of it a second time, after a crash, does not bring it back.
//
// docs/dead-letters.md begins with the night on which this is needed. lease/leasetest/lettertest is the contract as a test suite.
package deadletter
