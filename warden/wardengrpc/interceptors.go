// The four interceptors, and the place that a call holds.

package wardengrpc

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/internal/rpcstatus"
)

// UnaryServer lets unary calls of a server ask for their place: grpc.ChainUnaryInterceptor(i.UnaryServer(), ...). What it
// wraps runs with the place.
func (i *Interceptors) UnaryServer() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if i.exempt(info.FullMethod) {
			return handler(ctx, req)
		}
		h, err := i.begin(ctx, info.FullMethod, true)
		if err != nil {
			return nil, err
		}
		err = errEndedEarly
		defer func() { h.end(err) }()
		var resp any
		resp, err = handler(h.ctx, req)
		return resp, i.Convert(err)
	}
}

// StreamServer lets streams of a server ask for their place: grpc.ChainStreamInterceptor(i.StreamServer(), ...). They
// hold it until the handler has returned.
func (i *Interceptors) StreamServer() grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if i.exempt(info.FullMethod) {
			return handler(srv, ss)
		}
		h, err := i.begin(ss.Context(), info.FullMethod, true)
		if err != nil {
			return err
		}
		h.stream = true
		if h.ctx != ss.Context() {
			ss = within{ss, h.ctx}
		}
		err = errEndedEarly
		defer func() { h.end(err) }()
		err = handler(srv, ss)
		return i.Convert(err)
	}
}

// UnaryClient lets unary calls of a client ask for their place: grpc.WithChainUnaryInterceptor(i.UnaryClient(), ...). A
// refused call is not sent. Retries of gRPC itself happen within the place; an interceptor that retries belongs before this
// one, so that each try asks.
func (i *Interceptors) UnaryClient() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if i.exempt(method) {
			return invoker(ctx, method, req, reply, cc, opts...)
		}
		h, err := i.begin(ctx, method, false)
		if err != nil {
			return err
		}
		err = errEndedEarly
		defer func() { h.end(err) }()
		err = invoker(h.ctx, method, req, reply, cc, opts...)
		return err
	}
}

// within is a stream under the context of its compartment.
type within struct {
	grpc.ServerStream
	ctx context.Context
}

func (w within) Context() context.Context { return w.ctx }

// hold is the place of one call. All copies together give it back once.
type hold struct {
	ctx         context.Context // the call goes on with it
	warden      warden.Permit
	compartment bulkhead.Permit
	stream      bool // how long it took says nothing
}

// errEndedEarly is what a compartment is told of a call that panicked or ended its goroutine.
var errEndedEarly = errors.New("wardengrpc: the call panicked or called runtime.Goexit")

// begin asks for the place of a call. served: it came to a server.
func (i *Interceptors) begin(ctx context.Context, fullMethod string, served bool) (hold, error) {
	h := hold{ctx: ctx}
	var err error
	switch {
	case i.cfg.Compartment != nil:
		if i.w != nil {
			i.w.Watch() // its decisions rule the compartments, but nobody asks it for places
		}
		h.ctx, h.compartment, err = i.cfg.Compartment(ctx, fullMethod).Acquire(ctx)
	case i.w != nil:
		h.warden, err = i.w.Acquire(ctx, i.task(ctx, fullMethod, served))
	default:
		err = &warden.InvalidError{Field: "Interceptors", Value: "zero", Allowed: "ones made by New"}
	}
	if err == nil {
		return h, nil
	}
	m, ours := rpcstatus.Of(err)
	if !ours { // none that a place is refused with
		m = rpcstatus.Invalid()
	}
	refused := i.refusal(err, m)
	i.tell(ctx, fullMethod, refused)
	return hold{}, refused
}

func (i *Interceptors) exempt(fullMethod string) bool {
	return i.cfg.Exempt != nil && i.cfg.Exempt(fullMethod)
}

func (i *Interceptors) tell(ctx context.Context, fullMethod string, err *RefusedError) {
	if i.cfg.Refused == nil {
		return
	}
	defer func() { _ = recover() }() // the call is refused, whatever is said about it
	i.cfg.Refused(ctx, fullMethod, err)
}

// end gives the place back, once. err is what came of the call.
func (h hold) end(err error) {
	gone := errors.Is(h.ctx.Err(), context.Canceled)
	if gone && status.Code(err) == codes.Canceled {
		err = context.Canceled // its caller's doing, and nothing that a breaker should know
	}
	h.compartment.Release(err)
	if h.stream || gone {
		h.warden.Discard()
		return
	}
	h.warden.Release()
}
