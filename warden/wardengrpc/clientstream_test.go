// SPDX-License-Identifier: Apache-2.0

// The client's streams: in each way in which one can end its slot comes back, and nothing is left behind.

package wardengrpc_test

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/stopbank/stopbank/warden/wardengrpc"
)

// TestClientStreamEnds: each way in which a stream can end gives its slot back at once, and not before.
func TestClientStreamEnds(t *testing.T) {
	message := &pb.StreamingOutputCallRequest{}
	for name, end := range map[string]func(t *testing.T, g *guard, cc *grpc.ClientConn, ctx context.Context, cancel func()){
		"it has been read to its end": func(t *testing.T, g *guard, cc *grpc.ClientConn, ctx context.Context, _ func()) {
			stream := must(pb.NewTestServiceClient(cc).StreamingOutputCall(ctx, message))(t)
			for range 3 {
				must(stream.Recv())(t)
				g.wantRunning(t, 1)
			}
			if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
				t.Errorf("%v, want io.EOF", err)
			}
		},
		"it failed": func(t *testing.T, g *guard, cc *grpc.ClientConn, ctx context.Context, _ func()) {
			stream := must(pb.NewTestServiceClient(cc).FullDuplexCall(ctx))(t)
			_ = stream.Send(&pb.StreamingOutputCallRequest{ResponseStatus: &pb.EchoStatus{Code: int32(codes.NotFound)}})
			g.wantRunning(t, 1)
			if _, err := stream.Recv(); status.Code(err) != codes.NotFound {
				t.Errorf("%v, want NotFound", err)
			}
		},
		"its only answer came": func(t *testing.T, g *guard, cc *grpc.ClientConn, ctx context.Context, _ func()) {
			stream := must(pb.NewTestServiceClient(cc).StreamingInputCall(ctx))(t)
			for range 3 {
				noError(t, stream.Send(&pb.StreamingInputCallRequest{}))
			}
			g.wantRunning(t, 1)
			must(stream.CloseAndRecv())(t)
		},
		"nobody reads, and it is canceled": func(
			t *testing.T, g *guard, cc *grpc.ClientConn, ctx context.Context, cancel func(),
		) {
			must(pb.NewTestServiceClient(cc).StreamingOutputCall(ctx, message))(t)
			g.wantRunning(t, 1)
			cancel()
		},
		"nobody reads, and its deadline comes": func(t *testing.T, g *guard, cc *grpc.ClientConn, ctx context.Context, _ func()) {
			deadline := due{ctx, make(chan struct{})}
			must(pb.NewTestServiceClient(cc).FullDuplexCall(deadline))(t)
			g.wantRunning(t, 1)
			close(deadline.come)
		},
		"a message cannot be sent": func(t *testing.T, g *guard, cc *grpc.ClientConn, ctx context.Context, _ func()) {
			stream := must(pb.NewTestServiceClient(cc).FullDuplexCall(ctx, grpc.MaxCallSendMsgSize(10)))(t)
			g.wantRunning(t, 1)
			if err := stream.Send(
				&pb.StreamingOutputCallRequest{Payload: &pb.Payload{Body: make([]byte, 100)}},
			); status.Code(err) != codes.ResourceExhausted {
				t.Errorf("%v, want ResourceExhausted", err)
			}
		},
		"its header fails": func(t *testing.T, _ *guard, cc *grpc.ClientConn, ctx context.Context, _ func()) {
			bad := metadata.AppendToOutgoingContext(ctx, "reject", "1")
			stream := must(pb.NewTestServiceClient(cc).FullDuplexCall(bad))(t)
			// A failure that comes instead of a header is told by RecvMsg alone.
			if md, err := stream.Header(); md != nil || err != nil {
				t.Errorf("header %v, %v", md, err)
			}
			if _, err := stream.Recv(); status.Code(err) != codes.PermissionDenied {
				t.Errorf("%v, want PermissionDenied", err)
			}
		},
		"the connection is closed after a message": func(
			t *testing.T, g *guard, cc *grpc.ClientConn, ctx context.Context, _ func(),
		) {
			stream := must(pb.NewTestServiceClient(cc).FullDuplexCall(ctx))(t)
			_ = stream.Send(message)
			must(stream.Recv())(t)
			g.wantRunning(t, 1)
			cc.Close()
		},
		"the connection is closed after a header": func(
			t *testing.T, g *guard, cc *grpc.ClientConn, ctx context.Context, _ func(),
		) {
			stream := must(pb.NewTestServiceClient(cc).FullDuplexCall(ctx))(t)
			_ = stream.Send(message)
			must(stream.Header())(t)
			g.wantRunning(t, 1)
			cc.Close()
		},
		"it cannot be opened": func(t *testing.T, _ *guard, cc *grpc.ClientConn, ctx context.Context, _ func()) {
			if _, err := pb.NewTestServiceClient(cc).FullDuplexCall(
				ctx, grpc.CallContentSubtype("nothing"),
			); status.Code(err) != codes.Internal {
				t.Errorf("%v, want Internal", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuard(t, 1, 0)
			s := &service{
				out: func(ss pb.TestService_StreamingOutputCallServer) error {
					for range 3 {
						_ = ss.Send(&pb.StreamingOutputCallResponse{})
					}
					return nil
				},
				in: func(ss pb.TestService_StreamingInputCallServer) error {
					for {
						if _, err := ss.Recv(); err != nil {
							return ss.SendAndClose(&pb.StreamingInputCallResponse{})
						}
					}
				},
				duplex: func(ss pb.TestService_FullDuplexCallServer) error {
					if metadata.ValueFromIncomingContext(ss.Context(), "reject") != nil {
						return status.Error(codes.PermissionDenied, "no")
					}
					for {
						r, err := ss.Recv()
						if err != nil {
							return nil //nolint:nilerr // the client has ended it
						}
						if c := r.GetResponseStatus().GetCode(); c != 0 {
							return status.Error(codes.Code(c), "as asked")
						}
						_ = ss.Send(&pb.StreamingOutputCallResponse{})
					}
				},
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			end(t, g, dial(t, serve(t, s), through(mustNew(t, g.Warden, wardengrpc.Config{}))...), ctx, cancel)
			await(t, "end of the slot", g.ended)
			g.wantRunning(t, 0)
			if n := g.ends.Load(); n != 1 {
				t.Errorf("ended %d times", n)
			}
		})
	}
}

// due is a context whose deadline comes when the test says so, and not while the machine is still connecting.
type due struct {
	context.Context
	come chan struct{}
}

func (d due) Deadline() (time.Time, bool) { return time.Now().Add(time.Hour), true }
func (d due) Done() <-chan struct{}       { return d.come }

func (d due) Err() error {
	select {
	case <-d.come:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// counted is a context that counts those who wait for its end.
type counted struct {
	context.Context
	calls, waiting atomic.Int64
}

// Value hides the context inside, at which one would watch past AfterFunc.
func (*counted) Value(any) any { return nil }

// AfterFunc is what context.AfterFunc looks for.
func (c *counted) AfterFunc(f func()) func() bool {
	c.calls.Add(1)
	c.waiting.Add(1)
	stop := context.AfterFunc(c.Context, f)
	return func() bool {
		stopped := stop()
		if stopped {
			c.waiting.Add(-1)
		}
		return stopped
	}
}

// TestClientStreamLeavesNothingBehind: a context that outlives many streams does not remember them.
func TestClientStreamLeavesNothingBehind(t *testing.T) {
	g := newGuard(t, 1, 0)
	s := &service{
		duplex: func(ss pb.TestService_FullDuplexCallServer) error { return ss.Send(&pb.StreamingOutputCallResponse{}) },
	}
	client := pb.NewTestServiceClient(dial(t, serve(t, s), through(mustNew(t, g.Warden, wardengrpc.Config{}))...))
	ctx := &counted{Context: t.Context()}
	for range 20 {
		stream, err := client.FullDuplexCall(ctx)
		noError(t, drain(stream, err))
		await(t, "end", g.ended)
	}
	if ctx.calls.Load() == 0 {
		t.Fatal("nobody watched the context")
	}
	until(t, "end of the watching", func() bool { return ctx.waiting.Load() == 0 }) // gRPC's own take a moment
}

// TestClientRetriesStayPossible: the stream's context is not asked for before gRPC has stopped to retry.
func TestClientRetriesStayPossible(t *testing.T) {
	g := newGuard(t, 1, 0)
	s := &service{}
	s.duplex = func(ss pb.TestService_FullDuplexCallServer) error {
		if s.calls.Load() < 3 {
			return status.Error(codes.Unavailable, "not yet")
		}
		return ss.Send(&pb.StreamingOutputCallResponse{})
	}
	const retrying = `{"methodConfig":[{"name":[{}],"retryPolicy":{"maxAttempts":4,"initialBackoff":"0.001s","maxBackoff":"0.001s",` +
		`"backoffMultiplier":1,"retryableStatusCodes":["UNAVAILABLE"]}}]}`
	opts := append(through(mustNew(t, g.Warden, wardengrpc.Config{})), grpc.WithDefaultServiceConfig(retrying))
	client := pb.NewTestServiceClient(dial(t, serve(t, s), opts...))
	stream, err := client.FullDuplexCall(t.Context())
	if err := drain(stream, err); err != nil {
		t.Errorf("%v after %d tries", err, s.calls.Load())
	}
	await(t, "end", g.ended)
	if g.starts.Load() != 1 || s.calls.Load() != 3 {
		t.Errorf("%d slots for %d tries, want one for 3", g.starts.Load(), s.calls.Load())
	}
}

// TestClientHeaderErrors, which only a stream without gRPC behind it gives when one wants them, and a streamer that
// panics: the slot comes back.
func TestClientHeaderErrors(t *testing.T) {
	g := newGuard(t, 1, 0)
	i := mustNew(t, g.Warden, wardengrpc.Config{})
	broken := errors.New("broken")
	open := func(streamer grpc.Streamer) grpc.ClientStream {
		return must(i.StreamClient()(t.Context(), &grpc.StreamDesc{ServerStreams: true}, nil, unaryCall, streamer))(t)
	}
	cs := open(func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
		return headless{err: broken}, nil
	})
	if _, err := cs.Header(); !errors.Is(err, broken) {
		t.Error(err)
	}
	await(t, "end", g.ended)
	if err := cs.RecvMsg(nil); !errors.Is(err, broken) {
		t.Error(err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		open(func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
			panic(broken)
		})
	}()
	await(t, "end", g.ended)
	g.wantRunning(t, 0)
	if n := g.ends.Load(); n != 2 {
		t.Errorf("%d ends, want 2", n)
	}
}

// TestTheOnlyAnswerEndsAStream, also one whose context goes on, because it is not gRPC's own.
func TestTheOnlyAnswerEndsAStream(t *testing.T) {
	g := newGuard(t, 1, 0)
	for _, many := range []bool{true, false} {
		cs, err := mustNew(
			t, g.Warden, wardengrpc.Config{},
		).StreamClient()(t.Context(), &grpc.StreamDesc{ServerStreams: many}, nil, unaryCall,
			func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
				return answering{headless{err: io.EOF}, t.Context()}, nil
			})
		if err != nil {
			t.Fatal(err)
		}
		noError(t, cs.RecvMsg(nil))
		if many {
			g.wantRunning(t, 1)
			_, _ = cs.Header()
		}
		g.wantRunning(t, 0)
	}
}

// answering is a stream that always has an answer.
type answering struct {
	headless

	ctx context.Context
}

func (a answering) RecvMsg(any) error        { return nil }
func (a answering) Context() context.Context { return a.ctx }

type headless struct {
	grpc.ClientStream
	err error
}

func (h headless) Header() (metadata.MD, error) { return nil, h.err }
func (h headless) RecvMsg(any) error            { return h.err }
