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

	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/wardengrpc"
)

// compartments has a compartment for unary calls and one for the others.
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
	s := &service{
		unary: func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
			entered <- struct{}{}
			<-finish
			return &pb.SimpleResponse{}, nil
		},
		duplex: func(ss pb.TestService_FullDuplexCallServer) error {
			_, _, err := c.Compartment("streams").Acquire(ss.Context()) // the stream's context knows where it is
			entered <- struct{}{}
			<-finish
			return err
		},
	}
	before := g.Stats().Samples
	time.Sleep(11 * time.Millisecond) // until a sample is overdue
	cc := dial(t, serve(t, s, under(mustNew(t, g.Warden, wardengrpc.Config{Compartment: c.of}))...))
	client, answers := pb.NewTestServiceClient(cc), map[string]chan error{}
	for kind, call := range kinds {
		answers[kind] = make(chan error, 1)
		go func() { answers[kind] <- call(t.Context(), client) }()
		await(t, "handler", entered)
	}
	c.wantInFlight(t, "unary", 1)
	c.wantInFlight(t, "streams", 1)
	wantRejected(t, kinds["unary"](t.Context(), client), codes.ResourceExhausted, "QUEUE_OVERFLOW")
	close(finish)
	noError(t, await(t, "answer", answers["unary"]))
	wantRejected(t, await(t, "end", answers["stream"]), codes.Internal, "REENTRY")
	for range 3 {
		await(t, "end", c.ended)
	}
	c.wantInFlight(t, "unary", 0)
	c.wantInFlight(t, "streams", 0)
	if g.starts.Load() != 0 || g.Stats().Samples == before {
		t.Errorf("the warden gave %d slots and took %d samples, want none and some", g.starts.Load(), g.Stats().Samples-before)
	}
	err := cc.Invoke(t.Context(), "/grpc.testing.TestService/EmptyCall", &pb.Empty{}, &pb.Empty{})
	wantRejected(t, err, codes.Internal, "UNKNOWN_COMPARTMENT")
}

// A compartment's Timeout ends the handler's context, and the client is told so.
func TestCompartmentTimeout(t *testing.T) {
	c := newCompartments(t, bulkhead.CompartmentConfig{Guaranteed: 1, Timeout: 20 * time.Millisecond})
	hangs := serving(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	client := served(t, hangs, mustNew(t, nil, wardengrpc.Config{Compartment: c.of}))
	if err := kinds["unary"](t.Context(), client); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("%v, want DeadlineExceeded", err)
	}
	if e := await(t, "end", c.ended); e.Outcome != bulkhead.TimedOut {
		t.Errorf("%+v", e)
	}
}

// A Timeout stands still while a client says nothing (H34), and no longer.
func TestAClientThatPauses(t *testing.T) {
	b := &breaker{}
	c := newCompartments(t, bulkhead.CompartmentConfig{Guaranteed: 1, Breaker: b, Timeout: 200 * time.Millisecond})
	s := &service{in: func(ss pb.TestService_StreamingInputCallServer) error {
		for {
			m, err := ss.Recv()
			switch {
			case errors.Is(err, io.EOF):
				return ss.SendAndClose(&pb.StreamingInputCallResponse{})
			case err != nil:
				return err
			case m.GetExpectCompressed() != nil: // it hangs
				<-ss.Context().Done()
				return ss.Context().Err()
			}
		}
	}}
	client := served(t, s, mustNew(t, nil, wardengrpc.Config{Compartment: func(context.Context, string) *bulkhead.Compartment {
		return c.Compartment("unary")
	}}))
	for _, hangs := range []bool{false, true} {
		stream := must(client.StreamingInputCall(t.Context()))(t)
		for range 3 {
			_ = stream.Send(&pb.StreamingInputCallRequest{})
			time.Sleep(150 * time.Millisecond)
		}
		if hangs {
			_ = stream.Send(&pb.StreamingInputCallRequest{ExpectCompressed: &pb.BoolValue{}})
		}
		_, err := stream.CloseAndRecv()
		await(t, "end", c.ended)
		if last := b.only(t); (last != nil) != hangs || (err != nil) != hangs {
			t.Errorf("H34: it hangs %t: the breaker was told %v, the client %v", hangs, last, err)
		}
	}
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

// only is the one thing that it was told, and forgets it.
func (b *breaker) only(t *testing.T) (err error) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.told) != 1 {
		t.Fatalf("H14: told %v", b.told)
	}
	err, b.told = b.told[0], nil
	return err
}

// On both sides; that a caller went away is no result. How a client's stream ends, RecvMsg says: outcome_test.go.
func TestBreakerIsToldHowCallsEnd(t *testing.T) {
	entered := make(chan struct{}, 10)
	var end func(ctx context.Context) error
	s := serving(func(ctx context.Context) error {
		do := end // the test may be ahead
		entered <- struct{}{}
		return do(ctx)
	})
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
		for kind, call := range kinds {
			t.Run(name+" "+kind, func(t *testing.T) {
				client, c, b := side(t, serverSide)
				for how, is := range map[string]func(error) bool{
					"answers":       func(err error) bool { return err == nil },
					"fails":         func(err error) bool { return status.Code(err) == codes.DataLoss },
					"panics":        func(err error) bool { return err != nil && !bulkhead.IsExcluded(err) },
					"leaves":        bulkhead.IsExcluded,
					"finds nothing": func(err error) bool { return err == nil }, // and is well
				} {
					ctx, cancel := context.WithCancel(t.Context())
					end = map[string]func(context.Context) error{
						"answers":       func(context.Context) error { return nil },
						"fails":         func(context.Context) error { return status.Error(codes.DataLoss, "all of it") },
						"panics":        func(context.Context) error { panic("on purpose") },
						"finds nothing": func(context.Context) error { return status.Error(codes.NotFound, "what was asked for") },
						"leaves":        func(ctx context.Context) error { <-ctx.Done(); return status.FromContextError(ctx.Err()).Err() },
					}[how]
					answer := make(chan error, 1)
					go func() { answer <- call(ctx, client) }()
					if await(t, "handler", entered); how == "leaves" {
						cancel()
					}
					await(t, "answer", answer)
					await(t, "end", c.ended)
					cancel()
					if err := b.only(t); !is(err) {
						t.Errorf("%s: told %v", how, err)
					}
				}
				b.open = io.ErrClosedPipe
				err := call(t.Context(), client)
				wantRejected(t, err, codes.Unavailable, "BREAKER_OPEN")
				if !serverSide && !errors.Is(err, io.ErrClosedPipe) {
					t.Errorf("%v does not say what the breaker said", err)
				}
			})
		}
	}
}
