// SPDX-License-Identifier: Apache-2.0

// Deadline and priority on their way through several services, and calls that meet themselves.

package wardengrpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/timelimit"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/retry"
	"github.com/stopbank/stopbank/warden/wardengrpc"
)

// A service passes on what it was told, over real connections and without any configuration, of calls and of streams.
func TestTwoServices(t *testing.T) {
	const working = 10 * time.Millisecond
	for kind, call := range kinds {
		var left []time.Duration // at each arrival; gRPC rounds that up, to a microsecond here
		arrived := func(ctx context.Context) {
			due, _ := ctx.Deadline() // which says a second more, since its client is not trusted
			left = append(left, time.Until(due)-time.Second)
			if p := warden.PriorityFrom(ctx); p != decision.Background {
				t.Errorf("%s: priority %v at hop %d", kind, p, len(left))
			}
		}
		hop := func(s *service) pb.TestServiceClient {
			addr := serve(t, s, under(mustNew(t, newGuard(t, 1, 0).Warden, wardengrpc.Config{}))...)
			return pb.NewTestServiceClient(dial(t, addr, through(mustNew(t, newGuard(t, 1, 0).Warden, wardengrpc.Config{}))...))
		}
		last := hop(serving(func(ctx context.Context) error { arrived(ctx); return nil }))
		first := hop(serving(func(ctx context.Context) error {
			arrived(ctx)
			time.Sleep(working) // time that passes, of which none must be left at the next hop
			return call(ctx, last)
		}))
		ctx, cancel := context.WithTimeout(warden.WithPriority(t.Context(), decision.Background), time.Minute)
		noError(t, call(ctx, first))
		cancel()
		if len(left) != 2 || left[0] <= 0 || left[0] > time.Minute || left[1] <= 0 || left[1] > left[0]-working+time.Millisecond {
			t.Errorf("%s: %v are left", kind, left)
		}
	}
}

// What a proxy passes on must not have its word for it, and a call that says nothing leaves the other side its own opinion.
func TestOutgoingPriority(t *testing.T) {
	for _, c := range []struct {
		there    []string
		own, ctx decision.Priority
		want     string
	}{
		{nil, 0, 0, ""}, {nil, 0, decision.High, "high"}, {nil, decision.Critical, decision.High, "critical"}, {nil, -5, 0, "-5"},
		{[]string{"critical"}, 0, 0, ""}, {[]string{"critical", "critical"}, 0, decision.Background, "background"},
	} {
		i := mustNew(t, newGuard(t, 1, 0).Warden, wardengrpc.Config{Task: func(context.Context, string) warden.Task {
			return warden.Task{Priority: c.own}
		}})
		ctx := warden.WithPriority(t.Context(), c.ctx)
		if c.there != nil {
			ctx = metadata.NewOutgoingContext(ctx, metadata.MD{"warden-priority": c.there, "other": {"x"}})
		}
		before, _ := metadata.FromOutgoingContext(ctx)
		err := i.UnaryClient()(ctx, unaryCall, nil, nil, nil, func(
			ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption,
		) error {
			md, _ := metadata.FromOutgoingContext(ctx)
			if got := md.Get("warden-priority"); strings.Join(got, ",") != c.want || c.there != nil && md.Get("other") == nil {
				t.Errorf("%+v: sent %v", c, md)
			}
			return nil
		})
		if after, _ := metadata.FromOutgoingContext(ctx); err != nil ||
			len(after["warden-priority"]) != len(before["warden-priority"]) {
			t.Errorf("%v, the caller's metadata became %v", err, after)
		}
	}
}

// A warden that a server shares with its outbound calls rejects at once; interceptors that are there twice count once.
func TestReentry(t *testing.T) {
	g := newGuard(t, 2, 10)
	c := newCompartments(t, bulkhead.CompartmentConfig{Guaranteed: 1})
	behind := &service{}
	for kind, call := range kinds {
		i := mustNew(t, g.Warden, wardengrpc.Config{})
		outbound := pb.NewTestServiceClient(dial(t, serve(t, behind), through(i)...))
		s := serving(func(ctx context.Context) error {
			if n := g.Limiter().Stats().Running; n != 1 {
				t.Errorf("%s: %d slots for one call", kind, n)
			}
			err := call(ctx, outbound)
			var reentry *decision.ReentryError
			if !errors.As(err, &reentry) || !errors.Is(err, warden.ErrReentry) {
				t.Errorf("%s: inside: %v", kind, err)
			}
			return err
		})
		twice := append(under(mustNew(t, g.Warden, wardengrpc.Config{})), under(i)...)
		wantRejected(t, call(t.Context(), pb.NewTestServiceClient(dial(t, serve(t, s, twice...)))), codes.Internal, "REENTRY")
		await(t, "end", g.ended)

		inside := mustNew(t, nil, wardengrpc.Config{Compartment: c.of})
		twice = append(under(mustNew(t, nil, wardengrpc.Config{Compartment: c.of})), under(inside)...)
		client := pb.NewTestServiceClient(dial(t, serve(t, serving(func(context.Context) error { return nil }), twice...)))
		if err := call(t.Context(), client); err != nil {
			t.Errorf("%s: in a compartment: %v", kind, err)
		}
		await(t, "end", c.ended)
	}
	if st := g.Limiter().Stats(); st.Submitted != 2 || st.Running != 0 || st.Queued != 0 || behind.calls.Load() != 0 {
		t.Errorf("%+v, %d calls sent", st, behind.calls.Load())
	}
}

// trusting is Config.Trusted for clients of one kind.
func trusting(all bool) func(context.Context, string) bool {
	return func(context.Context, string) bool { return all }
}

// A stranger who has no time must not open the breaker of what is slower than he is.
func TestImpatienceOpensNoBreaker(t *testing.T) {
	for _, trusted := range []bool{false, true} {
		for _, says := range []string{"", "20"} {
			b := &breaker{}
			c := newCompartments(t, bulkhead.CompartmentConfig{Guaranteed: 1, Breaker: b})
			s := serving(func(ctx context.Context) error {
				<-ctx.Done()
				return status.FromContextError(context.DeadlineExceeded).Err() // as what it has asked says
			})
			client := served(t, s, mustNew(t, nil, wardengrpc.Config{Compartment: c.of, Trusted: trusting(trusted)}))
			ctx, cancel := metadata.AppendToOutgoingContext(t.Context(), "warden-timeout", says), func() {}
			if says == "" {
				ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
			}
			if err := kinds["unary"](ctx, client); status.Code(err) != codes.DeadlineExceeded {
				t.Error(err)
			}
			cancel()
			if s.calls.Load() == 0 {
				continue // it was too late for the call to arrive
			}
			await(t, "end", c.ended)
			if err := b.only(t); !trusted && !bulkhead.IsExcluded(err) || trusted && says != "" && bulkhead.IsExcluded(err) {
				t.Errorf("H14: trusted %v, %q: the breaker was told %v", trusted, says, err)
			}
		}
	}
}

// A busy server rejects at once what a stranger gives too little time: no breaker counts it, and no retry budget.
func TestTooLittleTimeOfAStrangers(t *testing.T) {
	d := decision.ControlDecision{
		Seq: 1, TargetConcurrency: 1, Needs: map[string]time.Duration{"/grpc.testing.TestService/UnaryCall": time.Hour},
	}
	busy := must(warden.New(warden.Config{
		Controller: ruling(d), Interval: 10 * time.Second,
		Limiter: limiter.Config{Initial: d, MaxQueue: 10, Rand: func() float64 { return 0 }}, // no trial
	}))(t)
	must(busy.TryAcquire(warden.Task{}))(t)
	addr := serve(t, &service{}, under(mustNew(t, busy, wardengrpc.Config{}))...)
	for _, trusted := range []bool{false, true} {
		b := &breaker{}
		c := newCompartments(t, bulkhead.CompartmentConfig{Guaranteed: 1, Breaker: b})
		around := newCompartments(t, bulkhead.CompartmentConfig{Guaranteed: 1, Breaker: b}).Compartment("unary")
		r, caller := newRetry(t, retry.Config{Attempts: 1}, wardengrpc.RetryConfig{})
		again := r.UnaryClient()
		breaks := mustNew(t, nil, wardengrpc.Config{Compartment: c.of}).UnaryClient()
		another := mustNew(t, newGuard(t, 1, 0).Warden, wardengrpc.Config{}).UnaryClient()
		front := newGuard(t, 1, 0)
		for name, chain := range map[string][]grpc.UnaryClientInterceptor{
			"one": {breaks}, "two": {another, breaks}, "a retry in front": {again, breaks}, "a retry alone": {again},
		} {
			next := pb.NewTestServiceClient(dial(t, addr, grpc.WithChainUnaryInterceptor(chain...)))
			var rejected metadata.MD
			ask := func(ctx context.Context) error { return kinds["unary"](ctx, next, grpc.Trailer(&rejected)) }
			inside := ask
			if name == "a retry alone" {
				inside = func(ctx context.Context) error { return within(ctx, around, ask) }
			}
			s := serving(func(ctx context.Context) error { return status.Error(codes.Internal, inside(ctx).Error()) })
			client := served(t, s, mustNew(t, front.Warden, wardengrpc.Config{Trusted: trusting(trusted)}))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if err := kinds["unary"](ctx, client); status.Code(err) != codes.Internal {
				t.Errorf("%s: %v", name, err)
			}
			cancel()
			if err := b.only(t); bulkhead.IsExcluded(err) == trusted {
				t.Errorf("H14: %s, trusted %v: the breaker was told %v", name, trusted, err)
			}
			if diff := cmp.Diff([]string{"deadline_exceeded"}, rejected["warden-rejected"]); diff != "" {
				t.Errorf("H14: %s: the trailer: %s", name, diff)
			}
		}
		if n := caller.Stats().Rejected; (n == 0) == trusted {
			t.Errorf("H14: trusted %v: the retry budget was told of %d rejections", trusted, n)
		}
		if n := front.Limiter().Stats().Failed; (n == 0) == trusted {
			t.Errorf("H31: trusted %v: %d failed", trusted, n)
		}
	}
	if n := busy.Limiter().Stats().RejectedFor(decision.DeadlineExceeded); n != 8 {
		t.Errorf("%d calls were rejected for want of time", n)
	}
}

// A stranger's time is his behind a server that a service trusts, and a trusted client's is not.
func TestNobodyVouchesForAStrangersTime(t *testing.T) {
	everybody := func(context.Context, string) bool { return true }
	for _, trusted := range []bool{false, true} {
		his := make(chan bool, 1)
		asked := &service{unary: func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
			_, strangers, _ := timelimit.Due(ctx)
			his <- strangers
			return &pb.SimpleResponse{}, nil
		}}
		inside := mustNew(t, newGuard(t, 1, 0).Warden, wardengrpc.Config{Trusted: everybody})
		outgoing := mustNew(t, newGuard(t, 1, 0).Warden, wardengrpc.Config{})
		next := pb.NewTestServiceClient(dial(t, serve(t, asked, under(inside)...), through(outgoing)...))
		cfg := wardengrpc.Config{}
		if trusted {
			cfg.Trusted = everybody
		}
		s := &service{unary: func(ctx context.Context, r *pb.SimpleRequest) (*pb.SimpleResponse, error) {
			return next.UnaryCall(ctx, r)
		}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		must(served(t, s, mustNew(t, newGuard(t, 1, 0).Warden, cfg)).UnaryCall(ctx, &pb.SimpleRequest{}))(t)
		cancel()
		if <-his == trusted {
			t.Errorf("H14: trusted %t: it counts otherwise behind the server", trusted)
		}
	}
}

// within calls fn in a compartment.
func within(ctx context.Context, c *bulkhead.Compartment, fn func(context.Context) error) error {
	_, err := bulkhead.Do(ctx, c, func(ctx context.Context) (int, error) { return 0, fn(ctx) })
	return err
}

// The time that an interceptor in front gives a call is the service's own, whatever the client says of a later one.
func TestATimeoutInFront(t *testing.T) {
	for _, theirs := range []time.Duration{0, time.Hour} {
		b := &breaker{}
		c := newCompartments(t, bulkhead.CompartmentConfig{Guaranteed: 1, Breaker: b})
		short := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
			defer cancel()
			return next(ctx, req)
		}
		s := serving(func(ctx context.Context) error {
			return within(ctx, c.Compartment("unary"), func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		})
		i := mustNew(t, newGuard(t, 1, 0).Warden, wardengrpc.Config{})
		client := pb.NewTestServiceClient(dial(t, serve(t, s, grpc.ChainUnaryInterceptor(short, i.UnaryServer()))))
		ctx, cancel := t.Context(), func() {}
		if theirs > 0 {
			ctx, cancel = context.WithTimeout(ctx, theirs)
		}
		err := kinds["unary"](ctx, client)
		cancel()
		if s.calls.Load() == 0 {
			continue // it was too late for the call to arrive
		}
		if of := b.only(t); bulkhead.IsExcluded(of) || status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("H14: the breaker was told %v, the client %v", of, err)
		}
	}
}

// A breaker of somebody else's is told by bulkhead.IsExcluded that a caller was canceled, whatever is around the status.
func TestCanceledCallsAreExcluded(t *testing.T) {
	canceled, other := status.Error(codes.Canceled, ""), status.Error(codes.Unavailable, "")
	for _, c := range []struct {
		err  error
		want bool
	}{
		{canceled, true}, {fmt.Errorf("around: %w", canceled), true}, {errors.Join(other, canceled), true}, {other, false},
		{fmt.Errorf("%w, %w", io.EOF, other), false}, {(*nilError)(nil), false}, {nil, false},
	} {
		if got := bulkhead.IsExcluded(c.err); got != c.want {
			t.Errorf("H14: %v: %t", c.err, got)
		}
	}
}

// nilError is an error that is a nil pointer.
type nilError struct{ s *status.Status }

func (*nilError) Error() string                { return "none" }
func (e *nilError) GRPCStatus() *status.Status { return e.s }

// What a stranger alone has caused is no failure of what the handler asks, however it asks (H14).
func TestAStrangerIsNobodysFailure(t *testing.T) {
	addr := serve(t, serving(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }))
	full := newGuard(t, 1, 1)
	must(full.Limiter().TryAcquire(warden.Task{}))(t)
	by := func(opts ...grpc.DialOption) func(ctx context.Context) error {
		client := pb.NewTestServiceClient(dial(t, addr, opts...))
		return func(ctx context.Context) error { return kinds["unary"](ctx, client) }
	}
	plain := by()
	asks := map[string]func(ctx context.Context) error{
		"gRPC":                         plain,
		"gRPC with the time told":      by(through(mustNew(t, newGuard(t, 10, 0).Warden, wardengrpc.Config{}))...),
		"gRPC with a slot to wait for": by(through(mustNew(t, full.Warden, wardengrpc.Config{}))...),
		"a deadline of the handler's": func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			return plain(ctx)
		},
		"its context": func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) },
	}
	for who, comes := range map[string]func(ctx context.Context) (context.Context, context.CancelFunc){
		"his own deadline": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 50*time.Millisecond)
		},
		"his metadata": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return metadata.AppendToOutgoingContext(ctx, "warden-timeout", "50"), func() {}
		},
		"he leaves": func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(50*time.Millisecond, cancel)
			return ctx, cancel
		},
	} {
		for what, ask := range asks {
			b := &breaker{}
			inner := newCompartments(t, bulkhead.CompartmentConfig{Guaranteed: 1, Breaker: b}).Compartment("unary")
			failed := make(chan error, 1)
			s := serving(func(ctx context.Context) error {
				err := within(ctx, inner, ask)
				failed <- err
				return err
			})
			client := served(t, s, mustNew(t, newGuard(t, 1, 0).Warden, wardengrpc.Config{}))
			ctx, cancel := comes(t.Context())
			err := kinds["unary"](ctx, client)
			if s.calls.Load() == 0 {
				t.Logf("%s, %s: it was too late for the call to arrive: %v", who, what, err)
				continue
			}
			err = await(t, "answer", failed)
			cancel()
			if errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded || !bulkhead.IsExcluded(err) {
				t.Errorf("H14: %s, %s: the handler has %v", who, what, err)
			}
			if err := b.only(t); !bulkhead.IsExcluded(err) {
				t.Errorf("H14: %s, %s: the breaker was told %v", who, what, err)
			}
		}
	}
}
