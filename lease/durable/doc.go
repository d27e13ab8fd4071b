// Package durable is the ledger of package lease over any store that can swap a record whose version is known: the same state
// machine, kept where a restart does not reach it, shared by as many processes as like.
//
// # One record for a domain
//
// A [Store] keeps bytes under a name. Of each domain it keeps one record, and every call that changes something is one
// compare-and-swap of it: the state is read (or known from the last call), stepped by lease.State.Step, and put in the place of the
// version that it came from. If somebody else was faster the store says so, and the call is made again on what that one left. So the
// domain's history is one line, however many write it, and that is what a ledger's promises need. No lease of time,
// no leader and no lock is involved.
//
// # What a round trip is for
//
// The state that a [Ledger] left in a domain stays in its memory, so the next change costs one Swap: if another writer came in between, the Swap
// fails, which costs no correctness. An answer that changes nothing (ALREADY_..., BUSY, an error) has no Swap to be wrong
// by, so it is confirmed by a Load before it is given.
//
// # When a reply is lost
//
// A Swap that was sent and not answered was carried out, or not, or will be. The record holds a mark of the last write of each of the sixteen
// writers that wrote last. The Ledger sends the same Swap again: it is carried out now; or it conflicts, and then the record, read again, either shows the
// mark, or shows that no mark was dropped since, in which case the Swap was not and, its version being gone, never will be
// carried out. In the one case left the call ends in *[AmbiguousError]. It never guesses.
//
// # Tokens
//
// Each Ledger draws a number from the ledger's own record when it first writes, and counts by a Lamport clock that passes every token it
// meets. The token is the clock with the number below it: unique because no two Ledgers have one number, rising in a domain
// because the record keeps the domain's greatest token and the clock passes it. That costs one write in the life of a Ledger.
//
// # The floor
//
// The floor of Compact lies in the ledger's own record, and is written there before any state is trimmed at it. A state says which floor it was trimmed at,
// so whoever reads it knows that floor too; and a domain that is not in the store is judged only after the floor was read.
package durable
