// SPDX-License-Identifier: Apache-2.0

// The client's side: what is not sent, and what is told of it.

package wardengrpc_test

import (
	"context"
	"errors"
	"testing"

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
	_, unary := client.UnaryCall(ctx, &pb.SimpleRequest{})
	_, out := client.StreamingOutputCall(ctx, &pb.StreamingOutputCallRequest{})
	_, in := client.StreamingInputCall(ctx)
	_, both := client.FullDuplexCall(ctx)
	for kind, err := range map[string]error{"unary": unary, "server stream": out, "client stream": in, "both": both} {
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

func TestClientUnary(t *testing.T) {
	g := newGuard(t, 1, 0)
	entered := make(chan struct{})
	s := &service{unary: func(ctx context.Context, r *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		entered <- struct{}{}
		if r.GetFillUsername() {
			<-ctx.Done()
		}
		return nil, status.Error(codes.NotFound, "nothing here")
	}}
	client := pb.NewTestServiceClient(dial(t, serve(t, s), through(mustNew(t, g.Warden, wardengrpc.Config{}))...))
	for _, wait := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		answer := make(chan error, 1)
		go func() {
			_, err := client.UnaryCall(ctx, &pb.SimpleRequest{FillUsername: wait})
			answer <- err
		}()
		await(t, "handler", entered)
		want := codes.NotFound
		if wait {
			g.wantRunning(t, 1)
			want = codes.Canceled
			cancel()
		}
		if err := await(t, "answer", answer); status.Code(err) != want {
			t.Errorf("%v, want %s", err, want)
		}
		g.wantRunning(t, 0)
		cancel()
	}
	if n := g.ends.Load(); n != 2 {
		t.Errorf("%d ends, want 2", n)
	}
}
