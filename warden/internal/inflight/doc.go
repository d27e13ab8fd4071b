// SPDX-License-Identifier: Apache-2.0

// Package inflight keeps a permit for as long as an HTTP request is in flight: on the server's side with [Serve], on the
// client's with [RoundTrip]. (A gate's permit may be released twice and does not ask how a request ended, so admissionhttp
// does the same with less.)
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
// The package decides nothing: rejections, and the meaning of an outcome, are its callers'.
package inflight
