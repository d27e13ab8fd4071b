// SPDX-License-Identifier: Apache-2.0

// Package admissionhttp puts net/http requests through an [admission.Gate]: on the server's side with [NewHandler], on the
// client's with [NewTransport].
//
// An operation is in flight from its admission to its end. The end of a request is this:
//
//   - On the server, a request ends when its handler returns, panics or calls runtime.Goexit. If the handler hijacks the
//     connection, for a WebSocket or another upgrade, the request ends when the handler is done and the connection is
//     closed, whichever comes last.
//   - On the client, a request ends when nothing more can arrive: there is no response, or one without a body, or its body
//     has been read to the end, failed or been closed. Headers alone do not end it: the server may still work on the body,
//     and the connection is still in use. A connection that switched protocols ends when it is closed.
//
// Of a rejected request, the server's handler is not called and the client sends nothing. This package waits for no slot and
// retries nothing.
//
// A hijacked connection that is never closed stays in flight forever, and so does a response that is neither read to its
// end nor closed, even after its context has ended. Without a gate, that is a leaked connection as well. So a handler that
// hijacks must close the connection even when it panics, and a client must defer resp.Body.Close(). Goroutines that a
// handler leaves running are not counted.
//
// Use one gate per dependency of a client, and one per kind of work of a server, so that slow work fills only its own gate.
package admissionhttp
