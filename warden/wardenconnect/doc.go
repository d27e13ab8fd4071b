// Package wardenconnect tells clients of [connect RPCs] why they were refused, in the protocol that they speak: Connect, gRPC or
// gRPC-Web. The calls themselves are under a warden by wardenhttp's middleware, because a connect handler is an http.Handler: there
// a place is taken before the message is read, and held until the last of a stream is written.
//
//	rpc, err := wardenhttp.New(w, wardenhttp.Config{Answer: wardenconnect.Answer()})
//	…
//	mux.Handle(path, rpc.Handler(handler))
//
// A refused client gets what wardengrpc tells: the code (resource_exhausted, unavailable, deadline_exceeded, canceled or internal), a google.rpc.ErrorInfo
// with the reason in capitals, the number of the decision and the id of the request, and, if it may try again here, a google.rpc.RetryInfo. The same delay
// is in Retry-After, which is a header or a trailer as the protocol has it ([connect.Error.Meta]). Nothing else of the inside is told.
//
// On the client's side, an http.Client whose transport is wardenhttp's does it: a call that is refused there is not sent, and errors.As finds its
// *warden.Rejection.
//
// [connect RPCs]: https://connectrpc.com
package wardenconnect
