// SPDX-License-Identifier: Apache-2.0

// The four interceptors, and the slot that a call holds.

package wardengrpc

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/patience"
	"github.com/stopbank/stopbank/warden/internal/rpcstatus"
	"github.com/stopbank/stopbank/warden/internal/slot"
	"github.com/stopbank/stopbank/warden/internal/timelimit"
)

// UnaryServer gives unary calls of a server their slot: grpc.ChainUnaryInterceptor(i.UnaryServer(), ...). Interceptors and
// handlers after it run while the slot is held.
func (i *Interceptors) UnaryServer() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if i.exempt(info.FullMethod) {
			return handler(ctx, req)
		}
		claim := i.claim(ctx, info.FullMethod)
		if claim.Holds(ctx) { // there twice: the outer one has asked
			return handler(ctx, req)
		}
		if i.reportsLoad(ctx, info.FullMethod) {
			defer i.reportLoad(ctx)
		}
		h, err := i.begin(ctx, claim, info.FullMethod, servedCall)
		if err != nil {
			return nil, err
		}
		err = errEndedEarly
		defer func() { h.end(err) }()
		var resp any
		resp, err = handler(h.Ctx, req)
		return resp, i.Convert(err)
	}
}

// StreamServer gives streams of a server their slot, which they hold until the handler has returned:
// grpc.ChainStreamInterceptor(i.StreamServer(), ...).
func (i *Interceptors) StreamServer() grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if i.exempt(info.FullMethod) {
			return handler(srv, ss)
		}
		claim := i.claim(ss.Context(), info.FullMethod)
		if claim.Holds(ss.Context()) {
			return handler(srv, ss)
		}
		if i.reportsLoad(ss.Context(), info.FullMethod) {
			defer i.reportLoad(ss.Context())
		}
		h, err := i.begin(ss.Context(), claim, info.FullMethod, servedStream)
		if err != nil {
			return err
		}
		h.stream = true
		s := &slotStream{ServerStream: ss, call: h, ends: !info.IsServerStream}
		s.ctx = servedContext{h.Ctx, s}
		err = errEndedEarly
		defer func() {
			s.sent.Ended(&s.call.Slot, err == nil && h.Ctx.Err() == nil)
			s.call.end(s.result(err))
		}()
		err = handler(srv, s)
		return i.Convert(err)
	}
}

// UnaryClient gives unary calls of a client their slot: grpc.WithChainUnaryInterceptor(i.UnaryClient(), ...). A rejected call
// is not sent. gRPC's own retries share the slot; put a retrying interceptor before this one, so that each attempt acquires
// its own.
func (i *Interceptors) UnaryClient() grpc.UnaryClientInterceptor {
	return func(
		ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		if i.exempt(method) {
			return invoker(ctx, method, req, reply, cc, opts...)
		}
		h, err := i.begin(ctx, i.claim(ctx, method), method, madeCall)
		if err != nil {
			return err
		}
		err = errEndedEarly
		defer func() { h.end(err) }()
		out := outgoing(h.Ctx)
		err = onTime(h.Ctx, invoker(out, method, req, reply, cc, opts...))
		err = answered(cc, judged(out, err, func() bool { return unmarshalable(req, opts) }, nil))
		return err
	}
}

// slotStream is a stream whose handler sees the slot's context. While it only waits for events, its slot is others'.
type slotStream struct {
	grpc.ServerStream

	call     callSlot
	ctx      servedContext
	sent     slot.Stream
	receives patience.Clock
	sends    patience.Clock
	ends     bool        // the server sends one message
	unsent   atomic.Bool // a message of the service's own could not be sent
}

// Context returns the context of the call.
func (w *slotStream) Context() context.Context { return &w.ctx }

// SendHeader is the stream's own.
func (w *slotStream) SendHeader(md metadata.MD) error {
	return w.answered(w.ServerStream.SendHeader(md))
}

// RecvMsg is the stream's own. Meanwhile a Timeout stands still.
func (w *slotStream) RecvMsg(m any) error {
	now := time.Now()
	w.receives.Begin(now)
	w.call.Time.Wait(now)
	err := w.ServerStream.RecvMsg(m)
	now = time.Now()
	w.call.Time.Resume(now, false)
	w.receives.End(now, err != nil)
	err = onTime(w.call.Ctx, err)
	if errors.Is(err, io.EOF) {
		w.sent.Asked()
	}
	return err
}

// SendMsg is the stream's own. Meanwhile a Timeout stands still.
func (w *slotStream) SendMsg(m any) error {
	now := time.Now()
	w.sends.Begin(now)
	w.call.Time.Wait(now)
	err := w.ServerStream.SendMsg(m)
	now = time.Now()
	w.call.Time.Resume(now, err == nil)
	w.sends.End(now, err != nil)
	if code := status.Code(err); code == codes.Internal || code == codes.ResourceExhausted { // it is none, or too long
		w.unsent.Store(true)
	}
	return w.answered(err)
}

func (w *slotStream) answered(err error) error {
	if err == nil && !w.ends {
		w.call.Time.Lift() // nobody knows how long a stream takes
		w.sent.Sent(&w.call.Slot)
	}
	return err
}

// result returns what the error of a handler says. gRPC ends the context when the client leaves or sends what is no message, and
// handlers call that what they like; it also does when a message cannot be sent.
func (w *slotStream) result(err error) error {
	if err != nil && errors.Is(w.call.Ctx.Err(), context.Canceled) && !w.unsent.Load() {
		return context.Canceled
	}
	return err
}

// callSlot is the slot of one call. All copies together release it once.
type callSlot struct {
	slot.Slot
	served    bool // the server's
	stream    bool // how long it took says nothing
	untrusted bool // its client is not trusted, whose deadline says nothing about the service
}

// errEndedEarly is the result, for a compartment, of a call that panicked or ended its goroutine.
var errEndedEarly = errors.New("wardengrpc: the call panicked or called runtime.Goexit")

// A role is that of the interceptor in a call.
type role uint8

const (
	madeCall role = iota // the client's, also in a stream
	servedCall
	servedStream
)

// begin acquires the slot of a call.
func (i *Interceptors) begin(ctx context.Context, claim slot.Claim, fullMethod string, as role) (h callSlot, err error) {
	served := as != madeCall
	h.served = served
	if i.w == nil && i.cfg.Compartment == nil {
		err = invalidField("Interceptors", "nil or zero", "interceptors made by wardengrpc.New")
	} else {
		h.untrusted = !i.classify(ctx, &claim, fullMethod, served)
		claim.StrangersContext = h.untrusted && !shortened(ctx)
		h.Slot, err = claim.Acquire(ctx)
	}
	if err == nil {
		return h, nil
	}
	m, ours := rpcstatus.Of(claim.Compartment, err)
	if !ours { // such as a zero Interceptors
		m = rpcstatus.Invalid()
	}
	if m.RequestID == "" {
		m.RequestID = claim.Task.ID
	}
	if !served && timelimit.Strangers(err) { // nobody's failure
		m.Code = uint32(codes.Canceled)
	}
	if served && m.Reason == string(decision.DeadlineExceeded) { // for a client's transport, which reads no details of a status
		_ = grpc.SetTrailer(ctx, metadata.Pairs(strings.ToLower(rpcstatus.RejectedHTTP), m.Reason))
	}
	if as == servedStream {
		m = m.OfStream()
	}
	rejected := i.rejection(err, m, true)
	i.observeRejection(ctx, fullMethod, rejected)
	return callSlot{}, rejected
}

// claim returns the source of a call's slot.
func (i *Interceptors) claim(ctx context.Context, fullMethod string) slot.Claim {
	claim := slot.Claim{Warden: i.w}
	if i.cfg.Compartment != nil {
		claim.FromCompartment, claim.Compartment = true, i.cfg.Compartment(ctx, fullMethod)
	}
	return claim
}

func (i *Interceptors) exempt(fullMethod string) bool {
	return i.cfg.Exempt != nil && i.cfg.Exempt(fullMethod)
}

func (i *Interceptors) observeRejection(ctx context.Context, fullMethod string, err *rejectedError) {
	if i.cfg.Rejected == nil {
		return
	}
	defer func() { _ = recover() }() // the call stays rejected
	i.cfg.Rejected(ctx, fullMethod, err)
}

// end releases the slot, once. err is the result of the call. A canceled call, or one whose untrusted client set the deadline
// that passed, or in which something could not be sent for what is in it, is no failure. The time of a call that failed after its context had ended is less than the call takes.
func (h callSlot) end(err error) {
	failed := err != nil
	gone := errors.Is(h.Ctx.Err(), context.Canceled) || failed && h.untrusted && timelimit.TooShort(h.Ctx)
	if gone && (h.untrusted || status.Code(err) == codes.Canceled) {
		err = context.Canceled
	}
	ending := slot.Completed
	switch {
	case h.stream:
		ending = slot.Discarded
	case failed && h.Ctx.Err() != nil:
		ending = slot.Abandoned
	case gone:
		ending = slot.Discarded
	}
	answer := slot.Served
	switch {
	case !h.stream && (failed && h.Ctx.Err() != nil || gone):
		answer = slot.Unserved
	case failed && (isInnocent(err) || h.served && serverFault(err) && blamed(h.Ctx)):
		err, ending = context.Canceled, slot.Discarded
	case failed && !errors.Is(err, context.Canceled) && serverFault(err):
		answer = slot.Failed
	}
	if answer == slot.Served && !errors.Is(err, context.Canceled) { // no breaker opens for what is wrong with a request
		err = nil
	}
	h.End(err, ending, answer)
}

// onTime returns the error of a call with this context: if the time was up, or not enough, of an untrusted client, of which the other
// side was told, that of a call whose client has left.
func onTime(ctx context.Context, err error) error {
	s, _ := status.FromError(err)
	if s.Code() != codes.DeadlineExceeded {
		return err
	}
	var local *rejectedError // it was not sent
	due, strangers, _ := timelimit.Due(ctx)
	if strangers && !errors.As(err, &local) && timelimit.TooLate(ctx, due, read(s, nil).foreseen) {
		return tooLateError{}
	}
	return err
}

// tooLateError is the error of a call whose client's own time is up. It matches context.Canceled, whether the context says so yet or not.
type tooLateError struct{}

func (tooLateError) Error() string        { return "wardengrpc: " + timelimit.ErrStranger.Error() }
func (tooLateError) Is(target error) bool { return target == context.Canceled }
func (tooLateError) GRPCStatus() *status.Status {
	return status.New(codes.Canceled, timelimit.ErrStranger.Error())
}

// serverFault reports whether err is an error of the service, as HTTP's 500 and more but for 501.
func serverFault(err error) bool {
	switch status.Code(err) {
	case codes.Unknown, codes.DeadlineExceeded, codes.Internal, codes.Unavailable, codes.DataLoss:
		return true
	default:
		return false
	}
}
