// Package bulkhead keeps the parts of one service from sinking each other: each part has a compartment, and one that is
// flooded does not take what the others are guaranteed.
//
// A [Set] shares a total of places among named compartments. How, follows from a few sentences:
//
//   - A place is held from the grant until the function has really returned, whatever its caller was told meanwhile.
//   - Of its Guaranteed places, a compartment keeps all but Lendable free for itself, always.
//   - Its Lendable places, while it does not use them, and those that nobody is guaranteed, are one common stock. Whoever has
//     used up its own part takes from the stock, up to its Max.
//   - While the stock is empty, those who want from it wait in their own compartment's queue. The next place that comes
//     back goes to a compartment below its guarantee, the most critical first, and to a borrower only if there is none.
//   - Nothing that runs is interrupted to get a place back.
//
// A compartment waits and refuses as a [limiter.Limiter] does, with the same queue and the same explanations; what this package
// adds is who owns which place, and what surrounds a call: the bound on its wait, its timeout, a circuit breaker, a fallback.
//
// # The common stock
//
// Let r be Guaranteed - Lendable of a compartment and n the number of places it holds. The stock is
//
//	Total - sum of max(n, r)
//
// and never negative but after a shrink. A compartment with n < r may always take a place: that changes no max(n, r). So
// the total holds and isolation holds, by one subtraction.
//
// The invariants B1 to B11 are explained in docs/bulkhead.md.
package bulkhead
