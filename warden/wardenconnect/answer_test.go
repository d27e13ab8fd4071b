// SPDX-License-Identifier: Apache-2.0

// Rejected calls in the three protocols, over real HTTP/1 and HTTP/2.

package wardenconnect_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/timelimit"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
	"github.com/stopbank/stopbank/warden/wardenconnect"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type text = wrapperspb.StringValue

// must is for what cannot fail here: x := must(f())(t).
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// ruling decides as it did before.
type ruling decision.ControlDecision

func (r ruling) Step(monitor.Sample) decision.ControlDecision { return decision.ControlDecision(r) }

// newWarden returns one that runs one call and sheds who would have to wait.
func newWarden(t *testing.T) *warden.Warden {
	t.Helper()
	d := decision.ControlDecision{
		Seq: 7, TargetConcurrency: 1, ShedProbability: 1,
		Reasons: []decision.Reason{decision.NewReason("test", "none", 0, decision.Hold)},
	}
	return must(warden.New(warden.Config{Controller: ruling(d), Limiter: limiter.Config{Initial: d}}))(t)
}

// serve serves handlers by their paths behind a middleware, over HTTP/1 and HTTP/2 without TLS.
func serve(t *testing.T, mw *wardenhttp.Middleware, handlers map[string]http.Handler) string {
	t.Helper()
	mux := http.NewServeMux()
	for path, h := range handlers {
		mux.Handle(path, h)
	}
	s := httptest.NewUnstartedServer(mw.Handler(mux))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}

func newMiddleware(t *testing.T, w *warden.Warden) *wardenhttp.Middleware {
	t.Helper()
	return must(wardenhttp.New(w, wardenhttp.Config{Answer: wardenconnect.Answer()}))(t)
}

// newClient returns an http.Client for HTTP/1, or for HTTP/2 alone, which gRPC needs.
func newClient(t *testing.T, http2 bool) *http.Client {
	t.Helper()
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetHTTP1(!http2)
	tr.Protocols.SetUnencryptedHTTP2(http2)
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: time.Minute}
}

// hello is a request.
func hello() *connect.Request[text] { return connect.NewRequest(wrapperspb.String("hello")) }

// told is what a client can read in an error.
type told struct {
	Code    connect.Code
	Message string
	Reason  string
	Decided bool // by a decision with a number
	Unseen  bool // no handler has seen the call
	Again   bool // with a delay of 1 to 2 s, and Retry-After that agrees
}

func read(t *testing.T, err error) told {
	t.Helper()
	var e *connect.Error
	if !errors.As(err, &e) {
		t.Fatalf("%v is no *connect.Error", err)
	}
	r := told{Code: e.Code(), Message: e.Message()}
	var delay time.Duration
	for _, d := range e.Details() {
		v, err := d.Value()
		if err != nil {
			t.Fatal(err)
		}
		switch v := v.(type) {
		case *errdetails.ErrorInfo:
			n, _ := strconv.Atoi(v.GetMetadata()["decision"])
			r.Reason, r.Decided, r.Unseen = v.GetReason(), n >= 7, v.GetMetadata()["processed"] == "false"
			if id := v.GetMetadata()["request_id"]; r.Unseen && (id == "" || e.Meta().Get("X-Request-Id") != id) {
				t.Errorf("request_id %q, X-Request-Id %q", id, e.Meta().Get("X-Request-Id"))
			}
		case *errdetails.RetryInfo:
			delay = v.GetRetryDelay().AsDuration()
		default:
			t.Errorf("a detail %T", v)
		}
	}
	after := e.Meta().Get("Retry-After")
	if (delay > 0) != (after != "") {
		t.Errorf("delay %v, Retry-After %q", delay, after)
	}
	if delay > 0 {
		seconds, err := strconv.Atoi(after)
		if err != nil || time.Duration(seconds)*time.Second < delay || delay < time.Second || delay > 2*time.Second {
			t.Errorf("delay %v, Retry-After %q; want 1 s to 2 s", delay, after)
		}
		r.Again = true
	}
	return r
}

// protocols are the three, each over what it needs.
func protocols(t *testing.T, each func(t *testing.T, client *http.Client, options []connect.ClientOption)) {
	t.Helper()
	for _, p := range []struct {
		name    string
		http2   bool
		options []connect.ClientOption
	}{
		{"connect", false, nil},
		{"connect get", false, []connect.ClientOption{connect.WithHTTPGet()}},
		{"grpc", true, []connect.ClientOption{connect.WithGRPC()}},
		{"grpc-web", false, []connect.ClientOption{connect.WithGRPCWeb()}},
		{"connect over http2", true, nil},
	} {
		t.Run(p.name, func(t *testing.T) { each(t, newClient(t, p.http2), p.options) })
	}
}

// streamCode is that of a stream that is rejected for overload: where the protocol tells it from a unary call, one that clients try again.
func streamCode(t *testing.T) connect.Code {
	if strings.Contains(t.Name(), "/grpc") {
		return connect.CodeResourceExhausted
	}
	return connect.CodeUnavailable
}

// A rejected call and a rejected stream are told why in their own protocol. A stream holds its slot from before its first message is
// read until its last one is written.
func TestARejectedCallIsToldWhy(t *testing.T) {
	protocols(t, func(t *testing.T, client *http.Client, options []connect.ClientOption) {
		const say, count = "/echo.Echo/Say", "/echo.Echo/Count"
		w, goOn := newWarden(t), make(chan struct{})
		url := serve(t, newMiddleware(t, w), map[string]http.Handler{
			say: connect.NewUnaryHandler(say, func(_ context.Context, req *connect.Request[text]) (*connect.Response[text], error) {
				return connect.NewResponse(req.Msg), nil
			}, connect.WithIdempotency(connect.IdempotencyNoSideEffects)),
			count: connect.NewServerStreamHandler(count, func(_ context.Context, req *connect.Request[text], s *connect.ServerStream[text]) error {
				err := s.Send(req.Msg)
				<-goOn
				return err
			}),
		})
		options = append(options, connect.WithIdempotency(connect.IdempotencyNoSideEffects))
		echo := connect.NewClient[text, text](client, url+say, options...)
		counts := connect.NewClient[text, text](client, url+count, options...)
		unary := func() error { _, err := echo.CallUnary(t.Context(), hello()); return err }
		if err := unary(); err != nil {
			t.Fatal(err)
		}

		first := must(counts.CallServerStream(t.Context(), hello()))(t) // it has the only slot
		if !first.Receive() {
			t.Fatal(first.Err())
		}
		want := told{connect.CodeResourceExhausted, "warden: pressure_high", "PRESSURE_HIGH", true, true, true}
		if diff := cmp.Diff(want, read(t, unary())); diff != "" {
			t.Error("unary:", diff)
		}
		second, err := counts.CallServerStream(t.Context(), hello())
		if err == nil {
			second.Receive()
			err = second.Err()
			_ = second.Close()
		}
		want.Code = streamCode(t)
		if diff := cmp.Diff(want, read(t, err)); diff != "" {
			t.Error("stream:", diff)
		}
		close(goOn)
		if first.Receive() || first.Err() != nil || first.Close() != nil {
			t.Error("its end:", first.Err())
		}
		for w.Limiter().Stats().Running > 0 {
			time.Sleep(time.Millisecond) // a server notices later than its client that the stream has ended
		}
		if err := unary(); err != nil {
			t.Error("with a free slot:", err)
		}

		w.Limiter().Close()
		want = told{connect.CodeUnavailable, "warden: closed", "CLOSED", true, true, false}
		if diff := cmp.Diff(want, read(t, unary())); diff != "" {
			t.Error("closed:", diff)
		}
	})
}

// What is no RPC gets what the middleware answers, on the same server.
func TestOtherRequestsAreLeftAlone(t *testing.T) {
	w := newWarden(t)
	url := serve(t, newMiddleware(t, w), map[string]http.Handler{"/": http.NotFoundHandler()})
	w.Limiter().Close()
	client := newClient(t, false)
	for _, send := range []func() (*http.Response, error){
		func() (*http.Response, error) { return client.Get(url) },
		func() (*http.Response, error) { return client.Post(url, "application/json", strings.NewReader("{}")) },
	} {
		resp := must(send())(t)
		var problem struct{ Reason string }
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err := json.Unmarshal(body, &problem); err != nil || problem.Reason != "closed" ||
			resp.StatusCode != http.StatusServiceUnavailable ||
			resp.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%d %s", resp.StatusCode, body)
		}
	}
}

func TestConvert(t *testing.T) {
	w := newWarden(t)
	w.Limiter().Close()
	_, closed := w.TryAcquire(warden.Task{Name: "inside"})
	got := wardenconnect.Convert(closed)
	if diff := cmp.Diff(told{connect.CodeUnavailable, "warden: closed", "CLOSED", true, false, false}, read(t, got)); diff != "" {
		t.Error(diff)
	}
	var why *warden.Rejection
	if !errors.As(got, &why) || why.Task.Name != "inside" {
		t.Errorf("%v: the cause is lost", got)
	}
	if again := wardenconnect.Convert(got); !errors.Is(again, got) {
		t.Errorf("converted twice: %v", again)
	}
	for _, err := range []error{nil, io.EOF} {
		if got := wardenconnect.Convert(err); !errors.Is(got, err) {
			t.Errorf("%v became %v", err, got)
		}
	}
	open := &decision.Rejection{Explanation: decision.Explanation{Reason: bulkhead.BreakerOpen}}
	for err, want := range map[error]told{
		open:                           {connect.CodeUnavailable, "warden: breaker_open", "BREAKER_OPEN", false, false, true},
		decision.ErrReentry:            {connect.CodeInternal, "warden: reentry", "REENTRY", false, false, false},
		bulkhead.ErrUnknownCompartment: {connect.CodeInternal, "warden: unknown_compartment", "UNKNOWN_COMPARTMENT", false, false, false},
	} {
		if diff := cmp.Diff(want, read(t, wardenconnect.Convert(err))); diff != "" {
			t.Error(diff)
		}
	}
}

// A client's deadline is known before connect reads it, whatever the protocol, and ends the handler's context as if the client had left
// (H14).
func TestAClientsDeadlineIsNoFailure(t *testing.T) {
	protocols(t, func(t *testing.T, client *http.Client, options []connect.ClientOption) {
		const path = "/echo.Echo/Say"
		type end struct {
			err, cause error
			left       time.Duration // when it began
		}
		ended := make(chan end, 1)
		url := serve(t, newMiddleware(t, newWarden(t)), map[string]http.Handler{path: connect.NewUnaryHandler(path,
			func(ctx context.Context, _ *connect.Request[text]) (*connect.Response[text], error) {
				at, _, _ := timelimit.Due(ctx)
				left := time.Until(at)
				<-ctx.Done()
				ended <- end{ctx.Err(), context.Cause(ctx), left}
				return nil, ctx.Err()
			}, connect.WithIdempotency(connect.IdempotencyNoSideEffects))})
		echo := connect.NewClient[text, text](client, url+path, options...)
		const long = 200 * time.Millisecond
		ctx, cancel := context.WithTimeout(t.Context(), long)
		defer cancel()
		_, err := echo.CallUnary(ctx, hello())
		got := <-ended
		if got.left <= 0 || got.left > long {
			t.Errorf("H14: the handler has %v left", got.left)
		}
		if !errors.Is(got.err, context.Canceled) || !errors.Is(got.cause, context.Canceled) ||
			errors.Is(got.cause, context.DeadlineExceeded) || err == nil {
			t.Errorf("H14: the handler's context: %v, because %v; the client: %v", got.err, got.cause, err)
		}
	})
}
