// SPDX-License-Identifier: Apache-2.0

// Package wardengrpc applies load shedding to gRPC: it runs unary calls and streams, on the server and on the client, under the
// concurrency limit of a [warden.Warden] or in compartments of a bulkhead.Set. [New] makes the four interceptors.
//
// # How long a call holds its slot
//
//   - On the server, from before the handler is called until it has returned, panicked or called runtime.Goexit. A
//     client that does not read makes the handler wait in SendMsg, and the slot is held meanwhile.
//   - On the client, a unary call until it has been answered, and a stream until gRPC's own end of it (grpc.OnFinish): RecvMsg has
//     returned an error, io.EOF included, or the only answer of a call whose server sends one; SendMsg has failed with anything but
//     io.EOF; the call could not be made; its context has ended; or its connection was closed.
//
// A stream whose server sends many messages gives the warden's slot back after the first, or, where others of its method were ended by
// their handlers after many, half a minute later if it has few ([warden.Permit.Park]); a compartment's slot it keeps. The duration of a
// stream says nothing about the service and is not reported to the monitor; neither is that of a
// unary call that its client canceled, or that failed after its deadline.
//
// # Status of a rejected call
//
//	ResourceExhausted   pressure_high, probabilistic_shedding, queue_overflow, no_slot, priority_drop, max_wait_exceeded: overload
//	Unavailable         the same for a stream, because clients open another one then;
//	                    closed: this server is shutting down, another one may be up; breaker_open: a dependency is down;
//	                    throttled: a retry.Caller did not make a call that the handler needed
//	DeadlineExceeded    deadline_exceeded: the call could not have ended in time; timeout_queued, timeout_running: the
//	                    compartment's own bounds
//	Canceled            canceled: the context ended during the wait
//	Internal            an error in the server's code: reentry, unknown_compartment, invalid
//
// Each status has a google.rpc.ErrorInfo with the limiter's reason in capitals, such as PRESSURE_HIGH, and the domain
// "stopbank/warden"; its metadata has the number of the decision in force, the request ID (see Config.Task), "processed: false"
// unless a handler returned the error, "scope: tenant" if a tenant has used up its share, or "scope: compartment" if a
// compartment has or its breaker is open, which says nothing about calls of others, and nothing else about the server's
// internals. Overload, breaker_open and throttled add a google.rpc.RetryInfo with a random delay, so that clients
// rejected together do not return together. gRPC's own retry policies ignore it; clients that retry should use it.
//
// A call that gRPC does not send for what is in it, its metadata or its message, is no failure of the dependency, nor of a handler that it
// was made for, whose client may have written that: the handler's error matches context.Canceled and has the code Canceled, and its client
// gets InvalidArgument if the handler returns it. Elsewhere the error is gRPC's own, Internal. Nor is a stream that fails because the
// client of the request that it was made for sends or reads so slowly that somebody loses patience: that error has the code Canceled too.
//
// On the interceptor's side, errors.As finds the *warden.Rejection in the error, and status.Code the code. An error of this
// project that a handler returns is converted in the same way.
//
// # Priorities and deadlines of clients
//
// Deadlines are those of the calls' contexts, which gRPC transmits; metadata may shorten them. The priority is that of
// Config.Task. A client may lower it by metadata; only a trusted client may raise it. Both are passed on with the calls that the
// handler makes.
package wardengrpc
