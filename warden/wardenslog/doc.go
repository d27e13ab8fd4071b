// SPDX-License-Identifier: Apache-2.0

// Package wardenslog logs load shedding with log/slog: changes of the state of a limiter, or of a set of compartments, and a
// sample of the rejections, never a line per request: at most 20 lines a second, besides changes of the mode. [Logger.Limiter]
// is the observer of a limiter, [Logger.Bulkhead] that of a set; all of them share the lines per second.
//
// # Messages
//
// A rejection episode of a limiter, or of a compartment, begins with its first rejection and ends when there was none for 10 s.
// It has a line at each end:
//
//   - "stopbank: rejecting started": the first rejection with its explanation. The level is that of the priority that was
//     rejected: Info for background work, Warn for normal and high, Error for critical;
//   - "stopbank: rejecting reached a higher priority": the same episode rejects work for which the level is higher, at that
//     level;
//   - "stopbank: rejecting ended", Info: how long it lasted, and how many were rejected by reason.
//
// Clients that leave a limiter without an answer, while their task waits or while it runs ([limiter.Permit.Abandon]), make an
// episode of their priority class when in ten seconds five of them left, and more than 5 % of the tasks that ended, of critical ones
// 1 %: some always leave. It ends with ten seconds in which no more than that left. It has a line at each end:
//
//   - "stopbank: clients leave", at the level of the priority, with how many left, of how many, and the explanation of the last;
//   - "stopbank: clients stay again", Info: how long it lasted, and how many left in all.
//
// Tasks that Enforce would have rejected in a dry run have their own episodes and samples, at level Info, whose messages begin
// with "stopbank: dry run: ".
//
// In between there are at most 10 samples a second, at level Info, each with left_out, the number of events without a line since
// the last line that has it:
//
//   - "stopbank: rejected": one rejection with its explanation;
//   - for a set also "stopbank: timeout_running", "stopbank: panicked", "stopbank: abandoned" and "stopbank: fallback_failed":
//     calls with that outcome.
//
// Other changes:
//
//   - "stopbank: not enforcing", Warn, with the mode: a limiter or a compartment was put into DryRun or Bypass;
//     "stopbank: enforcing", Info, when it is back;
//   - "stopbank: control decisions are stale", Warn: control has not decided for longer than its last decision was valid;
//   - "stopbank: control decisions are fresh again", Info;
//   - for a set "stopbank: compartments resized" and "stopbank: plan proposed", Info, and "stopbank: abandoned function
//     panicked", Error, with its stack.
//
// Messages are constant and values are attributes, so that lines can be grouped by message, and by limiter or compartment,
// reason and priority. The end of an episode is logged when the next task runs, because no timer runs for it.
//
// # Attributes
//
// A line about a rejection by a limiter has limiter, reason, priority and why: the explanation, as a group. One about a rejection
// by a set has compartment, tenant if there is one, reason, priority, waited, took and err: the explanation, as a group too.
// The lines about other calls of a set have the same attributes, in a dry run with would_reject for reason; err is then the text
// of the call's error, if there is one.
//
// A line about one request has its ID as request_id, if it has one (limiter.Task.ID, warden.WithRequestID). The client got the
// same ID, and the console finds it. Add the process's name to the logger: New(logger.With("instance", name)).
//
// # Cost
//
// No request waits for a handler: an observer queues a copy of the event, and a goroutine that exists only while there are
// lines to write calls the handler. At most 10 samples, and as many changes beside those of the mode, are queued per second,
// and at most 64 lines wait for a slow handler; further ones are counted as left_out. A handler that fails, panics or ends its
// goroutine loses its own line and nothing else; while one blocks, lines wait. An event that is not logged costs a mutex and no
// allocation.
package wardenslog
