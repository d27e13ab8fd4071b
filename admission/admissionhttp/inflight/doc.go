// Package inflight keeps a permit for as long as an HTTP request is in flight: on the server's side with [Serve], on the
// client's with [RoundTrip]. Packages admissionhttp and wardenhttp are built on it; it works with any other limit, such as a
// semaphore or a channel:
//
//	if !limit.TryAcquire() {
//		http.Error(w, "busy", http.StatusServiceUnavailable)
//		return
//	}
//	inflight.Serve(permit{limit}, next, w, r) // permit's method End releases
//
// The permit is held until the request ends:
//
//   - On the server, when the handler returns, panics or calls runtime.Goexit. If it hijacks the connection, for a WebSocket
//     or another upgrade, when the handler is done and the connection is closed, whichever comes last.
//   - On the client, when nothing more can arrive: there is no response, or one without a body, or its body has been read
//     to the end, failed or been closed. A connection that switched protocols ends when it is closed.
//
// A hijacked connection that is never closed keeps its permit forever, and so does a response that is neither read to its end
// nor closed. Goroutines that a handler leaves running are not part of the request.
//
// The package decides nothing: it does not know who is rejected, what a rejection says, or what an ending means.
package inflight
