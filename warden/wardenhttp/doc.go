// Package wardenhttp puts net/http requests under a [warden.Warden] or into compartments: on the server's side with [New],
// on the client's with [NewTransport].
//
// A task of the warden is a function that returns. A request is not quite one, and this package says what it is instead:
//
//   - On the server a request ends when its handler is done: it returned, panicked or called runtime.Goexit. A handler
//     that takes the connection over, for a WebSocket or any other upgrade, has moved its work there. Its request ends when
//     the handler is done and the connection is closed, whichever comes last.
//   - On the client a request ends when nothing more can come: there is no response, or one without a body, or its body
//     has been read to the end, failed or been closed. A connection that switched protocols ends when it is closed.
//   - The time until then is the service's time, unless it is somebody else's: that of an upgraded connection, or of a
//     client that went away.
//   - A refusal is an answer. It says to the client what helps the client, in the form of RFC 9457, and nothing about the
//     inside; [WriteError] writes the same for handlers that ask for places themselves.
//   - A client that trickles its body in, or its answer out, is cut off, and the request ends as soon as its handler has
//     noticed. One whose time is up is told so: 504, and never a 200 that no handler has said.
//   - A client may say in a header that its request matters less, or how long it waits. That it matters more is believed
//     only if the client is trusted. What a request has of both goes on with the requests that its handler sends.
//
// What never ends holds its place for ever: a hijacked connection that nobody closes, a response that is neither read to its
// end nor closed. That is a leak of the connection without a warden as well. So a handler that hijacks closes what it got
// also when it panics, and a client defers resp.Body.Close().
//
// The invariants H1 to H21 and the table of answers are in docs/wardenhttp.md.
package wardenhttp
