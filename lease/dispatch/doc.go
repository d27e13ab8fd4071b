// Package dispatch works a partition off: it reads records from a [Source], keeps those of one domain in order and those
// of different domains apart, calls a handler for each, tries again what failed, and commits what is done. What is
// decided about a record is decided by a [lease.Ledger]; what takes time is done here.
//
// # One partition
//
// A [Dispatcher] is one partition: one Source, one Ledger, one [Dispatcher.Run]. To be given a partition is to call Run with a new
// Dispatcher; to lose it is to cancel that Run's context, whose return says that the partition may go elsewhere.
//
// # Many partitions
//
// A [Consumer] is a Dispatcher for each partition that an [Ownership] gives to this process, under bounds that they share. The
// Ownership is membership of a group whose members divide the partitions among themselves.
//
// # A record's way
//
//	Source.Fetch -> waits -> Ledger.TryAcquire -> Handler -> Succeed ------------> done
//	                              ^                  |
//	                              |                  +-> Fail -> retry, later ----> Handler
//	                              +-- next of its ------+------> given up -> DeadLetter -> done
//	                                  domain
//
// Of one domain at most one record is between TryAcquire and done. Of the domains that could go on, the one whose record has the
// lowest offset goes first: whatever has fallen behind becomes the oldest, so nothing starves, a hot key is served without a
// pause as soon as it is the bottleneck, and the commit floor follows closely. Where domains have owners, a place goes to the owner who
// has the fewest places and has used the least of their time, and to his domain with the lowest offset. A rate is asked before an attempt begins,
// and what it keeps waiting keeps nothing.
//
// # The floor
//
// The floor is the lowest offset that may still be in work: of the records fetched and not done, of those seen and put
// off, or else the next that has never been read. It rises only past what is done, and what is given up counts as done when its dead
// letter has been accepted. The floor is committed to the Source first and then compacted in the ledger. In this order because
// Compact cannot be taken back: it forgets how an offset ended. A Source that knows that the partition has gone elsewhere refuses the
// commit, and then nothing is forgotten. A crash between the two leaves the ledger remembering more than it needs; a crash
// before both leaves records that are fetched again and that the ledger answers for.
//
// # Bounds, and what is put off
//
// Records fetched and not done are at most MaxBuffered, and of one domain at most MaxPerDomain. A record of a domain that has its
// share is put off: the dispatcher drops it and keeps one number for the domain, the
// offset from which it has to be read again. It reads again when the domain has room, with the records of all others left out. So a
// stuck key costs MaxPerDomain places and no more, while the others go on; and only when all places are taken does fetching stop.
//
// # Trying again
//
// Retry n of an offset begins
//
//	d(n) = min(MaxBackoff, Backoff·2^(n-1)),   less up to Jitter of that,
//
// after its nth failure was seen, however long the handler took. Meanwhile the lease is given back. Who takes the partition over
// goes on in the schedule AcquiredAt + d(1) + … + d(n) instead of beginning anew, and waits no longer than d(n).
//
// # Crashes
//
// A lease that is held when a partition is taken belonged to somebody who is gone. It is reclaimed, which fences that somebody out, and
// nothing is counted. Given back, its record was waiting, and goes on. If not, its record ran when its process died, and may have killed it: it is a
// suspect. Suspects run one at a time, beside everything else, and each run is counted before it begins, so that a process that
// dies leaves one attempt more on the record that was on trial and on no other: a record that kills its process every time is given up
// after MaxRetries+1 runs, alone.
//
// A handler may run twice for one record: when it succeeded and the process died before the ledger knew. Its writes can be
// made to count once by the token of its [Job]: see docs/dispatch.md.
package dispatch
