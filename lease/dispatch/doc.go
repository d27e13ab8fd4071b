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
//	Source.Fetch -> Ledger.Offer -> waits -> Ledger.AcquireNext -> Handler -> Succeed ------------> done
//	                                              ^                  |
//	                                              |                  +-> Fail -> retry, later ----> Handler
//	                                              +-- next of its ------+------> given up -> DeadLetter -> done
//	                                                  domain
//
// Of one domain at most one record is between AcquireNext and done. Of the domains that could go on, the one whose record has the
// lowest offset goes first: whatever has fallen behind becomes the oldest, so nothing starves, a hot key is served without a
// pause as soon as it is the bottleneck, and the commit floor follows closely.
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
// share, or that the ledger has no room for, is put off: the dispatcher drops it and keeps one number for the domain, the
// offset from which it has to be read again. It reads again when the domain has room, with the records of all others left out. So a
// stuck key costs MaxPerDomain places and no more, while the others go on; and only when all places are taken does fetching stop.
//
// # Trying again
//
// Retry n of an offset is due at
//
//	AcquiredAt + d(1) + … + d(n),   d(i) = min(MaxBackoff, Backoff·2^(i-1)),   less up to Jitter of d(n)
//
// but no sooner than d(1) after the failure, less the same share, for handlers that take longer than the schedule, and no later
// than d(n) after it, for clocks that disagree. Both terms come from the lease, so whoever takes a partition over goes on in the
// schedule where it was instead of beginning anew.
//
// # Crashes
//
// A lease that is held when a partition is taken belonged to somebody who is gone. It is reclaimed, which fences that somebody out, and
// failed once: if the record kills its process every time, it is given up after MaxRetries+1 lives instead of killing for ever. Every
// lease that was held then pays one attempt, also that of an innocent record in the same process, and one that only waited for its
// retry; MaxRetries should leave room for that.
//
// A handler may run twice for one record: when it succeeded and the process died before the ledger knew. Its writes can be
// made to count once by the token of its [Job]: see docs/dispatch.md.
package dispatch
