// SPDX-License-Identifier: Apache-2.0

// Package wardenhttp applies load shedding to net/http: it runs requests under the concurrency limit of a [warden.Warden] or
// in bulkhead compartments, on the server with [New] and on the client with [NewTransport].
//
//	request -> slot, or an answer that says why not -> your handler -> NewRetry -> NewTransport -> the next server
//
// A protected server; package service adds compartments, logs, metrics, a console and a graceful shutdown to it:
//
//	w, err := warden.New(warden.Config{})
//	if err != nil {
//		return err
//	}
//	go w.Run(ctx)
//	m, err := wardenhttp.New(w, wardenhttp.Config{Timeout: 2 * time.Second})
//	if err != nil {
//		return err
//	}
//	mux := http.NewServeMux()
//	mux.Handle("GET /search", m.Handler(search))
//	mux.Handle("GET /readyz", new(wardenhttp.Readiness)) // outside the middleware: never rejected
//	server := &http.Server{
//		Addr: ":8080", Handler: mux,
//		ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute,
//	}
//	return server.ListenAndServe()
//
// # Slots
//
//   - On the server a request holds its slot until its handler is done: it returned, panicked or called runtime.Goexit. If
//     the handler hijacks the connection, for a WebSocket or another upgrade, the request ends when the handler is done and
//     the connection is closed, whichever comes last.
//   - On the client a request holds its slot until nothing more can arrive: there is no response, or one without a body, or
//     its body was read to the end, failed or was closed. A connection that switched protocols ends when it is closed.
//   - The time until then counts as the service's execution time, except for what the request waits for its client, for upgraded
//     connections, for clients that disconnected or were too slow, and for requests whose time was up before they were answered.
//   - A rejected request gets an answer in the form of RFC 9457, with what the client needs and nothing about the server's
//     internals; [WriteError] writes the same for handlers that acquire slots themselves.
//   - A client that sends its body or reads the answer too slowly is cut off, and its request ends as soon as the handler
//     has noticed. A request whose deadline passes before its handler has answered is answered 504, never with a 200 that
//     no handler wrote.
//   - A client may lower its priority or shorten its deadline in headers. Only a trusted client may raise its priority. Both
//     are passed on with the requests that the handler sends.
//
// # Headers of clients
//
// The shortest time and the lowest priority count; a repeated or malformed header is ignored.
//
//	Warden-Timeout, X-Request-Timeout-Ms, X-Envoy-Expected-Rq-Timeout-Ms, Connect-Timeout-Ms   milliseconds: the client waits that long
//	Grpc-Timeout           digits and H, M, S, m, u or n
//	X-Request-Timeout      seconds: 30, 2.5, 30s, 500ms
//	Warden-Timeout-Untrusted   anything: whoever sends the time does not vouch for it, because a client of its own has chosen it
//	Warden-Priority        -128 to 127, or background, normal, high, critical
//	Priority (RFC 9218)    u=7 is background; other urgencies mean nothing here
//
// Only a request that is Trusted raises a priority. Decide Trusted by what a client cannot choose: a client certificate, the
// listener, the gateway's address; and let a gateway without this middleware remove Warden-Priority and the times from outside.
// Requests sent through the transport of [NewTransport] or [NewRetry] carry Warden-Timeout, the remaining time without that on the
// network, and Warden-Priority, to foreign services too unless a Base deletes them.
//
// # Priorities, streams and requests that never end
//
// A route gets its priority from the context of its requests: wrap its handler in one that uses [warden.WithPriority], outside of
// [Middleware.Handler], as the example of that method does. Config.Task can set it too. In a compartment the priority is the
// compartment's Criticality, and that of the context only if the Criticality is Normal.
//
// A stream gives the warden's slot back once it has begun, or, where others of its route worked until they ended, half a minute later
// if it does not ([warden.Permit.Park]); a compartment's it keeps. Without a Config.Timeout a handler whose dependency hangs keeps its
// slot for as long. The limit makes up for 512 of such requests in full, and less beyond.
//
// A request that never ends holds its slot forever: a hijacked connection that is never closed, or a response that is neither
// read to its end nor closed. Both leak the connection without a warden as well. A handler that hijacks must close the
// connection even when it panics, and a client must defer resp.Body.Close().
//
// # Errors and blocking
//
// A request waits for its slot until one is free, its deadline cannot be met any more, the queue is full or it is shed; the
// answer then is 503, 504 or 429 with the reason. [NewTransport] and [NewRetry] wait in RoundTrip, and return errors that
// errors.Is and errors.As recognize through an [http.Client]: [warden.ErrRejected], [bulkhead.ErrTimeout], [retry.ErrThrottled].
// Invalid configurations are errors of the constructors ([warden.ErrInvalid]); invalid requests and compartments are answered
// 500.
//
// docs/reasons.md has the table of answers, docs/guarantees/wardenhttp.md the invariants, from H1.
package wardenhttp
