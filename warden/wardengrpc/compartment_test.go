// SPDX-License-Identifier: Apache-2.0

// Calls in compartments: who has a slot there, what a timeout means, and what a breaker is told.

package wardengrpc_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/wardengrpc"
)

// compartments has a compartment for unary calls and one for the others. Those for unary calls have tenants if there is a key.
type compartments struct {
	*bulkhead.Set
	ended chan bulkhead.Event
}

func newCompartments(t *testing.T, unary bulkhead.CompartmentConfig) *compartments {
	t.Helper()
	c := &compartments{ended: make(chan bulkhead.Event, 1000)}
	unary.Name = "unary"
	set := must(bulkhead.New(bulkhead.Config{
		Total: 10, Observer: c, Compartments: []bulkhead.CompartmentConfig{unary, {Name: "streams", Guaranteed: 1}},
	}))(t)
	c.Set = set
	return c
}

func (c *compartments) Observe(e bulkhead.Event) {
	if e.Kind == bulkhead.Answered {
		c.ended <- e
	}
}

func (c *compartments) of(_ context.Context, fullMethod string) *bulkhead.Compartment {
	switch {
	case strings.HasSuffix(fullMethod, "/UnaryCall"):
		return c.Compartment("unary")
	case strings.HasSuffix(fullMethod, "/FullDuplexCall"):
		return c.Compartment("streams")
	}
	return nil
}

func (c *compartments) wantInFlight(t *testing.T, name string, want int) {
	t.Helper()
	if n := c.Compartment(name).Snapshot().InFlight; n != want {
		t.Errorf("%d in flight in %s, want %d", n, name, want)
	}
}

func TestCompartments(t *testing.T) {
	g := newGuard(t, 1, 0)
	c := newCompartments(t, bulkhead.CompartmentConfig{Guaranteed: 1})
	entered, finish := make(chan struct{}), make(chan struct{})
	var inside []error
	s := &service{
		unary: func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
			entered <- struct{}{}
			<-finish
			return &pb.SimpleResponse{}, nil
		},
		duplex: func(ss pb.TestService_FullDuplexCallServer) error {
			_, _, err := c.Compartment("streams").Acquire(ss.Context()) // the stream's context knows where it is
			inside = append(inside, err)
			entered <- struct{}{}
			<-finish
			return err
		},
	}
	before := g.Stats().Samples
	time.Sleep(11 * time.Millisecond) // until a sample is overdue
	client := served(t, s, mustNew(t, g.Warden, wardengrpc.Config{Compartment: c.of}))
	ctx := t.Context()
	answers := make(chan error, 2)
	go func() {
		_, err := client.UnaryCall(ctx, &pb.SimpleRequest{})
		answers <- err
	}()
	await(t, "handler", entered)
	stream := must(client.FullDuplexCall(ctx))(t)
	await(t, "handler", entered)
	c.wantInFlight(t, "unary", 1)
	c.wantInFlight(t, "streams", 1)
	_, err := client.UnaryCall(ctx, &pb.SimpleRequest{})
	wantRejected(t, err, codes.ResourceExhausted, "QUEUE_OVERFLOW")
	if !errors.Is(inside[0], decision.ErrReentry) {
		t.Errorf("%v inside a stream, want a re-entry", inside[0])
	}
	close(finish)
	if err := await(t, "answer", answers); err != nil {
		t.Error(err)
	}
	wantRejected(t, drain(stream, nil), codes.Internal, "REENTRY")
	await(t, "end", c.ended)
	await(t, "end", c.ended)
	await(t, "end", c.ended)
	c.wantInFlight(t, "unary", 0)
	c.wantInFlight(t, "streams", 0)
	if g.starts.Load() != 0 || g.Stats().Samples == before {
		t.Errorf("the warden gave %d slots and took %d samples, want none and some", g.starts.Load(), g.Stats().Samples-before)
	}

	err = dial(
		t, serve(t, s, under(mustNew(t, nil, wardengrpc.Config{Compartment: c.of}))...),
	).Invoke(ctx, "/grpc.testing.TestService/EmptyCall", &pb.Empty{}, &pb.Empty{})
	wantRejected(t, err, codes.Internal, "UNKNOWN_COMPARTMENT")
}

// TestCompartmentTimeouts: the handler's context ends, and the client is told so; a wait that is too long ends as such.
func TestCompartmentTimeouts(t *testing.T) {
	c := newCompartments(
		t, bulkhead.CompartmentConfig{Guaranteed: 1, MaxQueue: 1, MaxWait: time.Millisecond, Timeout: 20 * time.Millisecond},
	)
	finish := make(chan struct{})
	s := &service{unary: func(ctx context.Context, r *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		<-ctx.Done()
		if r.GetFillUsername() {
			<-finish
		}
		return nil, ctx.Err()
	}}
	client := served(t, s, mustNew(t, nil, wardengrpc.Config{Compartment: c.of}))
	if _, err := client.UnaryCall(t.Context(), &pb.SimpleRequest{}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("%v, want DeadlineExceeded", err)
	}
	if e := await(t, "end", c.ended); e.Outcome != bulkhead.TimedOut {
		t.Errorf("%+v", e)
	}
	first := make(chan error, 1)
	go func() {
		_, err := client.UnaryCall(t.Context(), &pb.SimpleRequest{FillUsername: true})
		first <- err
	}()
	until(t, "second call", func() bool { return s.calls.Load() == 2 })
	_, err := client.UnaryCall(t.Context(), &pb.SimpleRequest{})
	wantRejected(t, err, codes.DeadlineExceeded, "TIMEOUT_QUEUED")
	close(finish)
	await(t, "answer", first)
}

// breaker keeps what it was told.
type breaker struct {
	mu   sync.Mutex
	open error
	told []error
}

func (b *breaker) Allow() (func(error), error) {
	if b.open != nil {
		return nil, b.open
	}
	return func(err error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.told = append(b.told, err)
	}, nil
}

func (b *breaker) last() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.told[len(b.told)-1]
}

// TestBreakerIsToldHowCallsEnd: on both sides; that a caller went away is no result.
func TestBreakerIsToldHowCallsEnd(t *testing.T) {
	entered := make(chan struct{}, 10)
	s := &service{
		unary: func(ctx context.Context, r *pb.SimpleRequest) (*pb.SimpleResponse, error) {
			entered <- struct{}{}
			switch r.GetResponseSize() {
			case 0:
				return nil, status.Error(codes.DataLoss, "all of it")
			case 1:
				panic("on purpose")
			case 2:
				<-ctx.Done()
				return nil, status.FromContextError(ctx.Err()).Err()
			}
			return &pb.SimpleResponse{}, nil
		},
		duplex: func(ss pb.TestService_FullDuplexCallServer) error {
			r, err := ss.Recv()
			if err != nil {
				return nil //nolint:nilerr // the client has ended it
			}
			_ = ss.Send(&pb.StreamingOutputCallResponse{})
			return status.Error(codes.Code(r.GetResponseStatus().GetCode()), "as asked")
		},
	}
	call := func(t *testing.T, client pb.TestServiceClient, c *compartments, size int32) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		answer := make(chan error, 1)
		go func() {
			_, err := client.UnaryCall(ctx, &pb.SimpleRequest{ResponseSize: size})
			answer <- err
		}()
		await(t, "handler", entered)
		if size == 2 {
			cancel()
		}
		await(t, "answer", answer)
		await(t, "end", c.ended)
	}
	side := func(t *testing.T, serverSide bool) (pb.TestServiceClient, *compartments, *breaker) {
		b := &breaker{}
		c := newCompartments(t, bulkhead.CompartmentConfig{Guaranteed: 1, Breaker: b})
		i := mustNew(t, nil, wardengrpc.Config{Compartment: func(context.Context, string) *bulkhead.Compartment {
			return c.Compartment("unary")
		}})
		if serverSide {
			return served(t, s, i), c, b
		}
		free := mustNew(t, newGuard(t, 10, 0).Warden, wardengrpc.Config{})
		return pb.NewTestServiceClient(dial(t, serve(t, s, under(free)...), through(i)...)), c, b
	}
	for name, serverSide := range map[string]bool{"server": true, "client": false} {
		t.Run(name, func(t *testing.T) {
			client, c, b := side(t, serverSide)
			for size := range int32(4) {
				call(t, client, c, size)
			}
			stream := must(client.FullDuplexCall(t.Context()))(t)
			_ = stream.CloseSend()
			if err := drain(stream, nil); err != nil {
				t.Error(err)
			}
			await(t, "end", c.ended)
			if len(b.told) != 5 {
				t.Fatalf("told %v", b.told)
			}
			if status.Code(b.told[0]) != codes.DataLoss || b.told[1] == nil || !bulkhead.IsExcluded(b.told[2]) ||
				b.told[3] != nil || b.told[4] != nil {
				t.Errorf("told %v", b.told)
			}
			for range 50 { // gRPC ends the stream's context before RecvMsg says why
				for _, want := range []codes.Code{codes.OK, codes.DataLoss} {
					stream := must(client.FullDuplexCall(t.Context()))(t)
					_ = stream.Send(&pb.StreamingOutputCallRequest{ResponseStatus: &pb.EchoStatus{Code: int32(want)}})
					if err := drain(stream, nil); status.Code(err) != want {
						t.Fatal(err)
					}
					await(t, "end", c.ended)
					if last := b.last(); status.Code(last) != want {
						t.Fatalf("told %v, want %s", last, want)
					}
				}
			}
			b.open = io.ErrClosedPipe
			_, err := client.UnaryCall(t.Context(), &pb.SimpleRequest{})
			wantRejected(t, err, codes.Unavailable, "BREAKER_OPEN")
			if !serverSide && !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("%v does not say what the breaker said", err)
			}
		})
	}
}

// TestTenantsAreToldApart: one that is full does not reject another.
func TestTenantsAreToldApart(t *testing.T) {
	c := newCompartments(t, bulkhead.CompartmentConfig{
		Guaranteed: 5, MaxQueue: 1, MaxWait: time.Millisecond, Tenants: bulkhead.TenantsConfig{Max: 1},
	})
	i := mustNew(t, nil, wardengrpc.Config{Compartment: func(ctx context.Context, _ string) *bulkhead.Compartment {
		key, _ := ctx.Value(tenantKey{}).(string)
		return c.Compartment("unary").Tenant(key)
	}})
	unary := i.UnaryServer()
	as := func(key string, handler grpc.UnaryHandler) error {
		_, err := unary(
			context.WithValue(t.Context(), tenantKey{}, key), nil, &grpc.UnaryServerInfo{FullMethod: unaryCall}, handler,
		)
		return err
	}
	nothing := func(context.Context, any) (any, error) { return nil, nil }
	err := as("one", func(context.Context, any) (any, error) {
		wantRejected(t, as("one", nothing), codes.DeadlineExceeded, "TIMEOUT_QUEUED")
		return nil, as("other", nothing)
	})
	if err != nil {
		t.Error(err)
	}
}

type tenantKey struct{}
