// Package inflight keeps a permit for as long as an HTTP request is in flight: on the server's side with [Serve], on the
// client's with [RoundTrip]. Packages admissionhttp and wardenhttp are made of it; whoever has another limit, a semaphore
// or a channel, may use it in the same way:
//
//	if !limit.TryAcquire() {
//		http.Error(w, "busy", http.StatusServiceUnavailable)
//		return
//	}
//	inflight.Serve(permit{limit}, next, w, r) // permit's method End releases
//
// In flight means from the permit to the end, and the end of a request is this:
//
//   - On the server, the handler is done: it returned, panicked or called runtime.Goexit. A handler that takes the
//     connection over, for a WebSocket or any other upgrade, has moved its work there: the request ends when the handler is
//     done and the connection is closed, whichever comes last.
//   - On the client, nothing more can come: there is no response, or one without a body, or its body has been read to
//     the end, failed or been closed. A connection that switched protocols ends when it is closed.
//
// What never ends keeps its permit for ever: a hijacked connection that nobody closes, a response that is neither read to its
// end nor closed. What a handler leaves running on goroutines of its own is no part of the request.
//
// The package decides nothing: it does not know who is rejected, what a rejection says, or what an ending means.
package inflight
