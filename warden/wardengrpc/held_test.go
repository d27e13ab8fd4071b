// SPDX-License-Identifier: Apache-2.0

// How long the server's side holds a slot: until the handler has returned, in whatever way.

package wardengrpc_test

import (
	"context"
	"errors"
	"io"
	"runtime"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/stopbank/stopbank/warden/wardengrpc"
)

// TestServerHoldsUntilTheHandlerReturns: calls of all four kinds, that answer, fail, or panic.
func TestServerHoldsUntilTheHandlerReturns(t *testing.T) {
	for ending, end := range map[string]func() error{
		"returns": func() error { return nil },
		"fails":   func() error { return status.Error(codes.NotFound, "nothing here") },
		"panics":  func() error { panic("on purpose") },
	} {
		want := map[string]codes.Code{"returns": codes.OK, "fails": codes.NotFound, "panics": codes.Internal}[ending]
		entered, finish := make(chan struct{}), make(chan struct{})
		hold := func() error { entered <- struct{}{}; <-finish; return end() }
		s := &service{
			unary: func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
				return &pb.SimpleResponse{}, hold()
			},
			out: func(ss pb.TestService_StreamingOutputCallServer) error {
				return errors.Join(ss.Send(&pb.StreamingOutputCallResponse{}), hold())
			},
			in: func(ss pb.TestService_StreamingInputCallServer) error {
				if _, err := ss.Recv(); err != nil {
					return err
				}
				if err := hold(); err != nil {
					return err
				}
				return ss.SendAndClose(&pb.StreamingInputCallResponse{})
			},
			duplex: func(pb.TestService_FullDuplexCallServer) error { return hold() },
		}
		for kind, call := range map[string]func(context.Context, pb.TestServiceClient) error{
			"unary": func(ctx context.Context, c pb.TestServiceClient) error {
				_, err := c.UnaryCall(ctx, &pb.SimpleRequest{})
				return err
			},
			"server stream": func(ctx context.Context, c pb.TestServiceClient) error {
				stream, err := c.StreamingOutputCall(ctx, &pb.StreamingOutputCallRequest{})
				return drain(stream, err)
			},
			"client stream": func(ctx context.Context, c pb.TestServiceClient) error {
				stream, err := c.StreamingInputCall(ctx)
				if err != nil {
					return err
				}
				if err := stream.Send(&pb.StreamingInputCallRequest{}); err != nil {
					return err
				}
				_, err = stream.CloseAndRecv()
				return err
			},
			"both": func(ctx context.Context, c pb.TestServiceClient) error {
				stream, err := c.FullDuplexCall(ctx)
				return drain(stream, err)
			},
		} {
			t.Run(kind+" "+ending, func(t *testing.T) {
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

// receiver is what streams with many answers have.
type receiver[T any] interface{ Recv() (T, error) }

func drain[T any](s receiver[T], err error) error {
	for err == nil {
		_, err = s.Recv()
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
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
	_, err := client.UnaryCall(t.Context(), &pb.SimpleRequest{})
	wantRejected(t, err, codes.ResourceExhausted, "PRESSURE_HIGH")
	cancel()
	await(t, "end", g.ended)
	g.wantRunning(t, 0)
}

// TestServerGoexit: a handler that ends its goroutine has ended its call. Without a connection: gRPC itself has no answer
// to that.
func TestServerGoexit(t *testing.T) {
	g := newGuard(t, 2, 0)
	i := mustNew(t, g.Warden, wardengrpc.Config{})
	go func() {
		_, _ = i.UnaryServer()(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: unaryCall}, func(
			context.Context, any,
		) (any, error) {
			runtime.Goexit()
			return nil, nil
		})
	}()
	await(t, "end", g.ended)
	go func() {
		_ = i.StreamServer()(nil, bare{
			ctx: t.Context(),
		}, &grpc.StreamServerInfo{FullMethod: unaryCall}, func(any, grpc.ServerStream) error {
			runtime.Goexit()
			return nil
		})
	}()
	await(t, "end", g.ended)
	g.wantRunning(t, 0)
}

// bare is a server's stream without a connection.
type bare struct {
	grpc.ServerStream
	ctx context.Context
}

func (b bare) Context() context.Context { return b.ctx }
