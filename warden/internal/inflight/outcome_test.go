// SPDX-License-Identifier: Apache-2.0

// How a request ended, as its permit learns: handlers and base transports without a network.

package inflight_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden/internal/inflight"
)

// errAny stands for an error that is none of a context.
var errAny = errors.New("any")

// wantOutcome checks the one outcome of g.
func (g *gate) wantOutcome(t *testing.T, name string, want inflight.Outcome) {
	t.Helper()
	if g.wantEmpty(t); len(g.outcomes) != 1 {
		t.Errorf("%s: %d outcomes", name, len(g.outcomes))
		return
	}
	got := g.outcomes[0]
	same := errors.Is(got.Err, want.Err)
	if want.Err == errAny {
		same = got.Err != nil && !errors.Is(got.Err, context.Canceled) && !errors.Is(got.Err, context.DeadlineExceeded)
	}
	if !same || got.Status != want.Status || got.Upgraded != want.Upgraded {
		t.Errorf("%s: %+v, want %+v", name, got, want)
	}
}

func TestOutcomeOfTheHandler(t *testing.T) {
	take := func(w http.ResponseWriter) net.Conn {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
		}
		return c
	}
	for name, c := range map[string]struct {
		next func(cancel func(), w http.ResponseWriter, r *http.Request)
		want inflight.Outcome
	}{
		"returns":  {func(func(), http.ResponseWriter, *http.Request) {}, inflight.Outcome{}},
		"panics":   {func(func(), http.ResponseWriter, *http.Request) { panic("on purpose") }, inflight.Outcome{Err: errAny}},
		"exits":    {func(func(), http.ResponseWriter, *http.Request) { runtime.Goexit() }, inflight.Outcome{Err: errAny}},
		"canceled": {func(cancel func(), _ http.ResponseWriter, _ *http.Request) { cancel() }, inflight.Outcome{Err: context.Canceled}},
		"canceled and panics": {
			func(cancel func(), _ http.ResponseWriter, _ *http.Request) { cancel(); panic(http.ErrAbortHandler) },
			inflight.Outcome{Err: context.Canceled},
		},
		"too late": {
			func(_ func(), _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			inflight.Outcome{Err: context.DeadlineExceeded},
		},
		"a context of its own": { // which says nothing about the client
			func(_ func(), _ http.ResponseWriter, r *http.Request) {
				ctx, cancel := context.WithCancel(r.Context())
				defer cancel()
				*r = *r.WithContext(ctx)
			},
			inflight.Outcome{},
		},
		"hijacked": {
			func(_ func(), w http.ResponseWriter, _ *http.Request) { _ = take(w).Close() },
			inflight.Outcome{Upgraded: true},
		},
		"hijacked, canceled afterwards": { // by net/http, when the handler is done
			func(cancel func(), w http.ResponseWriter, _ *http.Request) {
				c := take(w)
				time.AfterFunc(time.Second, func() { cancel(); _ = c.Close() })
			},
			inflight.Outcome{Upgraded: true},
		},
		"hijacked and panics": {
			func(_ func(), w http.ResponseWriter, _ *http.Request) { defer take(w).Close(); panic("on purpose") },
			inflight.Outcome{Err: errAny, Upgraded: true},
		},
		"hijacked, and once more": {
			func(_ func(), w http.ResponseWriter, _ *http.Request) {
				_ = take(w).Close()
				if _, _, err := http.NewResponseController(w).Hijack(); !errors.Is(err, http.ErrHijacked) {
					t.Errorf("second Hijack: %v", err)
				}
			},
			inflight.Outcome{Upgraded: true},
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newGate(1)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			h := newHandler(g, func(w http.ResponseWriter, r *http.Request) { c.next(cancel, w, r) })
			var taken bool
			finish(func() {
				h.ServeHTTP(&fakeWriter{httptest.NewRecorder(), func() (net.Conn, *bufio.ReadWriter, error) {
					if taken {
						return nil, nil, http.ErrHijacked
					}
					taken = true
					return &fakeConn{close: func() error { return nil }}, nil, nil
				}}, newRequest().WithContext(ctx))
			})
			g.wantOutcome(t, name, c.want)
		})
	}
}

func TestOutcomeOfTheResponse(t *testing.T) {
	failed := errors.New("on purpose")
	answer := func(status int, body io.ReadCloser) func(func(), *http.Request) (*http.Response, error) {
		return func(func(), *http.Request) (*http.Response, error) { return respond(status, body), nil }
	}
	unreachable := func(func(), *http.Request) (*http.Response, error) { return nil, failed }
	broken := hostileBody{Reader: iotest.ErrReader(failed)}
	read := func(_ func(), resp *http.Response) { _, _ = io.ReadAll(resp.Body) }
	shut := func(_ func(), resp *http.Response) { resp.Body.Close() }
	twoWays := twoWay{hostileBody{close: func() error { return nil }}, io.Discard}
	for name, c := range map[string]struct {
		base func(cancel func(), r *http.Request) (*http.Response, error)
		end  func(cancel func(), resp *http.Response) // nil: there is nothing to end
		want inflight.Outcome
	}{
		"read":           {answer(200, newPayload("x")), read, inflight.Outcome{Status: 200}},
		"closed":         {answer(404, newPayload("x")), shut, inflight.Outcome{Status: 404}},
		"500":            {answer(500, newPayload("x")), read, inflight.Outcome{Status: 500}},
		"without a body": {answer(500, http.NoBody), nil, inflight.Outcome{Status: 500}},
		"body fails":     {answer(200, broken), read, inflight.Outcome{Err: failed, Status: 200}},
		"fails at 500":   {answer(500, broken), read, inflight.Outcome{Err: failed, Status: 500}},
		"upgraded":       {answer(101, twoWays), shut, inflight.Outcome{Status: 101, Upgraded: true}},
		"no upgrade":     {answer(200, twoWays), shut, inflight.Outcome{Status: 200}},
		"error":          {unreachable, nil, inflight.Outcome{Err: failed}},
		"panic":          {func(func(), *http.Request) (*http.Response, error) { panic(failed) }, nil, inflight.Outcome{Err: errAny}},
		"exit": {
			func(func(), *http.Request) (*http.Response, error) { runtime.Goexit(); return nil, nil }, nil,
			inflight.Outcome{Err: errAny},
		},
		"too late": {
			func(_ func(), r *http.Request) (*http.Response, error) { <-r.Context().Done(); return nil, failed }, nil,
			inflight.Outcome{Err: context.DeadlineExceeded},
		},
		"canceled": {
			func(cancel func(), _ *http.Request) (*http.Response, error) { cancel(); return nil, failed }, nil,
			inflight.Outcome{Err: context.Canceled},
		},
		"canceled, without a body": {
			func(cancel func(), _ *http.Request) (*http.Response, error) { cancel(); return respond(204, nil), nil }, nil,
			inflight.Outcome{Err: context.Canceled, Status: 204},
		},
		"canceled and read": {
			answer(200, newPayload("x")), func(cancel func(), r *http.Response) { cancel(); _, _ = io.ReadAll(r.Body) },
			inflight.Outcome{Err: context.Canceled, Status: 200},
		},
		"canceled and closed": {
			answer(200, newPayload("x")), func(cancel func(), r *http.Response) { cancel(); r.Body.Close() },
			inflight.Outcome{Err: context.Canceled, Status: 200},
		},
		"canceled after the end": {
			answer(200, newPayload("x")), func(cancel func(), r *http.Response) { r.Body.Close(); cancel(); r.Body.Close() },
			inflight.Outcome{Status: 200},
		},
		"canceled after the upgrade": {
			answer(101, twoWays), func(cancel func(), r *http.Response) { cancel(); r.Body.Close() },
			inflight.Outcome{Status: 101, Upgraded: true},
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newGate(1)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			rt := newTransport(g, roundTrip(func(r *http.Request) (*http.Response, error) { return c.base(cancel, r) }))
			var resp *http.Response
			finish(func() { resp, _ = rt.RoundTrip(newRequest().WithContext(ctx)) })
			if c.end != nil {
				g.wantInFlight(t, name+", with the headers", 1)
				c.end(cancel, resp)
			}
			g.wantOutcome(t, name, c.want)
		})
	}
}
