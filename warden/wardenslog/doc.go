// Package wardenslog writes down what a limiter, or a set of compartments, does, in log/slog, and stays quiet enough to be left on: it logs when
// something changes, and a sample of the rejections, never a line for each request.
//
// # What is logged
//
// An episode of rejecting has one line at its beginning and one at its end. A limiter, or a compartment, begins one with its first rejection
// and ends it when it has rejected nothing for Config.Quiet:
//
//   - "stopbank: rejecting started": the first rejection with its explanation. The level is that of the priority that was rejected:
//     Info for background work, Warn for normal and high, Error for critical;
//   - "stopbank: rejecting reached a higher priority": the same episode rejects work for which the level is higher, at that level;
//   - "stopbank: rejecting ended", Info: how long it lasted, and how many were rejected by reason.
//
// What a dry run would have rejected has episodes and samples of its own, whose messages begin with "stopbank: dry run: ". They are Info.
//
// Between them Config.PerSecond samples at most in a second, at the level Config.Samples, each with left_out, how many were not logged
// since the sample before:
//
//   - "stopbank: rejected": one rejection with its explanation;
//   - of a set also "stopbank: timeout_running", "stopbank: panicked", "stopbank: abandoned" and "stopbank: fallback_failed": calls
//     that ended so.
//
// Other changes:
//
//   - "stopbank: not enforcing", Warn, with the mode: somebody has put a limiter or a compartment into a dry run or the bypass;
//     "stopbank: enforcing", Info, when it is back;
//   - "stopbank: control decisions are stale", Warn: control has not decided for longer than its last decision was to hold;
//   - "stopbank: control decisions are fresh again", Info;
//   - of a set "stopbank: compartments resized", Info, and "stopbank: abandoned function panicked", Error, with its stack.
//
// Messages are constant and values are attributes, so that lines can be grouped by message, and by limiter or compartment, reason and
// priority. The first task that runs after the end of an episode has its line written, because nothing else happens then.
//
// A line about one request has its id as request_id, if it has one (limiter.Task.ID, warden.WithRequestID): its client was told the same id, and
// the console finds it. The logger names the process: Config{Logger: logger.With("instance", name)}.
//
// # What it costs
//
// The request that an event is about is never held up by a log: Observe puts a copy of the event aside, and a
// goroutine that lives only while there is something to write calls the handler. At most Config.PerSecond samples, and as
// many changes, are put aside in a second, and at most a few dozen wait for a slow handler; the others are counted and let
// go. A handler that blocks, panics or ends its goroutine costs its own line and nothing else. An event that is not logged
// costs a few atomic operations and no allocation.
package wardenslog
