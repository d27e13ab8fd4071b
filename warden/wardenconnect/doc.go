// SPDX-License-Identifier: Apache-2.0

// Package wardenconnect answers rejected [connect RPCs] in the client's protocol: Connect, gRPC or gRPC-Web. The load shedding
// itself is done by wardenhttp's middleware, because a connect handler is an http.Handler: a call acquires its slot before its
// message is read, and holds it until the end of a stream is written.
//
//	rpc, err := wardenhttp.New(w, wardenhttp.Config{Answer: wardenconnect.Answer()})
//	…
//	mux.Handle(path, rpc.Handler(handler))
//
// A rejected client gets the same as from wardengrpc: the code (resource_exhausted, unavailable, deadline_exceeded, canceled or
// internal), a google.rpc.ErrorInfo with the reason in capitals, the decision number, the request ID, "processed: false" and
// the scope, tenant or compartment, if the rejection concerns only that, and, if a retry may succeed, a google.rpc.RetryInfo.
// The same delay, rounded up to seconds, is in Retry-After, a header or a trailer depending on the protocol
// ([connect.Error.Meta]). Nothing else about the server's internals is sent.
//
// On the client, use an http.Client with wardenhttp's transport: a call rejected there is not sent, and errors.As finds its
// *warden.Rejection.
//
// [connect RPCs]: https://connectrpc.com
package wardenconnect
