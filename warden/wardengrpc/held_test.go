// SPDX-License-Identifier: Apache-2.0

// How long the server's side holds a slot: until the handler has returned, in whatever way.

package wardengrpc_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/wardengrpc"
)

// Calls that answer, fail, or panic hold their slot until then, and give it back once.
func TestServerHoldsUntilTheHandlerReturns(t *testing.T) {
	for want, end := range map[codes.Code]func() error{
		codes.OK:       func() error { return nil },
		codes.NotFound: func() error { return status.Error(codes.NotFound, "nothing here") },
		codes.Internal: func() error { panic("on purpose") },
	} {
		entered, finish := make(chan struct{}), make(chan struct{})
		s := serving(func(context.Context) error { entered <- struct{}{}; <-finish; return end() })
		for kind, call := range kinds {
			t.Run(kind+" "+want.String(), func(t *testing.T) {
				g := newGuard(t, 1, 0)
				client := served(t, s, mustNew(t, g.Warden, wardengrpc.Config{}))
				answer := make(chan error, 1)
				go func() { answer <- call(t.Context(), client) }()
				await(t, "handler", entered)
				g.wantRunning(t, 1)
				finish <- struct{}{}
				if err := await(t, "answer", answer); status.Code(err) != want {
					t.Errorf("%v, want %s", err, want)
				}
				await(t, "end", g.ended)
				g.wantRunning(t, 0)
				if n := g.ends.Load(); n != 1 {
					t.Errorf("ended %d times", n)
				}
			})
		}
	}
}

// Streams that have sent their header or a message hold no slot: others start meanwhile. One that answers once, at its end, holds it.
func TestStreamsAfterTheirBeginning(t *testing.T) {
	g := newGuard(t, 1, 0)
	g.Limiter().Apply(decision.ControlDecision{Seq: 9, TargetConcurrency: 1, ShedProbability: 1, Parked: 10})
	silent := func(ss grpc.ServerStream) error {
		err := ss.SendHeader(nil)
		<-ss.Context().Done()
		return errors.Join(err, ss.Context().Err())
	}
	s := &service{
		out: func(ss pb.TestService_StreamingOutputCallServer) error { return silent(ss) },
		duplex: func(ss pb.TestService_FullDuplexCallServer) error {
			if err := ss.Send(&pb.StreamingOutputCallResponse{}); err != nil {
				return err
			}
			_, err := ss.Recv()
			return err
		},
		in: func(ss pb.TestService_StreamingInputCallServer) error { return silent(ss) },
	}
	client := served(t, s, mustNew(t, g.Warden, wardengrpc.Config{}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	parked := func(n int) {
		t.Helper()
		until(t, "H37: parked streams, and none that runs", func() bool { // the server is a moment behind what a client has read
			s := g.Limiter().Stats()
			return s.Running == 0 && s.Parked == n
		})
	}
	for i := range 3 {
		out := must(client.StreamingOutputCall(ctx, &pb.StreamingOutputCallRequest{}))(t)
		must(out.Header())(t)
		parked(2*i + 1)
		both := must(client.FullDuplexCall(ctx))(t)
		must(both.Recv())(t)
		parked(2*i + 2)
	}
	must(must(client.StreamingInputCall(ctx))(t).Header())(t)
	time.Sleep(10 * time.Millisecond)
	g.wantRunning(t, 1)
	cancel()
	for range 7 {
		await(t, "end", g.ended)
	}
	if s := g.Limiter().Stats(); s.Running != 0 || s.Parked != 0 {
		t.Errorf("H37: in the end %d run and %d are parked", s.Running, s.Parked)
	}
}

// A client who has nothing more to ask ends a stream that only answers him: that is no work of the method's.
func TestStreamsThatTheirClientsEnd(t *testing.T) {
	g := newGuard(t, 1, 0)
	g.Limiter().Apply(decision.ControlDecision{Seq: 9, TargetConcurrency: 2, ShedProbability: 1, Parked: 10})
	s := &service{duplex: func(ss pb.TestService_FullDuplexCallServer) error {
		for {
			if _, err := ss.Recv(); err != nil {
				return nil //nolint:nilerr // the client has ended it
			}
			if err := ss.Send(&pb.StreamingOutputCallResponse{}); err != nil {
				return err
			}
		}
	}}
	client := served(t, s, mustNew(t, g.Warden, wardengrpc.Config{}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	open := func(n int) pb.TestService_FullDuplexCallClient {
		stream := must(client.FullDuplexCall(ctx))(t)
		for range n {
			noError(t, stream.Send(&pb.StreamingOutputCallRequest{}))
			must(stream.Recv())(t)
		}
		return stream
	}
	first := open(20)
	noError(t, errors.Join(first.CloseSend(), drain(first, nil)))
	await(t, "end", g.ended)
	open(1)
	open(1)
	until(t, "H37: two parked streams, and none that runs", func() bool { // the server is a moment behind
		s := g.Limiter().Stats()
		return s.Running == 0 && s.Parked == 2
	})
	cancel()
	for range 2 {
		await(t, "end", g.ended)
	}
}

// TestServerWithAClientThatNeverReads: the handler waits for the client to read, and that is holding a slot. When the client is
// gone the slot comes back.
func TestServerWithAClientThatNeverReads(t *testing.T) {
	g := newGuard(t, 1, 0)
	sent := make(chan struct{}, 1<<20)
	s := &service{out: func(ss pb.TestService_StreamingOutputCallServer) error {
		big := &pb.StreamingOutputCallResponse{Payload: &pb.Payload{Body: make([]byte, 64<<10)}}
		for {
			if err := ss.Send(big); err != nil {
				return err
			}
			sent <- struct{}{}
		}
	}}
	client := served(t, s, mustNew(t, g.Warden, wardengrpc.Config{}))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	must(client.StreamingOutputCall(ctx, &pb.StreamingOutputCallRequest{}))(t)
	await(t, "message", sent)
	g.wantRunning(t, 1)
	wantRejected(t, kinds["unary"](t.Context(), client), codes.ResourceExhausted, "PRESSURE_HIGH")
	cancel()
	await(t, "end", g.ended)
	g.wantRunning(t, 0)
}

// A handler that ends its goroutine has ended its call. Without a connection: gRPC itself has no answer to that.
func TestServerGoexit(t *testing.T) {
	g := newGuard(t, 2, 0)
	i := mustNew(t, g.Warden, wardengrpc.Config{})
	for _, call := range []func(){
		func() {
			exits := func(context.Context, any) (any, error) { runtime.Goexit(); return nil, nil }
			_, _ = i.UnaryServer()(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: unaryCall}, exits)
		},
		func() {
			exits := func(any, grpc.ServerStream) error { runtime.Goexit(); return nil }
			_ = i.StreamServer()(nil, bare{ctx: t.Context()}, &grpc.StreamServerInfo{FullMethod: unaryCall}, exits)
		},
	} {
		go call()
		await(t, "end", g.ended)
	}
	g.wantRunning(t, 0)
}

// bare is a server's stream without a connection.
type bare struct {
	grpc.ServerStream
	ctx context.Context
}

func (b bare) Context() context.Context { return b.ctx }

// Many calls of all kinds, on both sides, that end in every way: afterwards nothing is held.
func TestNothingIsHeldAfterwards(t *testing.T) {
	outside, inside := newGuard(t, 6, 10), newGuard(t, 3, 4)
	s := serving(func(ctx context.Context) error {
		switch rand.IntN(4) {
		case 0:
			return status.Error(codes.NotFound, "nothing here")
		case 1:
			panic("on purpose")
		case 2:
			<-ctx.Done()
		}
		return ctx.Err()
	})
	addr := serve(t, s, under(mustNew(t, inside.Warden, wardengrpc.Config{}))...)
	client := pb.NewTestServiceClient(dial(t, addr, through(mustNew(t, outside.Warden, wardengrpc.Config{}))...))
	var all sync.WaitGroup
	for range 12 {
		all.Go(func() {
			for range 40 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(30))*time.Millisecond)
				switch rand.IntN(3) {
				case 0:
					_ = kinds["unary"](ctx, client)
				case 1:
					_ = kinds["stream"](ctx, client)
				default: // never read
					if stream, err := client.FullDuplexCall(ctx); err == nil {
						_ = stream.Send(&pb.StreamingOutputCallRequest{})
					}
				}
				cancel()
			}
		})
	}
	all.Wait()
	for _, g := range []*guard{outside, inside} {
		until(t, "rest", func() bool { // an end is observed after its slot is free
			s := g.Limiter().Stats()
			return s.Running == 0 && s.Queued == 0 && g.starts.Load() == g.ends.Load()
		})
		if s := g.Limiter().Stats(); s.Executed == 0 || g.starts.Load() != g.ends.Load() || uint64(g.ends.Load()) != s.Executed {
			t.Errorf("%d started and %d ended of %+v", g.starts.Load(), g.ends.Load(), s)
		}
	}
}
