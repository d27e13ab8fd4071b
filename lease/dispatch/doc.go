// Package dispatch consumes a partition of a log in parallel: records of one key in order, one at a time; different keys side by side; with
// retries, dead letters and offset commits. Delivery is at-least-once.
//
// A [lease.Ledger] decides about a record (who may work on it, how often it failed, whether it is done); this package does what
// takes time. docs/dispatch.md has the options and the invariants D1 to D12.
//
// A [Dispatcher] runs one partition: one [Source], one Ledger, one [Dispatcher.Run]. When a partition is assigned, call Run with a new Dispatcher;
// when it is revoked, cancel Run's context and wait until it returns. A [Consumer] does this for all partitions that an [Ownership],
// the membership of a consumer group, gives to this process, under bounds that they share.
//
// # A record's way
//
//	Source.Fetch -> waits -> Ledger.TryAcquire -> Handler -> Succeed ------------> done
//	                              ^                  |
//	                              |                  +-> Fail -> retry, later ----> Handler
//	                              +-- next of its ------+------> given up -> DeadLetter -> done
//	                                  domain
//
// A domain, that is a key, has at most one record between TryAcquire and done. Of the domains that could go on, the one whose record has the
// lowest offset goes first: a domain that has fallen behind becomes the oldest, so nothing starves, a hot key is served without a
// pause as soon as it is the bottleneck, and the commit floor follows closely. With owners, a slot goes to the owner who
// has the fewest slots and has used the least time of them, and to its domain with the lowest offset. A rate is asked before an attempt
// begins, and an attempt that it delays holds nothing.
//
// # The floor
//
// The floor is the low watermark: the lowest offset that may still be in work, of the records fetched and not done, of those seen and put
// off, or else the next that has never been read. It rises only past done records; a given-up one is done when its dead
// letter has been accepted. The floor is committed to the Source first and then compacted in the ledger, because
// Compact cannot be taken back: it forgets how an offset ended. A Source that knows that the partition has gone elsewhere
// rejects the commit, and then nothing is forgotten. A crash between the two leaves the ledger remembering more than it needs; a crash
// before both leaves records that are fetched again and that the ledger answers for.
//
// # Bounds
//
// At most MaxBuffered records are fetched and not done, at most MaxPerDomain of one domain. A record of a domain that has its
// share is put off: the dispatcher drops it and keeps one number for the domain, the offset from which it has to be read again. It reads
// again when the domain has room, and leaves out the records of all others. So a stuck key costs MaxPerDomain records and no more, and
// fetching stops only when MaxBuffered is reached. How long a record takes does not depend on the number of keys buffered.
//
// # Retries
//
// Retry n of an offset begins
//
//	d(n) = min(MaxBackoff, Backoff·2^(n-1)),   less up to Jitter of that,
//
// after its nth failure was seen, however long the handler took. Meanwhile the lease is given back. A new owner of the partition
// goes on in the schedule AcquiredAt + d(1) + … + d(n) instead of beginning anew, and waits no longer than d(n).
//
// # Crashes
//
// A lease that is held when a partition is taken belonged to a former owner. It is reclaimed, which fences that owner out, and
// no attempt is counted. If it was given back, its record was waiting, and goes on. If not, its record ran when its process died, and may have killed
// it (a poison record): it is a suspect. Suspects run one at a time, beside everything else, and each run is counted before it begins, so that a process that
// dies leaves one attempt more on the record that was on trial and on no other.
//
// A handler may run twice for one record: when it succeeded and the process died before the ledger knew. The fencing token of its [Job] makes
// its writes idempotent: see docs/dispatch.md.
package dispatch
