// SPDX-License-Identifier: Apache-2.0

// The client's side: what is not sent, and how a slot comes back, in each way in which a stream can end.

package wardengrpc_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/wardengrpc"
)

// through is the options of a connection whose calls ask i.
func through(i *wardengrpc.Interceptors) []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(i.UnaryClient()), grpc.WithChainStreamInterceptor(i.StreamClient())}
}

func TestClientDoesNotSendWhatIsRejected(t *testing.T) {
	g := newGuard(t, 1, 0)
	g.Limiter().Close()
	s := &service{}
	client := pb.NewTestServiceClient(dial(t, serve(t, s), through(mustNew(t, g.Warden, wardengrpc.Config{}))...))
	// A client's own metadata is the server's business.
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("warden-priority", "background"))
	for kind, call := range kinds {
		err := call(ctx, client)
		var rejection *warden.Rejection
		if !errors.As(err, &rejection) || rejection.Reason != decision.Closed || rejection.Task.Priority != decision.Normal {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		wantRejected(t, err, codes.Unavailable, "CLOSED")
	}
	if n := s.calls.Load(); n != 0 {
		t.Errorf("%d rejected calls were sent", n)
	}
}

// open is a stream of a client, and what may end it.
type open struct {
	*guard
	pb.TestServiceClient
	cc     *grpc.ClientConn
	ctx    context.Context
	cancel func()
}

// Each way in which a stream can end gives its slot back at once, and not before.
func TestClientStreamEnds(t *testing.T) {
	message := &pb.StreamingOutputCallRequest{}
	fails := func(t *testing.T, err error, want codes.Code) {
		t.Helper()
		if status.Code(err) != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for name, end := range map[string]func(t *testing.T, o open){
		"it has been read to its end": func(t *testing.T, o open) {
			stream := must(o.StreamingOutputCall(o.ctx, message))(t)
			for range 3 {
				must(stream.Recv())(t)
				o.wantRunning(t, 1)
			}
			if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
				t.Errorf("%v, want io.EOF", err)
			}
		},
		"it failed": func(t *testing.T, o open) {
			stream := must(o.FullDuplexCall(o.ctx))(t)
			_ = stream.Send(&pb.StreamingOutputCallRequest{ResponseStatus: &pb.EchoStatus{Code: int32(codes.NotFound)}})
			o.wantRunning(t, 1)
			_, err := stream.Recv()
			fails(t, err, codes.NotFound)
		},
		"its only answer came": func(t *testing.T, o open) {
			stream := must(o.StreamingInputCall(o.ctx))(t)
			noError(t, stream.Send(&pb.StreamingInputCallRequest{}))
			o.wantRunning(t, 1)
			must(stream.CloseAndRecv())(t)
		},
		"nobody reads, and it is canceled": func(t *testing.T, o open) {
			must(o.StreamingOutputCall(o.ctx, message))(t)
			o.wantRunning(t, 1)
			o.cancel()
		},
		"nobody reads, and its deadline comes": func(t *testing.T, o open) {
			deadline := due{o.ctx, make(chan struct{})}
			must(o.FullDuplexCall(deadline))(t)
			o.wantRunning(t, 1)
			close(deadline.come)
		},
		"a message cannot be sent": func(t *testing.T, o open) {
			stream := must(o.FullDuplexCall(o.ctx, grpc.MaxCallSendMsgSize(10)))(t)
			o.wantRunning(t, 1)
			long := &pb.StreamingOutputCallRequest{Payload: &pb.Payload{Body: make([]byte, 100)}}
			fails(t, stream.Send(long), codes.ResourceExhausted)
		},
		"its header fails": func(t *testing.T, o open) {
			stream := must(o.FullDuplexCall(metadata.AppendToOutgoingContext(o.ctx, "reject", "1")))(t)
			// A failure that comes instead of a header is told by RecvMsg alone.
			if md, err := stream.Header(); md != nil || err != nil {
				t.Errorf("header %v, %v", md, err)
			}
			_, err := stream.Recv()
			fails(t, err, codes.PermissionDenied)
		},
		"the connection is closed after a message": func(t *testing.T, o open) {
			stream := must(o.FullDuplexCall(o.ctx))(t)
			_ = stream.Send(message)
			must(stream.Recv())(t)
			o.wantRunning(t, 1)
			o.cc.Close()
		},
		"the connection is closed, and nobody has read": func(t *testing.T, o open) {
			must(o.FullDuplexCall(o.ctx))(t)
			o.wantRunning(t, 1)
			o.cc.Close()
		},
		"it cannot be opened": func(t *testing.T, o open) {
			_, err := o.FullDuplexCall(o.ctx, grpc.CallContentSubtype("nothing"))
			fails(t, err, codes.Internal)
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuard(t, 1, 0)
			cc := dial(t, serve(t, echo()), through(mustNew(t, g.Warden, wardengrpc.Config{}))...)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			end(t, open{g, pb.NewTestServiceClient(cc), cc, ctx, cancel})
			await(t, "end of the slot", g.ended)
			g.wantRunning(t, 0)
			if n := g.ends.Load(); n != 1 {
				t.Errorf("ended %d times", n)
			}
		})
	}
}

// echo answers as it is asked.
func echo() *service {
	return &service{
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

// The stream's context is not asked for before gRPC has stopped to retry.
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
	if err := kinds["stream"](t.Context(), client); err != nil {
		t.Errorf("%v after %d tries", err, s.calls.Load())
	}
	await(t, "end", g.ended)
	if g.starts.Load() != 1 || s.calls.Load() != 3 {
		t.Errorf("%d slots for %d tries, want one for 3", g.starts.Load(), s.calls.Load())
	}
}

// Errors of Header, which only a stream without gRPC behind it gives when one wants them, a streamer that panics, and the only answer
// of a stream whose context goes on: the slot comes back.
func TestClientStreamWithoutGRPC(t *testing.T) {
	g := newGuard(t, 1, 0)
	broken := errors.New("broken")
	opened := func(many bool, open func() grpc.ClientStream) grpc.ClientStream {
		desc := &grpc.StreamDesc{ServerStreams: many}
		streamer := func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
			return open(), nil
		}
		return must(mustNew(t, g.Warden, wardengrpc.Config{}).StreamClient()(t.Context(), desc, nil, unaryCall, streamer))(t)
	}
	cs := opened(true, func() grpc.ClientStream { return headless{err: broken} })
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
		opened(true, func() grpc.ClientStream { panic(broken) })
	}()
	await(t, "end", g.ended)
	for _, many := range []bool{true, false} {
		cs := opened(many, func() grpc.ClientStream { return answering{headless{err: io.EOF}} })
		noError(t, cs.RecvMsg(nil))
		if many {
			g.wantRunning(t, 1)
			_, _ = cs.Header()
		}
		await(t, "end", g.ended)
		g.wantRunning(t, 0)
	}
	if n := g.ends.Load(); n != 4 {
		t.Errorf("%d ends, want 4", n)
	}
}

// answering is a stream that always has an answer.
type answering struct{ headless }

func (answering) RecvMsg(any) error { return nil }

type headless struct {
	grpc.ClientStream
	err error
}

func (h headless) Header() (metadata.MD, error) { return nil, h.err }
func (h headless) RecvMsg(any) error            { return h.err }
