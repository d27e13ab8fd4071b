// Package admissionhttp puts net/http requests through an [admission.Gate]: on the server's side with [NewHandler], on the
// client's with [NewTransport].
//
// Both follow from the sentence of package admission, in flight means admitted until terminal, once it is said what is
// terminal for a request:
//
//   - On the server a request ends when its handler is done: it returned, panicked or called runtime.Goexit. A handler
//     that takes the connection over, for a WebSocket or any other upgrade, has moved its work there. Its request ends when
//     the handler is done and the connection is closed, whichever comes last.
//   - On the client a request ends when nothing more can come: there is no response, or one without a body, or its body
//     has been read to the end, failed or been closed. Headers end nothing: the other side is still at work on the body,
//     and a connection is still taken. A connection that switched protocols ends when it is closed.
//
// A rejected request leaves no trace: the server's handler is not called, the client sends nothing. Nothing waits,
// nothing is retried.
//
// What never ends stays in flight for ever, as it does for the gate: a hijacked connection that nobody closes, a
// response that is neither read to its end nor closed, although its context has ended. That is a leak of the connection
// without a gate as well. So a handler that hijacks closes what it got also when it panics, and a client defers
// resp.Body.Close(). What a handler leaves running on goroutines of its own after it has returned is not counted.
//
// Use one gate per dependency of a client, and one per kind of work of a server: what is slow then fills its own gate
// and no other.
package admissionhttp
