// SPDX-License-Identifier: Apache-2.0

// What is called again, and what is not, on a real server.

package wardengrpc_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/retry"
	"github.com/stopbank/stopbank/warden/wardengrpc"
)

// generous retries as often as the rules of safety let it, and at once.
var generous = retry.Config{Ratio: 1, MinRetries: 1000, Backoff: 1}

func newRetry(t fataler, cfg retry.Config, of wardengrpc.RetryConfig) (*wardengrpc.Retry, *retry.Caller) {
	t.Helper()
	c := must(retry.New(cfg))(t)
	r := must(wardengrpc.NewRetry(c, of))(t)
	return r, c
}

// again is the options of a connection whose calls go through r.
func again(r *wardengrpc.Retry) []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(r.UnaryClient()), grpc.WithChainStreamInterceptor(r.StreamClient())}
}

func repeatable(string) bool { return true }

// answer is what the server says to one attempt, and what the model knows of it.
type answer struct {
	code       codes.Code
	info, wait bool
	processed  string // in the ErrorInfo
	pushback   []string
	again      bool
}

func (a answer) err(t fataler) error {
	s := status.New(a.code, "as the script says")
	var err error
	if a.info {
		info := &errdetails.ErrorInfo{
			Domain: "stopbank/warden", Reason: "PRESSURE_HIGH", Metadata: map[string]string{"processed": a.processed},
		}
		if s, err = s.WithDetails(info); err != nil {
			t.Fatal(err)
		}
	}
	if a.wait {
		if s, err = s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Nanosecond)}); err != nil {
			t.Fatal(err)
		}
	}
	return s.Err()
}

var answers = []answer{
	{code: codes.OK}, {code: codes.Internal}, {code: codes.NotFound}, {code: codes.Aborted, wait: true},
	{code: codes.ResourceExhausted},
	{code: codes.Unavailable, again: true}, {code: codes.ResourceExhausted, wait: true, again: true},
	{code: codes.DeadlineExceeded, again: true},
	{code: codes.ResourceExhausted, info: true, again: true},
	{code: codes.ResourceExhausted, info: true, wait: true, processed: "false", again: true},
	{code: codes.Unavailable, info: true, processed: "false", again: true},
	{code: codes.Unavailable, info: true, processed: "true", again: true},
	{code: codes.Unavailable, pushback: []string{"0"}, again: true}, {code: codes.Unavailable, pushback: []string{"-1"}},
	{code: codes.Unavailable, pushback: []string{"1", "1"}}, {code: codes.Unavailable, pushback: []string{"soon"}},
	{code: codes.Unavailable, pushback: []string{""}},
	{code: codes.ResourceExhausted, pushback: []string{"1"}, again: true}, {code: codes.Canceled},
}

// Whatever a server answers: no call is handled twice that must not be, and the last answer is what the caller gets.
func TestPropertyMachine(t *testing.T) {
	var script []answer
	attempts, handled := 0, 0
	s := &service{unary: func(ctx context.Context, r *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		a := script[attempts]
		attempts++
		if a.processed != "false" {
			handled++
		}
		for _, v := range a.pushback {
			if err := grpc.SetTrailer(ctx, metadata.Pairs("grpc-retry-pushback-ms", v)); err != nil {
				t.Error(err)
			}
		}
		if err := a.err(t); err != nil {
			return nil, err
		}
		return &pb.SimpleResponse{Username: r.GetPayload().String()}, nil
	}}
	addr := serve(t, s)
	clients := map[bool]pb.TestServiceClient{}
	for _, safe := range []bool{true, false} {
		r, _ := newRetry(t, retry.Config{Ratio: 1, MinRetries: 1000, Backoff: 1, Rand: func() float64 {
			return 0.999
		}}, wardengrpc.RetryConfig{Repeatable: func(m string) bool { return safe && m == unaryCall }})
		clients[safe] = pb.NewTestServiceClient(dial(t, addr, again(r)...))
	}
	rapid.Check(t, func(t *rapid.T) {
		script = rapid.SliceOfN(rapid.SampledFrom(answers), 3, 3).Draw(t, "script")
		safe := rapid.Bool().Draw(t, "repeatable")
		attempts, handled = 0, 0
		var trailer metadata.MD
		_, err := clients[safe].UnaryCall(context.Background(), &pb.SimpleRequest{}, grpc.Trailer(&trailer))
		want := 1
		for want < 3 && script[want-1].again && (safe || script[want-1].processed == "false") {
			want++
		}
		last := script[want-1]
		if attempts != want || handled > 1 && !safe || status.Code(err) != last.code {
			t.Fatalf("R3: %d attempts, %d handled, %v; want %d and %s", attempts, handled, err, want, last.code)
		}
		if got := trailer.Get("grpc-retry-pushback-ms"); len(got) != len(last.pushback) {
			t.Fatalf("R5: the caller's own trailer has %q, want %q", got, last.pushback)
		}
	})
}

// Nobody is there: nothing was sent, so that anything is tried again.
func TestNothingWasSent(t *testing.T) {
	r, c := newRetry(t, generous, wardengrpc.RetryConfig{})
	client := pb.NewTestServiceClient(dial(t, "127.0.0.1:1", again(r)...))
	for kind, call := range kinds {
		if err := call(t.Context(), client); status.Code(err) != codes.Unavailable {
			t.Errorf("R3: %s: %v", kind, err)
		}
	}
	if s := c.Stats(); s.Calls != 2 || s.Retries != 4 || s.Rejected != 6 {
		t.Errorf("R3: %+v", s)
	}
}

// What the throttle rejects is not sent, streams neither; how streams are answered counts.
func TestThrottledCallIsNotSent(t *testing.T) {
	s := serving(func(context.Context) error { return status.Error(codes.Unavailable, "busy") })
	r, c := newRetry(t, retry.Config{Rand: func() float64 { return 0 }}, wardengrpc.RetryConfig{})
	client := pb.NewTestServiceClient(dial(t, serve(t, s), again(r)...))
	for range 5 {
		for kind, call := range kinds {
			if err := call(t.Context(), client); status.Code(err) != codes.Unavailable {
				t.Fatalf("R4: %s: %v", kind, err)
			}
		}
	}
	for kind, call := range kinds {
		if err := call(t.Context(), client); !errors.Is(err, retry.ErrThrottled) || !strings.Contains(err.Error(), ", 0 were accepted") {
			t.Errorf("R4: %s: %v", kind, err)
		}
	}
	if n := s.calls.Load(); n != 10 || c.Stats().Throttled != 2 || c.Stats().Failed != 10 {
		t.Errorf("R4: %d were sent, %+v", n, c.Stats())
	}
}

// A stream that was answered is accepted once, however long it goes on.
func TestStreamsCountOnce(t *testing.T) {
	s := &service{duplex: func(ss pb.TestService_FullDuplexCallServer) error {
		for range 3 {
			if err := ss.Send(&pb.StreamingOutputCallResponse{}); err != nil {
				return err
			}
		}
		return nil
	}}
	r, c := newRetry(t, generous, wardengrpc.RetryConfig{Repeatable: repeatable})
	client := pb.NewTestServiceClient(dial(t, serve(t, s), again(r)...))
	if err := kinds["stream"](t.Context(), client); err != nil || c.Stats() != (retry.Stats{Calls: 1, Accepted: 1}) {
		t.Errorf("R8: %v, %+v", err, c.Stats())
	}
}

// The deadline bounds the wait, a caller that goes away ends it, and a slow attempt is tried again.
func TestWaits(t *testing.T) {
	s := serving(func(context.Context) error {
		return answer{code: codes.ResourceExhausted, info: true, processed: "false"}.later(t)
	})
	r, c := newRetry(t, generous, wardengrpc.RetryConfig{})
	client := pb.NewTestServiceClient(dial(t, serve(t, s), again(r)...))
	short, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	if err := kinds["unary"](short, client); status.Code(err) != codes.ResourceExhausted || short.Err() != nil {
		t.Error(err)
	}
	long, leave := context.WithCancel(t.Context())
	go func() {
		for c.Stats().Retries == 0 {
			time.Sleep(time.Millisecond)
		}
		leave()
	}()
	if err := kinds["unary"](long, client); status.Code(err) != codes.Canceled {
		t.Error(err)
	}
	if s := c.Stats(); s.NoTime != 1 || s.Retries > 1 {
		t.Errorf("R5: %+v", s)
	}
}

// later is the answer with a RetryInfo of five seconds.
func (a answer) later(t fataler) error {
	s := must(status.Convert(a.err(t)).WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(5 * time.Second)}))(t)
	return s.Err()
}

// What fails because a stranger's time is too short for a retry is no failure of the service.
func TestNoTimeForARetry(t *testing.T) {
	busy := &service{unary: func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		return nil, answer{code: codes.ResourceExhausted, info: true, processed: "false"}.later(t)
	}}
	r, _ := newRetry(t, generous, wardengrpc.RetryConfig{})
	next := pb.NewTestServiceClient(dial(t, serve(t, busy), again(r)...))
	for _, trusted := range []bool{false, true} {
		front := newGuard(t, 1, 0)
		s := &service{unary: func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
			_, err := next.UnaryCall(ctx, &pb.SimpleRequest{})
			return nil, status.Error(codes.Internal, err.Error())
		}}
		client := served(t, s, mustNew(t, front.Warden, wardengrpc.Config{Trusted: func(context.Context, string) bool { return trusted }}))
		short, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		if _, err := client.UnaryCall(short, &pb.SimpleRequest{}); status.Code(err) != codes.Internal {
			t.Error(err)
		}
		cancel()
		if n := front.Limiter().Stats().Failed; (n == 0) == trusted {
			t.Errorf("H31: trusted %t: %d failed", trusted, n)
		}
	}
}

func TestAttemptTimeout(t *testing.T) {
	var calls atomic.Int32
	// the first attempt hangs: at its deadline its answer could still come before the client's timer
	answered := make(chan struct{})
	s := serving(func(context.Context) error {
		if calls.Add(1) == 1 {
			<-answered
		}
		return nil
	})
	r, c := newRetry(t, generous, wardengrpc.RetryConfig{Repeatable: repeatable, AttemptTimeout: 200 * time.Millisecond})
	if err := kinds["unary"](t.Context(), pb.NewTestServiceClient(dial(t, serve(t, s), again(r)...))); err != nil {
		t.Error(err)
	}
	close(answered)
	if s := c.Stats(); s.Retries != 1 || s.Failed != 1 || s.Accepted != 1 {
		t.Errorf("%+v", s)
	}
}

// A call has the priority that it is sent with, and its rejections count for that.
func TestPriorityOfACall(t *testing.T) {
	s := serving(func(context.Context) error { return status.Error(codes.Unavailable, "busy") })
	r, _ := newRetry(t, retry.Config{Rand: func() float64 { return 0 }}, wardengrpc.RetryConfig{})
	client := pb.NewTestServiceClient(dial(t, serve(t, s), again(r)...))
	low := warden.WithPriority(t.Context(), decision.Background)
	for range 10 {
		_ = kinds["unary"](low, client)
	}
	rejected, sent := kinds["unary"](low, client), kinds["unary"](t.Context(), client)
	if !errors.Is(rejected, retry.ErrThrottled) || !strings.Contains(rejected.Error(), "of priority background") ||
		status.Code(sent) != codes.Unavailable {
		t.Errorf("R7: %v, %v", rejected, sent)
	}
}
