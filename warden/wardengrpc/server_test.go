// SPDX-License-Identifier: Apache-2.0

// The server's side: who gets in, with which priority, and what the others are told.

package wardengrpc_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/wardengrpc"
)

const unaryCall = "/grpc.testing.TestService/UnaryCall"

func TestServerRejectsWhatHasNoSlot(t *testing.T) {
	g := newGuard(t, 1, 0)
	s := &service{}
	client := served(t, s, mustNew(t, g.Warden, wardengrpc.Config{RetryAfter: 8 * time.Second}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	g.Limiter().Apply(decision.ControlDecision{Seq: 9, TargetConcurrency: 0, ShedProbability: 1})
	_, err := client.UnaryCall(ctx, &pb.SimpleRequest{})
	wantRejected(t, err, codes.ResourceExhausted, "PRESSURE_HIGH")
	info, retry := details(t, err)
	if d := retry.GetRetryDelay().AsDuration(); d < 8*time.Second || d >= 16*time.Second {
		t.Errorf("retry after %s, want 8s and up to as much again", d)
	}
	if m := info.GetMetadata(); len(m) != 3 || m["decision"] != "9" || m["processed"] != "false" || m["request_id"] == "" ||
		m["request_id"] != g.tasks.Load().ID {
		t.Errorf("metadata %v", m)
	}
	if msg := status.Convert(err).Message(); msg != "warden: pressure_high" {
		t.Errorf("message %q", msg)
	}
	stream := must(client.FullDuplexCall(ctx))(t)
	_, err = stream.Recv()
	wantRejected(t, err, codes.ResourceExhausted, "PRESSURE_HIGH")
	if n := s.calls.Load(); n != 0 {
		t.Errorf("%d rejected calls reached their handlers", n)
	}

	g.Limiter().Close()
	_, err = client.UnaryCall(ctx, &pb.SimpleRequest{})
	wantRejected(t, err, codes.Unavailable, "CLOSED")
}

// TestServerEndsWaitingWithTheCall: deadlines and cancels of the call count while it waits.
func TestServerEndsWaitingWithTheCall(t *testing.T) {
	g := newGuard(t, 1, 10)
	entered, finish := make(chan struct{}), make(chan struct{})
	s := &service{unary: func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		close(entered)
		<-finish
		return &pb.SimpleResponse{}, nil
	}}
	soon := func(ctx context.Context, method string) warden.Task {
		task := warden.Task{Name: method}
		if metadata.ValueFromIncomingContext(ctx, "soon") != nil {
			task.Deadline = time.Now().Add(time.Millisecond)
		}
		return task
	}
	client := served(t, s, mustNew(t, g.Warden, wardengrpc.Config{Task: soon}))
	first := make(chan error, 1)
	go func() {
		_, err := client.UnaryCall(t.Context(), &pb.SimpleRequest{})
		first <- err
	}()
	await(t, "handler", entered)

	_, err := client.UnaryCall(metadata.AppendToOutgoingContext(t.Context(), "soon", "1"), &pb.SimpleRequest{})
	wantRejected(t, err, codes.DeadlineExceeded, "DEADLINE_EXCEEDED")

	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // long enough to reach the queue
	defer cancel()
	if _, err = client.UnaryCall(ctx, &pb.SimpleRequest{}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("%v, want DeadlineExceeded", err)
	}
	// To the server it may end by the deadline or, if the client's reset is faster, as canceled.
	gone := func() uint64 { s := g.Limiter().Stats(); return s.Rejected + s.Canceled }
	until(t, "end of the second wait", func() bool { return gone() == 2 })

	ctx, cancel = context.WithCancel(t.Context())
	second := make(chan error, 1)
	go func() {
		_, err := client.UnaryCall(ctx, &pb.SimpleRequest{})
		second <- err
	}()
	until(t, "a call that waits", func() bool { return g.Limiter().Stats().Queued == 1 })
	cancel()
	if err := await(t, "end of a canceled call", second); status.Code(err) != codes.Canceled {
		t.Errorf("%v, want Canceled", err)
	}
	until(t, "end of the third wait", func() bool { return gone() == 3 })
	close(finish)
	if err := await(t, "answer", first); err != nil {
		t.Error(err)
	}
	await(t, "end of the first call", g.ended)
	if st := g.Limiter().Stats(); st.Running != 0 || st.Queued != 0 || st.Rejected+st.Canceled != 3 || s.calls.Load() != 1 {
		t.Errorf("%+v after %d calls", st, s.calls.Load())
	}
}

// until waits for something that has no event; it fails the test if it does not come.
func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !is(); {
		if time.Now().After(end) {
			t.Fatalf("no %s", what)
		}
		time.Sleep(time.Millisecond) // nobody tells of a call that begins to wait
	}
}

// TestExemptServicesAnswerAlways: with no slot at all, over gRPC's own implementations.
func TestExemptServicesAnswerAlways(t *testing.T) {
	g := newGuard(t, 1, 0)
	g.Limiter().Close()
	i := mustNew(t, g.Warden, wardengrpc.Config{})
	server := grpc.NewServer(under(i)...)
	pb.RegisterTestServiceServer(server, &service{})
	healthpb.RegisterHealthServer(server, health.NewServer())
	reflection.Register(server)
	cc := dial(t, start(t, server))
	if r, err := healthpb.NewHealthClient(cc).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil ||
		r.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health: %v, %v", r, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream := must(reflectionpb.NewServerReflectionClient(cc).ServerReflectionInfo(ctx))(t)
	noError(t, stream.Send(
		&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}},
	))
	if r, err := stream.Recv(); err != nil || len(r.GetListServicesResponse().GetService()) == 0 {
		t.Errorf("reflection: %v, %v", r, err)
	}
	_, err := pb.NewTestServiceClient(cc).UnaryCall(t.Context(), &pb.SimpleRequest{})
	wantRejected(t, err, codes.Unavailable, "CLOSED")
	if n := g.Limiter().Stats().Rejected; n != 1 {
		t.Errorf("%d rejected, want 1", n)
	}

}

// TestPriorities: a client may lower what Task says; only one that is trusted may raise it.
func TestPriorities(t *testing.T) {
	g := newGuard(t, 1, 0)
	cfg := wardengrpc.Config{
		Task: func(_ context.Context, method string) warden.Task {
			return warden.Task{Name: strings.Repeat(method, 100), Priority: decision.High}
		},
		Trusted: func(ctx context.Context, _ string) bool {
			return metadata.ValueFromIncomingContext(ctx, "trusted") != nil
		},
	}
	client := served(t, &service{}, mustNew(t, g.Warden, cfg))
	for _, c := range []struct {
		said         []string
		plain, trust decision.Priority
	}{
		{nil, decision.High, decision.High},
		{[]string{"background"}, decision.Background, decision.Background},
		{[]string{"normal"}, decision.Normal, decision.Normal},
		{[]string{"-128"}, -128, -128},
		{[]string{"critical"}, decision.High, decision.Critical},
		{[]string{"100"}, decision.High, 100},
		{[]string{"128"}, decision.High, decision.High},
		{[]string{"+1"}, decision.High, decision.High},
		{[]string{""}, decision.High, decision.High},
		{[]string{strings.Repeat("0", 5000)}, decision.High, decision.High},
		{[]string{"background", "critical"}, decision.High, decision.High},
	} {
		for _, trusted := range []bool{false, true} {
			md := metadata.MD{}
			md.Append("warden-priority", c.said...)
			want := c.plain
			if trusted {
				md.Set("trusted", "1")
				want = c.trust
			}
			must(client.UnaryCall(metadata.NewOutgoingContext(t.Context(), md), &pb.SimpleRequest{}))(t)
			await(t, "end", g.ended)
			if task := g.tasks.Load(); task.Priority != want || len(task.Name) != 256 {
				t.Errorf(
					"%.20q, trusted: %v: priority %s, want %s; a name of %d bytes",
					c.said, trusted, task.Priority, want, len(task.Name),
				)
			}
		}
	}
}

// TestHandlersErrors: what a handler got from a limiter of its own is told in the same way; any other error is left alone.
func TestHandlersErrors(t *testing.T) {
	inner, err := limiter.New(limiter.Config{})
	if err != nil {
		t.Fatal(err)
	}
	inner.Close()
	var answer error
	s := &service{
		unary: func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) { return nil, answer },
		out:   func(pb.TestService_StreamingOutputCallServer) error { return answer },
	}
	i := mustNew(t, newGuard(t, 10, 0).Warden, wardengrpc.Config{})
	client := served(t, s, i)
	both := func(check func(error)) {
		t.Helper()
		_, err := client.UnaryCall(t.Context(), &pb.SimpleRequest{})
		check(err)
		stream, err := client.StreamingOutputCall(t.Context(), &pb.StreamingOutputCallRequest{})
		check(drain(stream, err))
	}
	_, rejection := inner.TryAcquire(limiter.Task{})
	answer = errors.Join(errors.New("no price"), rejection)
	both(func(err error) { wantRejected(t, err, codes.Unavailable, "CLOSED") })
	answer = errors.Join(rejection, status.Error(codes.Aborted, "mine"))
	both(func(err error) {
		if status.Code(err) != codes.Aborted {
			t.Errorf("%v, want Aborted", err)
		}
	})
	answer = io.ErrUnexpectedEOF
	both(func(err error) {
		if status.Code(err) != codes.Unknown || len(status.Convert(err).Details()) != 0 {
			t.Errorf("%v, want Unknown", err)
		}
	})
	if i.Convert(nil) != nil {
		t.Error("no error became one")
	}
}

// TestRejectedIsTold: each rejection once, with the cause; a panic of who is told changes nothing.
func TestRejectedIsTold(t *testing.T) {
	g := newGuard(t, 1, 0)
	g.Limiter().Close()
	told := make(chan error, 10)
	client := served(t, &service{}, mustNew(t, g.Warden, wardengrpc.Config{Rejected: func(
		_ context.Context, method string, err error,
	) {
		if method != unaryCall {
			t.Errorf("method %q", method)
		}
		told <- err
		panic("on purpose")
	}}))
	_, err := client.UnaryCall(t.Context(), &pb.SimpleRequest{})
	wantRejected(t, err, codes.Unavailable, "CLOSED")
	why := await(t, "word", told)
	var rejection *warden.Rejection
	if !errors.Is(why, warden.ErrRejected) || !errors.As(why, &rejection) || rejection.Reason != decision.Closed ||
		status.Code(why) != codes.Unavailable {
		t.Errorf("told %v", why)
	}
	if !strings.HasPrefix(why.Error(), `wardengrpc: Unavailable: limiter: "warden": rejected: closed`) || len(told) != 0 {
		t.Errorf("%q, and %d more", why, len(told))
	}
}

func TestNewSaysWhatIsWrong(t *testing.T) {
	for field, try := range map[string]func() (*wardengrpc.Interceptors, error){
		"wardengrpc.New: the warden": func() (*wardengrpc.Interceptors, error) {
			return wardengrpc.New(nil, wardengrpc.Config{})
		},
		"wardengrpc.Config.RetryAfter": func() (*wardengrpc.Interceptors, error) {
			return wardengrpc.New(newGuard(t, 1, 0).Warden, wardengrpc.Config{RetryAfter: 30})
		},
	} {
		i, err := try()
		var invalid *warden.InvalidError
		if i != nil || !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%v, want one about %s", err, field)
		}
	}
	_, err := new(wardengrpc.Interceptors).UnaryServer()(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: unaryCall}, nil)
	wantRejected(t, err, codes.Internal, "INVALID")
}
