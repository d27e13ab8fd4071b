// SPDX-License-Identifier: Apache-2.0

// What the monitor and a breaker are told of a call, where a connection would leave it to chance.

package wardengrpc_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
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

// Unary calls that were answered are timed; not those whose client went away, and no streams. A call that its context ended is
// abandoned.
func TestWhatIsTimed(t *testing.T) {
	returns := func(err error) func(context.Context, func()) error {
		return func(context.Context, func()) error { return err }
	}
	leaves := func(ctx context.Context, cancel func()) error { cancel(); return ctx.Err() }
	for name, c := range map[string]struct {
		stream  bool
		handler func(ctx context.Context, cancel func()) error
		want    timed
	}{
		"an answer":                        {false, returns(nil), timed{count: 1}},
		"an error":                         {false, returns(io.ErrUnexpectedEOF), timed{count: 1, failed: 1}},
		"nothing of what was asked for":    {false, returns(status.Error(codes.NotFound, "no such order")), timed{count: 1}},
		"a panic":                          {false, func(context.Context, func()) error { panic("on purpose") }, timed{count: 1, failed: 1}},
		"a client goes, and ends the call": {false, leaves, timed{abandoned: 1, unserved: 1}},
		"a client goes":                    {false, func(_ context.Context, cancel func()) error { cancel(); return nil }, timed{unserved: 1}},
		"a stream":                         {true, returns(nil), timed{}},
		"a stream that fails":              {true, returns(status.Error(codes.Internal, "on purpose")), timed{failed: 1}},
		"a stream whose client goes":       {true, leaves, timed{}},
	} {
		t.Run(name, func(t *testing.T) {
			told := &timed{}
			w := must(warden.New(warden.Config{Controller: told, Interval: 10 * time.Millisecond}))(t)
			i := mustNew(t, w, wardengrpc.Config{})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			func() {
				defer func() { _ = recover() }()
				if c.stream {
					_ = i.StreamServer()(nil, bare{ctx: ctx}, &grpc.StreamServerInfo{}, func(_ any, ss grpc.ServerStream) error {
						return c.handler(ss.Context(), cancel)
					})
					return
				}
				_, _ = i.UnaryServer()(ctx, nil, &grpc.UnaryServerInfo{}, func(ctx context.Context, _ any) (any, error) {
					return nil, c.handler(ctx, cancel)
				})
			}()
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
			streamer := func(
				ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, _ ...grpc.CallOption,
			) (grpc.ClientStream, error) {
				ctx, cancel := context.WithCancel(ctx)
				return &ending{headless{err: end}, ctx, cancel, false}, nil
			}
			cs := must(i.StreamClient()(t.Context(), &grpc.StreamDesc{ServerStreams: true}, nil, unaryCall, streamer))(t)
			_, _ = cs.RecvMsg(nil), cs.RecvMsg(nil)
			if got := b.only(t); status.Code(got) != codes.OK && end == io.EOF || status.Code(got) != codes.DataLoss && end != io.EOF {
				t.Errorf("told %v of %v", got, end)
			}
			c.wantInFlight(t, "unary", 0)
		})
	}
}

// bytesCodec sends bytes as a message, whatever they are.
type bytesCodec struct{}

func (bytesCodec) Marshal(v any) ([]byte, error) { return v.([]byte), nil }
func (bytesCodec) Unmarshal([]byte, any) error   { return nil }
func (bytesCodec) Name() string                  { return "proto" }

// A stream whose client sends what is no message, one that is too long, or leaves, has not failed, whatever its handler calls that; one
// that cannot send what it has to say has.
func TestAStrangersMessages(t *testing.T) {
	receive := func(ss grpc.ServerStream) error {
		if err := ss.RecvMsg(&pb.StreamingOutputCallRequest{}); err != nil {
			return status.Errorf(codes.Internal, "receive: %v", err)
		}
		return nil
	}
	for name, c := range map[string]struct {
		method  string
		message []byte
		leaves  bool
		failed  uint64
	}{
		"no message":         {method: "StreamingInputCall", message: []byte{0xff}},
		"no message to ask":  {method: "StreamingOutputCall", message: []byte{0xff}},
		"too long":           {method: "FullDuplexCall", message: make([]byte, 5<<20)},
		"he leaves":          {method: "FullDuplexCall", leaves: true},
		"an answer too long": {method: "StreamingOutputCall", message: []byte{}, failed: 1},
	} {
		t.Run(name, func(t *testing.T) {
			entered := make(chan struct{}, 1)
			s := &service{
				in: func(ss pb.TestService_StreamingInputCallServer) error { return receive(ss) },
				out: func(ss pb.TestService_StreamingOutputCallServer) error {
					err := ss.Send(&pb.StreamingOutputCallResponse{Payload: &pb.Payload{Body: make([]byte, 10_000)}})
					return status.Errorf(codes.Internal, "send: %v", err)
				},
				duplex: func(ss pb.TestService_FullDuplexCallServer) error {
					entered <- struct{}{}
					return receive(ss)
				},
			}
			g := newGuard(t, 1, 0)
			i := mustNew(t, g.Warden, wardengrpc.Config{})
			cc := dial(t, serve(t, s, append(under(i), grpc.MaxSendMsgSize(1000))...))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			cs := must(cc.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true},
				"/grpc.testing.TestService/"+c.method, grpc.ForceCodec(bytesCodec{})))(t)
			if c.leaves {
				await(t, "handler", entered)
				cancel()
			} else {
				noError(t, errors.Join(cs.SendMsg(c.message), cs.CloseSend()))
			}
			await(t, "end", g.ended)
			if n := g.Limiter().Stats().Failed; n != c.failed {
				t.Errorf("H31: %d failed, want %d", n, c.failed)
			}
		})
	}
}
