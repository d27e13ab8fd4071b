// SPDX-License-Identifier: Apache-2.0

// Package retry is client-side overload protection: a retry budget and client-side throttling decide, for all calls to a
// dependency, which attempts may start. It depends on no protocol; wardenhttp.NewRetry and wardengrpc.NewRetry apply it to
// HTTP requests and gRPC calls. Neither side needs a warden.
//
// A [Caller] keeps two sums for each dependency, over sliding windows:
//
//   - First attempts and retries of the last ten seconds. A retry starts only while retries stay below a tenth of first
//     attempts ([Config.Ratio]), or below a small floor. When the dependency rejects everything, it gets 1.1 times the
//     demand instead of [Config.Attempts] times. The models are Finagle's RetryBudget and Envoy's retry_budget; a time
//     window, rather than a share of the requests in flight, leaves five retries in ten seconds at five requests a second
//     too.
//   - Requests and accepted requests of each class of priority, over the last second, or as much of the last ten seconds as it
//     takes to see ten requests. When fewer than half are accepted, the Caller rejects some itself, with probability (requests - 2
//     accepted) / (requests + 1), at most 0.8: client-side throttling as in "Handling Overload", chapter 21 of Site
//     Reliability Engineering (Google, 2016), which uses two minutes and no bound. A two-minute window would react too
//     slowly to a retry storm of seconds and to its end, and without a bound a client would stop probing altogether. Envoy's
//     admission control filter has the bound.
//
// Both reject attempts before they start. Neither tracks running attempts, so neither can end one. A Caller keeps 1,000 windows of
// up to 2 kB, one for each dependency's budget and one for each of its classes; calls beyond count together. Of each class it
// knows 32 paths, those with the most accepted answers: names that never worked are no votes, whoever makes them up. Many
// processes with few requests each recover more slowly, because a Caller sees its own alone.
//
// A failure that may be that of one path, such as a 502, counts as a request that was not accepted only while most other paths
// of the dependency that have worked in the last minute fail too, by their number and by what was accepted of them: see [Failed].
//
// # What an answer means
//
// Over HTTP, to the throttle and for a retry:
//
//	503; 502, 504 or 429 with Warden-Rejected                              rejected   if repeatable
//	502 or 504 without it; any of the above with Warden-Scope: compartment failed     if repeatable
//	other 429; any of the above with Warden-Scope: tenant                  nothing    if repeatable
//	other statuses, 500 too                                                accepted   never
//	no connection could be made                                            rejected   any method
//	connection broken, stream reset, AttemptTimeout                        failed     if repeatable
//
// Over gRPC, where ours says that the status has the ErrorInfo of this project:
//
//	Unavailable or DeadlineExceeded, no server reached                     rejected   any method; DeadlineExceeded if repeatable
//	Unavailable, ResourceExhausted, ours; DeadlineExceeded, if it says
//	processed: false                                                       rejected   if repeatable
//	other Unavailable, DeadlineExceeded; any of the above with scope:
//	compartment                                                            failed     if repeatable
//	any of the above with scope: tenant                                    nothing    if repeatable
//	ResourceExhausted, not ours                                            nothing    if repeatable, with a RetryInfo or a pushback
//	other codes                                                            accepted   never
//
// With Warden-Rejected, or processed: false, no handler has seen the call, and any method is retried. A call whose deadline has
// passed counts as failed and is not retried; one that was canceled, or not sent, counts for nothing. One tenant's full queue
// says nothing about the calls of others, and neither does a 429 or ResourceExhausted whose cause is unknown: most are quotas.
// So a server that answers overload with them teaches the throttle nothing: let it answer 503, or Unavailable over gRPC. The
// budget bounds these retries like all others.
//
// A retry waits for as long as the server asks (Retry-After, RetryInfo, grpc-retry-pushback-ms), plus a random time up to
// Backoff, doubled with each attempt.
//
// # Errors and blocking
//
// Nothing here waits or sends: [Caller.Begin] answers at once, with [ErrThrottled] if the call must not be sent, and [Call.Retry]
// returns how long to wait. Report each attempt's end with [Call.Ended], also that of one that hangs: give attempts a deadline.
// An attempt that is never reported counts in the budget, but in no throttle.
//
// docs/guarantees/retries.md has the invariants, from R1.
package retry
