// SPDX-License-Identifier: Apache-2.0

// Package retry is client-side overload protection: a retry budget and client-side throttling decide, for all calls to a
// dependency, which attempts may start. It depends on no protocol; wardenhttp.NewRetry and wardengrpc.NewRetry apply it to
// HTTP requests and gRPC calls. Neither side needs a warden.
//
// A [Caller] keeps two sums for each dependency, over sliding windows:
//
//   - First attempts and retries of the last ten seconds. A retry starts only while retries stay below a tenth of first
//     attempts ([Config.Ratio]), or below a small floor. When the dependency rejects everything, it gets 1.1 times the
//     demand instead of three times. The models are Finagle's RetryBudget and Envoy's retry_budget; a time window, rather
//     than a share of the requests in flight, works at five requests a second as well as at 50,000.
//   - Requests and accepted requests of each priority, over the last second, or as much of the last ten seconds as it takes
//     to see ten requests. When fewer than half are accepted, the Caller rejects some itself, with probability (requests - 2
//     accepted) / (requests + 1), at most 0.8: client-side throttling as in "Handling Overload", chapter 21 of Site
//     Reliability Engineering (Google, 2016), which uses two minutes and no bound. A two-minute window would react too
//     slowly to a retry storm of seconds and to its end, and without a bound a client would stop probing altogether. Envoy's
//     admission control filter has the bound.
//
// Both reject attempts before they start. Neither tracks running attempts, so neither can end one.
//
// A failure that may be that of one path, such as a 502, counts as a request that was not accepted only while most other paths
// of the dependency fail too: see [Failed].
//
// # Errors and blocking
//
// Nothing here waits or sends: [Caller.Begin] answers at once, with [ErrThrottled] if the call must not be sent, and [Call.Retry]
// returns how long to wait. Report each attempt's end with [Call.Ended], also that of one that hangs: give attempts a deadline.
// An attempt that is never reported counts in the budget, but in no throttle.
//
// docs/guarantees/retries.md has the invariants, from R1.
package retry
