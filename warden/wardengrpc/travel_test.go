// SPDX-License-Identifier: Apache-2.0

// Deadline and priority on their way through several services, and calls that meet themselves.

package wardengrpc_test

import (
	"context"
	"errors"
	"strings"
	"sync"
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
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/retry"
	"github.com/stopbank/stopbank/warden/wardengrpc"
)

// Three services over real connections, of which none is configured: unary calls first, then streams.
func TestThreeServices(t *testing.T) {
	type arrival struct {
		left     time.Duration // when it came; gRPC rounds that up, to a microsecond here
		priority decision.Priority
	}
	const working = 10 * time.Millisecond
	for _, streams := range []bool{false, true} {
		var mu sync.Mutex
		var arrivals []arrival
		arrived := func(ctx context.Context) {
			mu.Lock()
			defer mu.Unlock()
			left := time.Duration(0)
			if due, ok := ctx.Deadline(); ok {
				left = time.Until(due) - time.Second // which the context of a client that is not trusted says more
			}
			arrivals = append(arrivals, arrival{left, warden.PriorityFrom(ctx)})
		}
		var next pb.TestServiceClient
		for range 3 {
			to := next
			onward := func(ctx context.Context) error {
				arrived(ctx)
				time.Sleep(working) // the work: time that passes, of which none must be left at the next hop
				switch {
				case to == nil:
					return nil
				case streams:
					stream, err := to.FullDuplexCall(ctx)
					return drain(stream, err)
				}
				_, err := to.UnaryCall(ctx, &pb.SimpleRequest{})
				return err
			}
			s := &service{
				unary: func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
					return &pb.SimpleResponse{}, onward(ctx)
				},
				duplex: func(ss pb.TestService_FullDuplexCallServer) error { return onward(ss.Context()) },
			}
			addr := serve(t, s, under(mustNew(t, newGuard(t, 1, 0).Warden, wardengrpc.Config{}))...)
			next = pb.NewTestServiceClient(dial(t, addr, through(mustNew(t, newGuard(t, 1, 0).Warden, wardengrpc.Config{}))...))
		}
		ctx, cancel := context.WithTimeout(warden.WithPriority(t.Context(), decision.Background), time.Minute)
		defer cancel()
		var err error
		if streams {
			stream, opened := next.FullDuplexCall(ctx)
			err = drain(stream, opened)
		} else {
			_, err = next.UnaryCall(ctx, &pb.SimpleRequest{})
		}
		if err != nil || len(arrivals) != 3 {
			t.Fatalf("%v after %d hops", err, len(arrivals))
		}
		most := time.Minute
		for i, a := range arrivals {
			if a.priority != decision.Background || a.left <= 0 || a.left > most {
				t.Errorf("hop %d: %+v, want %v at most", i, a, most)
			}
			most = a.left - working + time.Millisecond
		}
	}
}

// What a server believes of a client's metadata: the shortest time and the lowest priority from anybody.
func TestWhatMetadataSays(t *testing.T) {
	g := newGuard(t, 1, 0)
	var left time.Duration
	var bounded bool
	s := &service{unary: func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		due, ok := ctx.Deadline()
		left, bounded = time.Until(due.Add(-time.Second)), ok // the context of a client that is not trusted says a second more
		return &pb.SimpleResponse{}, nil
	}}
	client := served(t, s, mustNew(t, g.Warden, wardengrpc.Config{}))
	for _, c := range []struct {
		md       metadata.MD
		own      time.Duration
		want     time.Duration
		priority decision.Priority
	}{
		{metadata.Pairs(), 0, 0, 0},
		{metadata.Pairs(), time.Minute, time.Minute, 0},
		{metadata.Pairs("x-envoy-expected-rq-timeout-ms", "30000", "x-request-timeout", "40"), time.Minute, 30 * time.Second, 0},
		{metadata.Pairs("warden-timeout", "20000", "priority", "u=7"), 0, 20 * time.Second, decision.Background},
		{
			metadata.Pairs("warden-timeout", "90000", "priority", "u=0, i", "warden-priority", "critical"),
			time.Minute, time.Minute, 0,
		},
		{metadata.Pairs("warden-timeout", "1", "warden-timeout", "1", "warden-priority", "-1", "warden-priority", "-1"), 0, 0, 0},
		{metadata.Pairs(
			"warden-timeout",
			"-1", "x-request-timeout-ms", "99999999999999999999", "x-request-timeout", " 1", "warden-priority", "-129",
		), 0, 0, 0},
	} {
		ctx, cancel := metadata.NewOutgoingContext(t.Context(), c.md), context.CancelFunc(func() {})
		if c.own > 0 {
			ctx, cancel = context.WithTimeout(ctx, c.own)
		}
		must(client.UnaryCall(ctx, &pb.SimpleRequest{}))(t)
		cancel()
		await(t, "end", g.ended)
		if task := g.tasks.Load(); task.Priority != c.priority {
			t.Errorf("%v: priority %v", c.md, task.Priority)
		}
		if bounded != (c.want > 0) || left > c.want || bounded && left < c.want-20*time.Second {
			t.Errorf("%v: %v are left of %v", c.md, left, c.want)
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
	i := mustNew(t, g.Warden, wardengrpc.Config{})
	behind := &service{}
	outbound := pb.NewTestServiceClient(dial(t, serve(t, behind), through(i)...))
	var inside []error
	s := &service{
		unary: func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
			if n := g.Limiter().Stats().Running; n != 1 {
				t.Errorf("%d slots for one call", n)
			}
			_, err := outbound.UnaryCall(ctx, &pb.SimpleRequest{})
			inside = append(inside, err)
			return nil, err
		},
		duplex: func(ss pb.TestService_FullDuplexCallServer) error {
			if n := g.Limiter().Stats().Running; n != 1 {
				t.Errorf("%d slots for one stream", n)
			}
			_, err := outbound.FullDuplexCall(ss.Context())
			inside = append(inside, err)
			return err
		},
	}
	outer := mustNew(t, g.Warden, wardengrpc.Config{})
	addr := serve(
		t, s, grpc.ChainUnaryInterceptor(outer.UnaryServer(), i.UnaryServer()),
		grpc.ChainStreamInterceptor(outer.StreamServer(), i.StreamServer()),
	)
	client := pb.NewTestServiceClient(dial(t, addr))
	_, err := client.UnaryCall(t.Context(), &pb.SimpleRequest{})
	wantRejected(t, err, codes.Internal, "REENTRY")
	await(t, "end", g.ended)
	stream, err := client.FullDuplexCall(t.Context())
	wantRejected(t, drain(stream, err), codes.Internal, "REENTRY")
	await(t, "end", g.ended)
	for _, err := range inside {
		var reentry *decision.ReentryError
		if !errors.As(err, &reentry) || !errors.Is(err, warden.ErrReentry) {
			t.Errorf("inside: %v", err)
		}
	}
	if st := g.Limiter().Stats(); st.Submitted != 2 || st.Running != 0 || st.Queued != 0 || behind.calls.Load() != 0 ||
		len(inside) != 2 {
		t.Errorf("%+v, %d calls sent, %d tried", st, behind.calls.Load(), len(inside))
	}
	c := newCompartments(t, bulkhead.CompartmentConfig{Guaranteed: 1})
	outer, inner := mustNew(t, nil, wardengrpc.Config{Compartment: c.of}), mustNew(t, nil, wardengrpc.Config{Compartment: c.of})
	client = pb.NewTestServiceClient(
		dial(t, serve(t, &service{}, grpc.ChainUnaryInterceptor(outer.UnaryServer(), inner.UnaryServer()))),
	)
	if _, err := client.UnaryCall(t.Context(), &pb.SimpleRequest{}); err != nil {
		t.Errorf("in a compartment: %v", err)
	}
	await(t, "end", c.ended)
}

// told notes what a breaker is told.
type told struct {
	mu   sync.Mutex
	errs []error
}

func (b *told) Allow() (func(error), error) {
	return func(err error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.errs = append(b.errs, err)
	}, nil
}

// A stranger who has no time must not open the breaker of what is slower than he is.
func TestImpatienceOpensNoBreaker(t *testing.T) {
	for _, trusted := range []bool{false, true} {
		for _, md := range []metadata.MD{nil, metadata.Pairs("warden-timeout", "20")} {
			b := &told{}
			c := newCompartments(t, bulkhead.CompartmentConfig{Guaranteed: 1, Breaker: b})
			s := &service{unary: func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
				<-ctx.Done()
				return nil, status.FromContextError(context.DeadlineExceeded).Err() // as what it has asked says
			}}
			client := served(t, s, mustNew(
				t, nil, wardengrpc.Config{Compartment: c.of, Trusted: func(context.Context, string) bool { return trusted }},
			))
			ctx, cancel := metadata.NewOutgoingContext(t.Context(), md), context.CancelFunc(func() {})
			if md == nil {
				ctx, cancel = context.WithTimeout(ctx, 20*time.Millisecond)
			}
			_, err := client.UnaryCall(ctx, &pb.SimpleRequest{})
			cancel()
			if status.Code(err) != codes.DeadlineExceeded {
				t.Error(err)
			}
			if s.calls.Load() == 0 {
				continue // it was too late for the call to arrive
			}
			await(t, "end", c.ended)
			b.mu.Lock()
			if len(b.errs) != 1 || !trusted && !bulkhead.IsExcluded(b.errs[0]) ||
				trusted && md != nil && bulkhead.IsExcluded(b.errs[0]) {
				t.Errorf("trusted %v, %v: the breaker was told %v", trusted, md, b.errs)
			}
			b.mu.Unlock()
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
	_, p, err := busy.Acquire(t.Context(), warden.Task{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	addr := serve(t, &service{}, under(mustNew(t, busy, wardengrpc.Config{}))...)
	for _, trusted := range []bool{false, true} {
		b := &told{}
		c := newCompartments(t, bulkhead.CompartmentConfig{Guaranteed: 1, Breaker: b})
		around := newCompartments(t, bulkhead.CompartmentConfig{Guaranteed: 1, Breaker: b})
		caller := must(retry.New(retry.Config{Attempts: 1}))(t)
		again := must(wardengrpc.NewRetry(caller, wardengrpc.RetryConfig{}))(t).UnaryClient()
		breaks := mustNew(t, nil, wardengrpc.Config{Compartment: c.of}).UnaryClient()
		another := mustNew(t, newGuard(t, 1, 0).Warden, wardengrpc.Config{}).UnaryClient()
		front := newGuard(t, 1, 0)
		var rejected metadata.MD
		for name, chain := range map[string][]grpc.UnaryClientInterceptor{
			"one": {breaks}, "two": {another, breaks}, "a retry in front": {again, breaks}, "a retry alone": {again},
		} {
			next := pb.NewTestServiceClient(dial(t, addr, grpc.WithChainUnaryInterceptor(chain...)))
			s := &service{unary: func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
				of := around.Compartment("unary")
				if name != "a retry alone" {
					of = nil
				}
				err := within(ctx, of, func(ctx context.Context) error {
					_, err := next.UnaryCall(ctx, &pb.SimpleRequest{}, grpc.Trailer(&rejected))
					return err
				})
				return nil, status.Error(codes.Internal, err.Error())
			}}
			client := served(t, s, mustNew(t, front.Warden, wardengrpc.Config{Trusted: func(context.Context, string) bool {
				return trusted
			}}))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if _, err := client.UnaryCall(ctx, &pb.SimpleRequest{}); status.Code(err) != codes.Internal {
				t.Errorf("%s: %v", name, err)
			}
			cancel()
			b.mu.Lock()
			if len(b.errs) != 1 || bulkhead.IsExcluded(b.errs[0]) == trusted {
				t.Errorf("H14: %s, trusted %v: the breaker was told %v", name, trusted, b.errs)
			}
			b.errs = nil
			b.mu.Unlock()
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

// within calls fn in a compartment; nil: in none.
func within(ctx context.Context, c *bulkhead.Compartment, fn func(context.Context) error) error {
	if c == nil {
		return fn(ctx)
	}
	_, err := bulkhead.Do(ctx, c, func(ctx context.Context) (int, error) { return 0, fn(ctx) })
	return err
}

// The time that an interceptor in front gives a call is the service's own, whatever the client says of a later one.
func TestATimeoutInFront(t *testing.T) {
	for _, theirs := range []time.Duration{0, time.Hour} {
		b := &told{}
		c := newCompartments(t, bulkhead.CompartmentConfig{Guaranteed: 1, Breaker: b})
		short := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
			defer cancel()
			return next(ctx, req)
		}
		s := &service{unary: func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
			return nil, within(ctx, c.Compartment("unary"), func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		}}
		i := mustNew(t, newGuard(t, 1, 0).Warden, wardengrpc.Config{})
		client := pb.NewTestServiceClient(dial(t, serve(t, s, grpc.ChainUnaryInterceptor(short, i.UnaryServer()))))
		ctx, cancel := t.Context(), func() {}
		if theirs > 0 {
			ctx, cancel = context.WithTimeout(ctx, theirs)
		}
		_, err := client.UnaryCall(ctx, &pb.SimpleRequest{})
		cancel()
		if s.calls.Load() == 0 {
			continue // it was too late for the call to arrive
		}
		if len(b.errs) != 1 || bulkhead.IsExcluded(b.errs[0]) || status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("H14: the breaker was told %v, the client %v", b.errs, err)
		}
	}
}

// What a stranger alone has caused is no failure of what the handler asks, however it asks (H14).
func TestAStrangerIsNobodysFailure(t *testing.T) {
	hangs := &service{unary: func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	addr := serve(t, hangs)
	told1 := mustNew(t, newGuard(t, 10, 0).Warden, wardengrpc.Config{})
	plain, told2 := pb.NewTestServiceClient(dial(t, addr)), pb.NewTestServiceClient(dial(t, addr, through(told1)...))
	asks := map[string]func(ctx context.Context) error{
		"gRPC": func(ctx context.Context) error { _, err := plain.UnaryCall(ctx, &pb.SimpleRequest{}); return err },
		"gRPC with the time told": func(ctx context.Context) error {
			_, err := told2.UnaryCall(ctx, &pb.SimpleRequest{})
			return err
		},
		"a deadline of the handler's": func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			_, err := plain.UnaryCall(ctx, &pb.SimpleRequest{})
			return err
		},
		"its context": func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) },
	}
	for who, comes := range map[string]func(ctx context.Context) (context.Context, context.CancelFunc){
		"his own deadline": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 50*time.Millisecond)
		},
		"his metadata": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return metadata.NewOutgoingContext(ctx, metadata.Pairs("warden-timeout", "50")), func() {}
		},
		"he leaves": func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(50*time.Millisecond, cancel)
			return ctx, cancel
		},
	} {
		for what, ask := range asks {
			b := &told{}
			inner := must(bulkhead.New(bulkhead.Config{Total: 1, Compartments: []bulkhead.CompartmentConfig{
				{Name: "next", Guaranteed: 1, Breaker: b},
			}}))(t).Compartment("next")
			failed := make(chan error, 1)
			s := &service{unary: func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
				_, err := bulkhead.Do(ctx, inner, func(ctx context.Context) (int, error) { return 0, ask(ctx) })
				failed <- err
				return nil, err
			}}
			client := served(t, s, mustNew(t, newGuard(t, 1, 0).Warden, wardengrpc.Config{}))
			ctx, cancel := comes(t.Context())
			_, err := client.UnaryCall(ctx, &pb.SimpleRequest{})
			if s.calls.Load() == 0 {
				t.Logf("%s, %s: it was too late for the call to arrive: %v", who, what, err)
				continue
			}
			err = await(t, "answer", failed)
			cancel()
			if errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded || err == nil {
				t.Errorf("H14: %s, %s: the handler has %v", who, what, err)
			}
			b.mu.Lock()
			if len(b.errs) != 1 || !bulkhead.IsExcluded(b.errs[0]) {
				t.Errorf("H14: %s, %s: the breaker was told %v", who, what, b.errs)
			}
			b.mu.Unlock()
		}
	}
}
