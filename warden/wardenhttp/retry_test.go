// SPDX-License-Identifier: Apache-2.0

// What is sent again, and what is not: on real connections, and beside a model.

package wardenhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/retry"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// generous retries as often as the rules of safety let it, and at once.
var generous = retry.Config{Ratio: 1, MinRetries: 1000, Backoff: 1}

func newCaller(t fataler, cfg retry.Config) *retry.Caller {
	t.Helper()
	return must(retry.New(cfg))(t)
}

func newRetry(t fataler, c *retry.Caller, cfg wardenhttp.RetryConfig) http.RoundTripper {
	t.Helper()
	return must(wardenhttp.NewRetry(c, cfg))(t)
}

// outcome is one answer of the base, and what the model knows of it.
type outcome struct {
	status                   int // 0: err
	rejected                 bool
	err                      error
	again, unprocessed, sent bool
}

var outcomes = []outcome{
	{status: 200, sent: true}, {status: 404, sent: true}, {status: 500, sent: true},
	{status: 503, again: true, sent: true}, {status: 429, again: true, sent: true}, {status: 502, again: true, sent: true},
	{status: 504, again: true, sent: true},
	{status: 503, rejected: true, again: true, unprocessed: true, sent: true},
	{status: 504, rejected: true, again: true, unprocessed: true, sent: true},
	{status: 500, rejected: true, sent: true},
	{err: &net.OpError{Op: "dial", Err: errors.New("rejected")}, again: true, unprocessed: true},
	{err: &net.OpError{Op: "read", Err: errors.New("reset")}, again: true, sent: true},
	{err: io.ErrUnexpectedEOF, again: true, sent: true}, {err: context.DeadlineExceeded, again: true, sent: true},
	{err: errors.New("x509: unknown authority")}, {err: warden.ErrRejected},
}

// Whatever the base answers: nothing is processed twice that must not be, every body is closed once, every response that nobody
// sees is closed before the next attempt, each attempt sends the whole body, and the last answer is what is returned.
func TestPropertyMachine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		method := rapid.SampledFrom([]string{
			"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "POST", "PATCH", "CONNECT", "get",
		}).Draw(t, "method")
		script := rapid.SliceOfN(rapid.SampledFrom(outcomes), 3, 3).Draw(t, "script")
		key := rapid.Bool().Draw(t, "key")
		kind := rapid.SampledFrom([]string{"none", "NoBody", "rewindable", "once"}).Draw(t, "body")
		timeout := rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(t, "timeout")

		var bodies []*payload
		body := func() *payload {
			bodies = append(bodies, newPayload("whole"))
			return bodies[len(bodies)-1]
		}
		req := httptest.NewRequest(method, "http://host/", nil)
		req.Body = nil
		switch kind {
		case "NoBody":
			req.Body = http.NoBody
		case "once":
			req.Body = body()
		case "rewindable":
			req.Body = body()
			req.GetBody = func() (io.ReadCloser, error) { return body(), nil }
		}
		if key {
			req.Header.Set("Idempotency-Key", "7")
		}

		var responses []*payload
		processed := 0 // perhaps
		base := roundTrip(func(r *http.Request) (*http.Response, error) {
			o := script[len(responses)]
			for i, earlier := range responses {
				if earlier.closes.Load() != 1 && script[i].err == nil {
					t.Fatal("R6: another attempt before the last response was closed")
				}
			}
			if r.Body != nil {
				if b, err := io.ReadAll(r.Body); err != nil || kind != "NoBody" && string(b) != "whole" {
					t.Fatalf("R3: attempt %d sends %q: %v", len(responses)+1, b, err)
				}
				r.Body.Close()
			}
			responses = append(responses, newPayload("answer "+strconv.Itoa(len(responses)+1)))
			if o.sent && !o.unprocessed {
				processed++
			}
			if o.err != nil {
				return nil, o.err
			}
			resp := respond(o.status, responses[len(responses)-1])
			if o.rejected {
				resp.Header.Set("Warden-Rejected", "pressure_high")
			}
			return resp, nil
		})
		resp, err := newRetry(
			t, newCaller(t, generous), wardenhttp.RetryConfig{Base: base, AttemptTimeout: timeout},
		).RoundTrip(req)

		idempotent := key || slices.Contains([]string{"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"}, method)
		want := 1
		for want < 3 && script[want-1].again && (idempotent || script[want-1].unprocessed) && kind != "once" {
			want++
		}
		if len(responses) != want {
			t.Fatalf("R3: %d attempts, want %d", len(responses), want)
		}
		if processed > 1 && !idempotent {
			t.Fatalf("R3: %s was processed %d times", method, processed)
		}
		for i, b := range bodies {
			if n := b.closes.Load(); n != 1 {
				t.Fatalf("R6: body %d was closed %d times", i+1, n)
			}
		}
		last := script[want-1]
		switch {
		case last.err != nil:
			if resp != nil || !errors.Is(err, last.err) {
				t.Fatalf("%v, %v; want %v", resp, err, last.err)
			}
		case err != nil || resp.StatusCode != last.status:
			t.Fatalf("%v, %v; want %d", resp, err, last.status)
		default:
			if n := responses[want-1].closes.Load(); n != 0 {
				t.Fatalf("R6: the answer was closed %d times", n)
			}
			if b, err := io.ReadAll(resp.Body); string(b) != "answer "+strconv.Itoa(want) || err != nil {
				t.Fatalf("R6: the answer is %q: %v", b, err)
			}
			resp.Body.Close()
		}
	})
}

// do sends a request whose body, if it is not empty, can be sent again.
func do(t *testing.T, rt http.RoundTripper, method, url, body string) (int, string, error) {
	t.Helper()
	req := must(http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body)))(t)
	resp, err := (&http.Client{Transport: rt}).Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b := must(io.ReadAll(resp.Body))(t)
	return resp.StatusCode, string(b), nil
}

// echo answers with what it was sent; the first so many requests get reject instead.
func echo(n int32, reject http.HandlerFunc, arrived *atomic.Int32) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if arrived.Add(1) <= n {
			reject(w, r)
			return
		}
		_, _ = io.Copy(w, r.Body)
	})
}

// Over both protocols, through a Transport: what a middleware rejected is sent again whatever it is, on the same connection, and
// nothing else that is not safe.
func TestRealServers(t *testing.T) {
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		closed := newGuard(t, 1, 0)
		closed.Limiter().Close()
		rejecting := newHandler(t, closed, nil)
		ours := func(w http.ResponseWriter, r *http.Request) { rejecting.ServeHTTP(hasty{w}, r) }
		by := func(w http.ResponseWriter, _ *http.Request) { // a handler that has begun
			wardenhttp.WriteError(hasty{w}, nil, &warden.Rejection{})
		}
		aborts := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
		for _, c := range []struct {
			method string
			reject http.HandlerFunc
			want   int32 // attempts
		}{
			{"GET", ours, 3}, {"POST", ours, 3}, {"PATCH", ours, 3},
			{"GET", by, 3}, {"PUT", by, 3}, {"POST", by, 1},
			{"PUT", aborts, 3}, {"POST", aborts, 1},
		} {
			var arrived atomic.Int32
			s := serve(echo(2, c.reject, &arrived))
			g := newGuard(t, 1, 0)
			rt := newRetry(t, newCaller(t, generous), wardenhttp.RetryConfig{Base: newTransport(t, g, s.Client().Transport)})
			status, body, err := do(t, rt, c.method, s.URL, "hello")
			if got := arrived.Load(); got != c.want {
				t.Errorf("R3: %s: %d attempts, want %d", c.method, got, c.want)
			}
			if c.want == 3 && (err != nil || status != http.StatusOK || body != "hello") {
				t.Errorf("R3: %s: %d %q %v", c.method, status, body, err)
			}
			if c.want == 1 && err == nil && status != http.StatusServiceUnavailable {
				t.Errorf("R3: %s: %d", c.method, status)
			}
			g.wantEmpty(t)
			(&http.Client{Transport: rt}).CloseIdleConnections()
		}
	})
}

// hasty asks for no patience: these tests wait for nothing.
type hasty struct{ http.ResponseWriter }

func (h hasty) WriteHeader(status int) {
	h.Header().Del("Retry-After")
	h.ResponseWriter.WriteHeader(status)
}

func TestRejectedResponsesKeepTheirConnection(t *testing.T) {
	var arrived, connections atomic.Int32
	s := httptest.NewUnstartedServer(echo(4, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "busy", http.StatusServiceUnavailable)
	}, &arrived))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.Start()
	defer s.Close()
	cfg := generous
	cfg.Attempts = 5
	rt := newRetry(t, newCaller(t, cfg), wardenhttp.RetryConfig{Base: s.Client().Transport})
	if status, body, err := do(t, rt, "PUT", s.URL, "hello"); status != http.StatusOK || body != "hello" || err != nil {
		t.Errorf("R6: %d %q %v", status, body, err)
	}
	if arrived.Load() != 5 || connections.Load() != 1 {
		t.Errorf("R6: %d attempts on %d connections", arrived.Load(), connections.Load())
	}
}

// Nobody listens: nothing was sent, so a POST is tried again, and its body is closed each time.
func TestConnectionRejected(t *testing.T) {
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	l.Close()
	c := newCaller(t, generous)
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	if _, _, err := do(t, newRetry(t, c, wardenhttp.RetryConfig{Base: base}), "POST", "http://"+
		l.Addr().String(), "hello"); err == nil {
		t.Error("R3: answered")
	}
	if s := c.Stats(); s.Calls != 1 || s.Retries != 2 || s.Rejected != 3 {
		t.Errorf("R3: %+v", s)
	}
}

// What the throttle rejects is not sent, and says so through an http.Client.
func TestThrottledRequestIsNotSent(t *testing.T) {
	var sent int
	cfg := retry.Config{Rand: func() float64 { return 0 }}
	rt := newRetry(t, newCaller(t, cfg), wardenhttp.RetryConfig{Base: roundTrip(func(*http.Request) (*http.Response, error) {
		sent++
		return respond(http.StatusServiceUnavailable, http.NoBody), nil
	})})
	client := &http.Client{Transport: rt}
	for i := range 40 {
		b := newPayload("hello")
		req := httptest.NewRequest(http.MethodPost, "http://host/", b)
		req.RequestURI = ""
		resp, err := client.Do(req)
		if i < 10 != (err == nil) || err != nil && (!errors.Is(err, retry.ErrThrottled) ||
			!strings.Contains(err.Error(), fmt.Sprintf("of the last %d requests", i)) || resp != nil) {
			t.Fatalf("R4: request %d: %v, %v", i, resp, err)
		}
		if err != nil && b.closes.Load() != 1 {
			t.Errorf("R4: its body was closed %d times", b.closes.Load())
		}
	}
	if sent != 10 {
		t.Errorf("R4: %d were sent, want 10", sent)
	}
}

// What the server asks for comes first, then the deadline: a wait that would outlast it is not begun, and the rejection is
// returned as it was.
func TestDeadlineBoundsTheWait(t *testing.T) {
	var sent int
	c := newCaller(t, generous)
	rt := newRetry(t, c, wardenhttp.RetryConfig{Base: roundTrip(func(*http.Request) (*http.Response, error) {
		sent++
		return respond(http.StatusServiceUnavailable, newPayload("later"), "Retry-After", "2"), nil
	})})
	ctx, cancel := context.WithTimeout(t.Context(), 1900*time.Millisecond)
	defer cancel()
	resp := must(rt.RoundTrip(newRequest().WithContext(ctx)))(t)
	if b, err := io.ReadAll(resp.Body); sent != 1 || string(b) != "later" || err != nil || ctx.Err() != nil ||
		c.Stats().NoTime != 1 {
		t.Errorf("R5: sent %d times, %q, %v, %+v", sent, b, err, c.Stats())
	}
	resp.Body.Close()
}

// Who goes away while it waits for the next attempt gets the context's error, and leaves nothing open.
func TestCanceledBetweenAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer, first, second := newPayload("later"), newPayload("body"), newPayload("body")
		ctx, cancel := context.WithCancel(t.Context())
		rt := newRetry(t, newCaller(t, retry.Config{}), wardenhttp.RetryConfig{Base: roundTrip(func(r *http.Request) (*http.Response, error) {
			r.Body.Close()
			time.AfterFunc(time.Second, cancel)
			return respond(http.StatusServiceUnavailable, answer, "Retry-After", "5"), nil
		})})
		req := httptest.NewRequest(http.MethodPut, "/", first).WithContext(ctx)
		req.GetBody = func() (io.ReadCloser, error) { return second, nil }
		if resp, err := rt.RoundTrip(req); resp != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("R6: %v, %v", resp, err)
		}
		for i, b := range []*payload{answer, first, second} {
			if n := b.closes.Load(); n != 1 {
				t.Errorf("R6: body %d was closed %d times", i, n)
			}
		}
	})
}

// A server that does not answer is asked again after AttemptTimeout, if that is safe.
func TestAttemptTimeout(t *testing.T) {
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		for method, want := range map[string]int32{"PUT": 2, "POST": 1} {
			var arrived atomic.Int32
			s := serve(echo(1, func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				<-r.Context().Done()
			}, &arrived))
			c := newCaller(t, generous)
			rt := newRetry(t, c, wardenhttp.RetryConfig{Base: s.Client().Transport, AttemptTimeout: 300 * time.Millisecond})
			status, body, err := do(t, rt, method, s.URL, "hello")
			var late net.Error
			switch {
			case want == 2 && (status != http.StatusOK || body != "hello" || err != nil):
				t.Errorf("%s: %d %q %v", method, status, body, err)
			case want == 1 && (!errors.As(err, &late) || !errors.Is(err, context.DeadlineExceeded) || !late.Timeout()):
				t.Errorf("%s: %v", method, err)
			}
			if got := arrived.Load(); got != want || c.Stats().Failed != 1 {
				t.Errorf("%s: %d attempts, %+v", method, got, c.Stats())
			}
		}
	})
}

// The hedge carries one class less, the first answer wins, and the loser hears that nobody waits for it.
func TestHedgeWins(t *testing.T) {
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		arrived, left := make(chan struct{}), make(chan struct{})
		s := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch p := r.Header.Get("Warden-Priority"); p {
			case "high":
				close(arrived)
				<-r.Context().Done()
				close(left)
			case "": // normal, which need not be said
				<-arrived // whichever came first
				_, _ = io.WriteString(w, "hedge")
			default:
				t.Errorf("R7: priority %q", p)
			}
		}))
		c := newCaller(t, generous)
		rt := newRetry(t, c, wardenhttp.RetryConfig{Base: s.Client().Transport, HedgeAfter: time.Millisecond})
		ctx := warden.WithPriority(t.Context(), decision.High)
		req := must(http.NewRequestWithContext(ctx, http.MethodGet, s.URL, http.NoBody))(t)
		resp := must(rt.RoundTrip(req))(t)
		if b, err := io.ReadAll(resp.Body); string(b) != "hedge" || err != nil {
			t.Errorf("R7: %q, %v", b, err)
		}
		resp.Body.Close()
		await(t, "the loser hears of it", left)
		if len(req.Header) != 0 {
			t.Errorf("R7: the request was changed: %v", req.Header)
		}
		if got := c.Stats(); got.Hedges != 1 || got.Accepted != 1 || got.Rejected+got.Failed != 0 {
			t.Errorf("R7: %+v", got)
		}
	})
}

// What nobody waits for any more is neither hedged nor sent again, and costs no budget.
func TestNothingIsSentAgainForNobody(t *testing.T) {
	for _, cfg := range []wardenhttp.RetryConfig{{}, {HedgeAfter: time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			attempts := 0
			cfg.Base = roundTrip(func(*http.Request) (*http.Response, error) {
				attempts++
				time.Sleep(2 * time.Second)
				return respond(http.StatusServiceUnavailable, http.NoBody), nil
			})
			c := newCaller(t, generous)
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second/2, cancel)
			if resp, err := newRetry(t, c, cfg).RoundTrip(newRequest().WithContext(ctx)); err == nil {
				resp.Body.Close()
			}
			if s := c.Stats(); attempts != 1 || s.Retries+s.Hedges != 0 {
				t.Errorf("R7: %d attempts, %+v", attempts, s)
			}
		})
	}
}

// A hedge that is rejected leaves the first attempt alone. One that has not answered before it, outlive_test.go ends.
func TestHedgeIsRejected(t *testing.T) {
	hedged := make(chan struct{})
	var attempts atomic.Int32
	c := newCaller(t, generous)
	rt := newRetry(t, c, wardenhttp.RetryConfig{HedgeAfter: time.Millisecond, Base: roundTrip(func(r *http.Request) (*http.Response, error) {
		if attempts.Add(1) == 2 {
			defer close(hedged)
			return respond(http.StatusServiceUnavailable, newPayload("busy")), nil
		}
		<-hedged
		if err := r.Context().Err(); err != nil {
			t.Errorf("R7: the first attempt was canceled: %v", err)
		}
		return respond(http.StatusOK, newPayload("first")), nil
	})})
	resp := must(rt.RoundTrip(newRequest()))(t)
	if b, err := io.ReadAll(resp.Body); string(b) != "first" || err != nil {
		t.Errorf("R7: %q, %v", b, err)
	}
	resp.Body.Close()
	if got := c.Stats(); got.Hedges != 1 || got.Accepted != 1 {
		t.Errorf("R7: %+v", got)
	}
}

func TestRetryAllocatesOnce(t *testing.T) {
	resp := respond(http.StatusOK, http.NoBody)
	rt := newRetry(
		t, newCaller(t, retry.Config{}),
		wardenhttp.RetryConfig{Base: roundTrip(func(*http.Request) (*http.Response, error) { return resp, nil })},
	)
	for path, most := range map[string]float64{"/orders": 1, "/orders/17": 3} {
		req := httptest.NewRequest(http.MethodGet, path, http.NoBody)
		if n := testing.AllocsPerRun(1000, func() {
			if _, err := rt.RoundTrip(req); err != nil {
				t.Error(err)
			}
		}); n > most {
			t.Errorf("%s: %v allocations", path, n)
		}
	}
}

// A request that was not sent, because too little of its time was left, says nothing about the server.
func TestNoTimeToSendCountsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := roundTrip(func(*http.Request) (*http.Response, error) {
			t.Error("R8: sent")
			return nil, errors.New("sent")
		})
		for name, b := range map[string]http.RoundTripper{"plain": base, "Transport": newTransport(t, newGuard(t, 1, 0), base)} {
			for _, left := range []time.Duration{-time.Hour, 0, time.Millisecond - 1} {
				for _, hedge := range []time.Duration{0, time.Hour} {
					c := newCaller(t, retry.Config{})
					rt := newRetry(t, c, wardenhttp.RetryConfig{Base: b, AttemptTimeout: time.Hour, HedgeAfter: hedge})
					ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(left))
					sent := newPayload("")
					req := httptest.NewRequest(http.MethodPut, "/", sent).WithContext(ctx)
					req.GetBody = func() (io.ReadCloser, error) { return newPayload(""), nil }
					_, err := rt.RoundTrip(req)
					cancel()
					var timeout net.Error
					if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() ||
						sent.closes.Load() != 1 {
						t.Errorf("R8: %s, %v left: %v, body closed %d times", name, left, err, sent.closes.Load())
					}
					if got := c.Stats(); got.Rejected+got.Failed+got.Accepted != 0 {
						t.Errorf("R8: %s, %v left, hedge %v: %+v", name, left, hedge, got)
					}
				}
			}
		}
	})
}
