// Package retry is the caller's half of overload control: it decides, for all calls to one dependency, which attempts may start.
// It knows no protocol; wardenhttp.NewRetry and wardengrpc.NewRetry put HTTP requests and gRPC calls under it, and it needs no
// warden on either side.
//
// A [Caller] keeps two sums, each over a sliding window, and nothing else:
//
//   - First attempts and retries of the last ten seconds. A retry starts only if retries stay at a tenth of first attempts
//     ([Config.Ratio]), or below a small floor. When everything is refused, the dependency gets 1.1 times what is asked for, and
//     not three times. Finagle's RetryBudget and Envoy's retry_budget are the models; a window in place of a share of what is in
//     flight is what works at five requests a second as at 50,000.
//   - Requests and accepted requests of each priority, over the last second, or as much of the last ten as it takes to see ten. When fewer
//     than half are accepted, some are refused here, with the probability (requests - 2 accepted) / (requests + 1), at most 0.8:
//     client-side throttling as in "Handling Overload", chapter 21 of Site Reliability Engineering (Google, 2016), which looks back
//     two minutes and has no bound. Over two minutes nobody notices a storm of seconds, nor that it has passed; and who never
//     tries never learns it at all. Envoy's admission control filter has the bound.
//
// Both refuse attempts before they start. Neither knows of attempts that run, and so neither can end one.
//
// The invariants R1 to R8 are in docs/retries.md.
package retry
