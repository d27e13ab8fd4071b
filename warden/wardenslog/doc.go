// Package wardenslog writes down what a limiter, or a set of compartments, does, in log/slog, and stays quiet enough to be left on: it logs when
// something changes, and a sample of the refusals, never a line for each request.
//
// # What is logged
//
// A change, at the level Config.Changes:
//
//   - "warden: refusing": the first refusal after calm, with its explanation;
//   - "warden: calm": nothing was refused for Config.Calm; how long it had been otherwise, and how many were refused, by
//     reason;
//   - "warden: not enforcing", with the mode, and "warden: enforcing" (at INFO): somebody has put the limiter into a dry run or the
//     bypass, and back;
//   - "warden: dry run: refusing" and "warden: dry run: calm": as the first two, of what would have been refused;
//   - "warden: decisions are stale" and "warden: decisions are fresh": control fell silent, and came back;
//   - of a set also "warden: compartments resized", and "warden: abandoned function panicked" with its stack.
//
// A sample of the refusals in between, at the level Config.Refusals, each with left_out, how many were not logged since
// the sample before:
//
//   - "warden: refused": one of them with its explanation; "warden: dry run: refused": one that would have been;
//   - of a set also "warden: timed_out", "warden: panicked", "warden: abandoned" and "warden: fallback_failed": calls that
//     ended so.
//
// Calm is noticed by the first task that runs after it has come, because nothing else happens then.
//
// # What it costs
//
// The request that something is told about is never held up by a log: Observe puts a copy of the event aside, and a
// goroutine that lives only while there is something to write calls the handler. At most Config.PerSecond refusals, and as
// many changes, are put aside in a second, and at most a few dozen wait for a slow handler; the others are counted and let
// go. A handler that blocks, panics or ends its goroutine costs its own line and nothing else. An event that is not logged
// costs a few atomic operations and no allocation.
package wardenslog
