// SPDX-License-Identifier: Apache-2.0

// The server's side: who gets in, with which priority and deadline, and what the others are told.

package wardengrpc_test

import (
	"context"
	"errors"
	"io"
	"regexp"
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
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/timelimit"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/retry"
	"github.com/stopbank/stopbank/warden/wardengrpc"
)

const unaryCall = "/grpc.testing.TestService/UnaryCall"

func TestServerRejectsWhatHasNoSlot(t *testing.T) {
	g := newGuard(t, 1, 0)
	s := &service{}
	client := served(t, s, mustNew(t, g.Warden, wardengrpc.Config{RetryAfter: 8 * time.Second}))
	g.Limiter().Apply(decision.ControlDecision{Seq: 9, TargetConcurrency: 0, ShedProbability: 1})
	err := kinds["unary"](t.Context(), client)
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
	// etcd's client opens another stream then
	wantRejected(t, kinds["stream"](t.Context(), client), codes.Unavailable, "PRESSURE_HIGH")
	g.Limiter().Close()
	wantRejected(t, kinds["unary"](t.Context(), client), codes.Unavailable, "CLOSED")
	if n := s.calls.Load(); n != 0 {
		t.Errorf("%d rejected calls reached their handlers", n)
	}
}

// One id for one rejected call: what the client is told is what the limiter and the compartment tell. Package requestid tests the rest.
func TestOneIDOfARejectedCall(t *testing.T) {
	const trace = "0af7651916cd43dd8448eb211c80319c"
	g, c := newGuard(t, 0, 0), newCompartments(t, bulkhead.CompartmentConfig{Guaranteed: 1})
	acquire(t, c.Compartment("unary"))
	own := ""
	task := func(context.Context, string) warden.Task { return warden.Task{ID: own} }
	ofWarden := served(t, &service{}, mustNew(t, g.Warden, wardengrpc.Config{Task: task}))
	ofCompartment := served(t, &service{}, mustNew(t, nil, wardengrpc.Config{Compartment: c.of}))
	for _, x := range []struct{ own, given, want string }{
		{"", "", `\A[0-9a-f]{16}\z`}, {"", "7f9c", "7f9c"}, {"", `a"b`, trace}, {"own", "7f9c", "own"},
	} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "x-request-id", x.given)
		if x.given != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", "00-"+trace+"-b7ad6b7169203331-01")
		}
		same := func(err error, inside string) {
			t.Helper()
			info, _ := details(t, err)
			if id := info.GetMetadata()["request_id"]; id != inside || !regexp.MustCompile(x.want).MatchString(id) {
				t.Errorf("%+v: told %q, inside %q", x, id, inside)
			}
		}
		own = x.own
		same(kinds["unary"](ctx, ofWarden), g.tasks.Load().ID)
		if own == "" { // a compartment is asked for no task
			same(kinds["unary"](ctx, ofCompartment), (<-c.ended).Task.ID)
		}
	}
}

// Deadlines and cancels of a call count while it waits.
func TestServerEndsWaitingWithTheCall(t *testing.T) {
	g := newGuard(t, 1, 10)
	entered, finish := make(chan struct{}), make(chan struct{})
	s := serving(func(context.Context) error { close(entered); <-finish; return nil })
	soon := func(ctx context.Context, method string) warden.Task {
		task := warden.Task{Name: method}
		if metadata.ValueFromIncomingContext(ctx, "soon") != nil {
			task.Deadline = time.Now().Add(time.Millisecond)
		}
		return task
	}
	client := served(t, s, mustNew(t, g.Warden, wardengrpc.Config{Task: soon}))
	call := func(ctx context.Context) <-chan error {
		ended := make(chan error, 1)
		go func() { ended <- kinds["unary"](ctx, client) }()
		return ended
	}
	first := call(t.Context())
	await(t, "handler", entered)

	err := kinds["unary"](metadata.AppendToOutgoingContext(t.Context(), "soon", "1"), client)
	wantRejected(t, err, codes.DeadlineExceeded, "DEADLINE_EXCEEDED")

	ctx, cancel := context.WithCancel(t.Context())
	second := call(ctx)
	until(t, "a call that waits", func() bool { return g.Limiter().Stats().Queued == 1 })
	cancel()
	if err := await(t, "end of a canceled call", second); status.Code(err) != codes.Canceled {
		t.Errorf("%v, want Canceled", err)
	}
	until(t, "end of the wait", func() bool { return g.Limiter().Stats().Canceled == 1 })
	close(finish)
	noError(t, await(t, "answer", first))
	await(t, "end of the first call", g.ended)
	if st := g.Limiter().Stats(); st.Running != 0 || st.Queued != 0 || st.Rejected != 1 || s.calls.Load() != 1 {
		t.Errorf("%+v after %d calls", st, s.calls.Load())
	}
}

// What is exempt answers with no slot at all, over gRPC's own implementations.
func TestExemptServicesAnswerAlways(t *testing.T) {
	g := newGuard(t, 1, 0)
	g.Limiter().Close()
	server := grpc.NewServer(under(mustNew(t, g.Warden, wardengrpc.Config{}))...)
	pb.RegisterTestServiceServer(server, &service{})
	healthpb.RegisterHealthServer(server, health.NewServer())
	reflection.Register(server)
	cc := dial(t, start(t, server))
	must(healthpb.NewHealthClient(cc).Check(t.Context(), &healthpb.HealthCheckRequest{}))(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream := must(reflectionpb.NewServerReflectionClient(cc).ServerReflectionInfo(ctx))(t)
	list := &reflectionpb.ServerReflectionRequest_ListServices{}
	noError(t, stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: list}))
	must(stream.Recv())(t)
	wantRejected(t, kinds["unary"](t.Context(), pb.NewTestServiceClient(cc)), codes.Unavailable, "CLOSED")
	if n := g.Limiter().Stats().Rejected; n != 1 {
		t.Errorf("%d rejected, want 1", n)
	}
	for method, want := range map[string]bool{
		"/grpc.health.v1.Health/Watch": true, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": true,
		"/my.Service/UnaryCall": false, "/grpc.health.v1.HealthX/Check": false, "/my.grpc.health.v1.Health/Check": false, "": false,
	} {
		if wardengrpc.HealthOrReflection(method) != want {
			t.Errorf("%s: %v", method, !want)
		}
	}
}

// What a server believes of a client's metadata: the shortest time and the lowest priority from anybody, a higher priority from whom it
// trusts. What the values mean, package wire tests.
func TestWhatMetadataSays(t *testing.T) {
	g := newGuard(t, 1, 0)
	var left time.Duration
	var bounded bool
	s := serving(func(ctx context.Context) error {
		due, _, ok := timelimit.Due(ctx)
		left, bounded = time.Until(due), ok
		return nil
	})
	client := served(t, s, mustNew(t, g.Warden, wardengrpc.Config{
		Task: func(_ context.Context, method string) warden.Task {
			return warden.Task{Name: strings.Repeat(method, 100), Priority: decision.High}
		},
		Trusted: func(ctx context.Context, _ string) bool {
			return metadata.ValueFromIncomingContext(ctx, "trusted") != nil
		},
	}))
	for _, c := range []struct {
		md            []string
		own, want     time.Duration
		plain, friend decision.Priority
	}{
		{nil, 0, 0, decision.High, decision.High},
		{nil, time.Minute, time.Minute, decision.High, decision.High},
		{[]string{"x-envoy-expected-rq-timeout-ms", "30000"}, time.Minute, 30 * time.Second, decision.High, decision.High},
		{[]string{"warden-timeout", "20000", "priority", "u=7"}, 0, 20 * time.Second, decision.Background, decision.Background},
		{[]string{"warden-timeout", "90000"}, time.Minute, time.Minute, decision.High, decision.High},
		{[]string{"warden-priority", "normal"}, 0, 0, decision.Normal, decision.Normal},
		{[]string{"warden-priority", "critical"}, 0, 0, decision.High, decision.Critical},
		{[]string{"warden-timeout", "1", "warden-timeout", "1"}, 0, 0, decision.High, decision.High},
		{[]string{"warden-priority", "-1", "warden-priority", "-1"}, 0, 0, decision.High, decision.High},
		{[]string{"warden-timeout", "-1", "warden-priority", "-129"}, 0, 0, decision.High, decision.High},
	} {
		for _, trusted := range []bool{false, true} {
			ctx, cancel := metadata.AppendToOutgoingContext(t.Context(), c.md...), func() {}
			want := c.plain
			if trusted {
				ctx, want = metadata.AppendToOutgoingContext(ctx, "trusted", "1"), c.friend
			}
			if c.own > 0 {
				ctx, cancel = context.WithTimeout(ctx, c.own)
			}
			noError(t, kinds["unary"](ctx, client))
			cancel()
			await(t, "end", g.ended)
			if task := g.tasks.Load(); task.Priority != want || len(task.Name) != 256 {
				t.Errorf("%v, trusted %t: %s, want %s; a name of %d bytes", c.md, trusted, task.Priority, want, len(task.Name))
			}
			if bounded != (c.want > 0) || left > c.want || bounded && left < c.want-20*time.Second {
				t.Errorf("%v: %v are left of %v", c.md, left, c.want)
			}
		}
	}
}

// What a handler got from a limiter of its own is told in the same way; any other error is left alone.
func TestHandlersErrors(t *testing.T) {
	inner := must(limiter.New(limiter.Config{}))(t)
	inner.Close()
	_, rejection := inner.TryAcquire(limiter.Task{})
	var answer error
	i := mustNew(t, newGuard(t, 10, 0).Warden, wardengrpc.Config{})
	client := served(t, serving(func(context.Context) error { return answer }), i)
	for kind, call := range kinds {
		answer = errors.Join(errors.New("no price"), rejection)
		err := call(t.Context(), client)
		wantRejected(t, err, codes.Unavailable, "CLOSED")
		if info, _ := details(t, err); info.GetMetadata()["processed"] != "" {
			t.Errorf("R3: %v, though a handler has begun", info) // it may not be called again
		}
		for err, want := range map[error]codes.Code{
			errors.Join(rejection, status.Error(codes.Aborted, "mine")): codes.Aborted, io.ErrUnexpectedEOF: codes.Unknown,
		} {
			answer = err
			if got := call(t.Context(), client); status.Code(got) != want || len(status.Convert(got).Details()) != 0 {
				t.Errorf("%s: %v, want %s", kind, got, want)
			}
		}
	}
	if i.Convert(nil) != nil {
		t.Error("no error became one")
	}
}

// Each rejection is told once, with the cause; a panic of who is told changes nothing.
func TestRejectedIsTold(t *testing.T) {
	g := newGuard(t, 1, 0)
	g.Limiter().Close()
	told := make(chan error, 10)
	client := served(t, &service{}, mustNew(t, g.Warden, wardengrpc.Config{Rejected: func(_ context.Context, method string, err error) {
		if method != unaryCall {
			t.Errorf("method %q", method)
		}
		told <- err
		panic("on purpose")
	}}))
	wantRejected(t, kinds["unary"](t.Context(), client), codes.Unavailable, "CLOSED")
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

func TestInvalid(t *testing.T) {
	w := newGuard(t, 1, 0).Warden
	check := func(field string, made bool, err error) {
		t.Helper()
		var invalid *warden.InvalidError
		if made || !errors.As(err, &invalid) || invalid.Field != "wardengrpc."+field {
			t.Errorf("%v, want one about %s", err, field)
		}
	}
	bad := func(field string, w *warden.Warden, cfg wardengrpc.Config) {
		t.Helper()
		i, err := wardengrpc.New(w, cfg)
		check(field, i != nil, err)
	}
	nowhere := func(context.Context, string) *bulkhead.Compartment { return nil }
	trusted := func(context.Context, string) bool { return true }
	bad("New: the warden", nil, wardengrpc.Config{})
	bad("Config.RetryAfter", w, wardengrpc.Config{RetryAfter: 30})
	bad("Config.LoadReports", w, wardengrpc.Config{LoadReports: true}) // which nobody would get
	bad("Config.LoadReports", nil, wardengrpc.Config{LoadReports: true, Trusted: trusted, Compartment: nowhere})
	r, err := wardengrpc.NewRetry(nil, wardengrpc.RetryConfig{})
	check("NewRetry: the caller", r != nil, err)
	r, err = wardengrpc.NewRetry(&retry.Caller{}, wardengrpc.RetryConfig{AttemptTimeout: 500})
	check("RetryConfig.AttemptTimeout", r != nil, err)
	client := pb.NewTestServiceClient(dial(t, "127.0.0.1:1", again(new(wardengrpc.Retry))...))
	check("Retry", false, kinds["unary"](t.Context(), client))
	_, err = new(wardengrpc.Interceptors).UnaryServer()(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: unaryCall}, nil)
	wantRejected(t, err, codes.Internal, "INVALID")
}
