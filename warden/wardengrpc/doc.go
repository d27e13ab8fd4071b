// Package wardengrpc puts gRPC calls under a [warden.Warden], or into compartments of a bulkhead.Set: on the server's side
// and on the client's, unary calls and streams. [New] makes the four interceptors.
//
// # When a call holds its place
//
//   - On the server, from before the handler is called until it has returned, panicked or called runtime.Goexit. A
//     client that does not read makes the handler wait in SendMsg, and that is holding a place too.
//   - On the client, a unary call until it has been answered. A stream until nothing more can come of it: RecvMsg has
//     returned an error, io.EOF included; it has returned the only answer of a call whose server sends one; Header, or SendMsg with anything but
//     io.EOF, has failed; or its context has ended. That is what gRPC itself asks of every client for the sake of its own
//     resources. After the first header or message, closing the connection ends it as well.
//
// A stream holds one place however long it lives and however little it does, so give long-lived streams a warden or a
// compartment of their own. The time that a stream took says nothing about the service: it is not told to the monitor. Nor is that
// of a unary call whose client went away.
//
// # What a refused client is told
//
//	ResourceExhausted   pressure_high, probabilistic_shedding, queue_overflow, priority_drop, patience_exceeded: too much is asked for
//	Unavailable         closed: this server is going away, another one may be there; breaker_open: what it needs is not
//	                    there
//	DeadlineExceeded    deadline_exceeded: it could not have ended in time; timeout_queued, timeout_running: the
//	                    compartment's own bounds
//	Canceled            canceled: its context ended while it waited
//	Internal            a mistake in the server: reentry, unknown_compartment, invalid
//
// Each carries a google.rpc.ErrorInfo whose reason is the limiter's in capitals, such as PRESSURE_HIGH, and whose domain is
// [Domain]; its metadata has the number of the decision that ruled and the id of the request (see Config.Task), and nothing else about the
// inside of the server. With ResourceExhausted and breaker_open comes a google.rpc.RetryInfo, spread, so that those who are refused together do not come
// back together. gRPC's own retry policies do not look at it; clients that retry should.
//
// Where the interceptor is, the error is a [*RefusedError]: errors.As finds the *warden.Rejection in it, and status.Code the
// code. An error of this project that a handler returns is told in the same way.
//
// # Who may say that a call matters
//
// Deadlines are those of the calls' contexts, which gRPC passes on; metadata may shorten them. The priority is what Config.Task says. A
// client may lower it by metadata; to raise it, it must be trusted. What a call has of both goes on with the calls that its
// handler makes.
package wardengrpc
