// SPDX-License-Identifier: Apache-2.0

// What the monitor and a breaker are told of a call, where a connection would leave it to chance.

package wardengrpc_test

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/monitor"
	"github.com/stopbank/stopbank/warden/wardengrpc"
)

// timed counts the executions that the monitor was told of.
type timed struct{ count, abandoned, unserved, failed uint64 }

func (c *timed) Step(s monitor.Sample) decision.ControlDecision {
	c.count += s.Service.Count
	c.abandoned += s.Service.Abandoned
	return decision.ControlDecision{Seq: 1, TargetConcurrency: 10}
}

// TestWhatIsTimed: unary calls that were answered; not those whose client went away, and no streams. A call that its context
// ended is abandoned.
func TestWhatIsTimed(t *testing.T) {
	for name, c := range map[string]struct {
		call func(i *wardengrpc.Interceptors, ctx context.Context, cancel func())
		want timed
	}{
		"an answer": {func(i *wardengrpc.Interceptors, ctx context.Context, _ func()) {
			_, _ = i.UnaryServer()(ctx, nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) { return nil, nil })
		}, timed{1, 0, 0, 0}},
		"an error": {func(i *wardengrpc.Interceptors, ctx context.Context, _ func()) {
			_, _ = i.UnaryServer()(ctx, nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) {
				return nil, io.ErrUnexpectedEOF
			})
		}, timed{1, 0, 0, 1}},
		"an answer that rejects what was asked for": {func(i *wardengrpc.Interceptors, ctx context.Context, _ func()) {
			_, _ = i.UnaryServer()(ctx, nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) {
				return nil, status.Error(codes.NotFound, "no such order")
			})
		}, timed{1, 0, 0, 0}},
		"a panic": {func(i *wardengrpc.Interceptors, ctx context.Context, _ func()) {
			defer func() { _ = recover() }()
			_, _ = i.UnaryServer()(ctx, nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) { panic("on purpose") })
		}, timed{1, 0, 0, 1}},
		"a stream that fails": {func(i *wardengrpc.Interceptors, ctx context.Context, _ func()) {
			_ = i.StreamServer()(nil, bare{ctx: ctx}, &grpc.StreamServerInfo{}, func(any, grpc.ServerStream) error {
				return status.Error(codes.Internal, "on purpose")
			})
		}, timed{0, 0, 0, 1}},
		"a client that goes away and ends the call": {func(i *wardengrpc.Interceptors, ctx context.Context, cancel func()) {
			_, _ = i.UnaryServer()(ctx, nil, &grpc.UnaryServerInfo{}, func(ctx context.Context, _ any) (any, error) {
				cancel()
				return nil, ctx.Err()

			})
		}, timed{0, 1, 1, 0}},
		"a client that goes away": {func(i *wardengrpc.Interceptors, ctx context.Context, cancel func()) {
			_, _ = i.UnaryServer()(
				ctx, nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) { cancel(); return nil, nil },
			)
		}, timed{0, 0, 1, 0}},
		"a stream whose client goes away": {func(i *wardengrpc.Interceptors, ctx context.Context, cancel func()) {
			_ = i.StreamServer()(nil, bare{ctx: ctx}, &grpc.StreamServerInfo{}, func(any, grpc.ServerStream) error {
				cancel()
				return ctx.Err()
			})
		}, timed{}},
		"a stream": {func(i *wardengrpc.Interceptors, ctx context.Context, _ func()) {
			_ = i.StreamServer()(nil, bare{ctx: ctx}, &grpc.StreamServerInfo{}, func(any, grpc.ServerStream) error { return nil })
		}, timed{}},
	} {
		t.Run(name, func(t *testing.T) {
			told := &timed{}
			w := must(warden.New(warden.Config{Controller: told, Interval: 10 * time.Millisecond}))(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c.call(mustNew(t, w, wardengrpc.Config{}), ctx, cancel)
			for before := w.Stats().Samples; w.Stats().Samples < before+2; {
				time.Sleep(time.Millisecond) // until samples are due
				w.SampleIfDue()
			}
			told.unserved, told.failed = w.Limiter().Stats().Abandoned, w.Limiter().Stats().Failed
			if *told != c.want {
				t.Errorf("Q22, Q23, H31: %+v, want %+v", *told, c.want)
			}
		})
	}
}

// ending is a stream whose context ends before RecvMsg says why, as it is with gRPC's own.
type ending struct {
	headless

	ctx    context.Context
	cancel func()
	alive  bool
}

func (e *ending) Context() context.Context { return e.ctx }

func (e *ending) RecvMsg(any) error {
	if !e.alive {
		e.alive = true
		return nil
	}
	e.cancel()
	synctest.Wait() // whoever watches the context has had the time to act
	return e.err
}

func TestAStreamEndsAsRecvMsgSays(t *testing.T) {
	for _, end := range []error{io.EOF, status.Error(codes.DataLoss, "all of it")} {
		synctest.Test(t, func(t *testing.T) {
			b := &breaker{}
			c := newCompartments(t, bulkhead.CompartmentConfig{Guaranteed: 1, Breaker: b})
			i := mustNew(t, nil, wardengrpc.Config{Compartment: func(context.Context, string) *bulkhead.Compartment {
				return c.Compartment("unary")
			}})
			cs, err := i.StreamClient()(t.Context(), &grpc.StreamDesc{ServerStreams: true}, nil, unaryCall,
				func(
					ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, _ ...grpc.CallOption,
				) (grpc.ClientStream, error) {
					ctx, cancel := context.WithCancel(ctx)
					return &ending{headless{err: end}, ctx, cancel, false}, nil
				})
			if err != nil {
				t.Fatal(err)
			}
			_, _ = cs.RecvMsg(nil), cs.RecvMsg(nil)
			if got := b.last(); status.Code(got) != codes.OK && end == io.EOF ||
				status.Code(got) != codes.DataLoss && end != io.EOF {
				t.Errorf("told %v of %v", got, end)
			}
			c.wantInFlight(t, "unary", 0)
		})
	}
}
