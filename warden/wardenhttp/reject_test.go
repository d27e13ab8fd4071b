// SPDX-License-Identifier: Apache-2.0

// Requests that wait, are rejected, go away or are exempt, and who answers them.

package wardenhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// statuses tells the status that each request was answered with, as an access log sees it.
func statuses(h http.Handler) (http.Handler, <-chan int) {
	seen := make(chan int, 100)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l := &logged{ResponseWriter: w, status: http.StatusOK}
		defer func() { seen <- l.status }()
		h.ServeHTTP(l, r)
	}), seen
}

type logged struct {
	http.ResponseWriter
	status int
}

func (l *logged) WriteHeader(status int) { l.status = status; l.ResponseWriter.WriteHeader(status) }

func (l *logged) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// occupied is a guard with one slot, which is taken.
func occupied(t *testing.T, queue int) (*guard, warden.Permit) {
	t.Helper()
	g := newGuard(t, 1, queue)
	busy := must(g.TryAcquire(warden.Task{}))(t)
	t.Cleanup(func() { busy.Release() })
	return g, busy
}

// Rejections are logged once a minute, with their number, wherever the program's own access log is.
func TestRejectionsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := occupied(t, 0)
		h := newMiddleware(t, g, wardenhttp.Config{}).Handler(http.NotFoundHandler())
		var lines strings.Builder
		server := &http.Server{ErrorLog: log.New(&lines, "", 0)} //nolint:gosec // it serves nothing
		for range 150 {                                          // one a second
			recorded(h, by(server, newRequest()))
			time.Sleep(time.Second)
		}
		want := regexp.MustCompile(`^wardenhttp: 1 requests were rejected, the last of them .*: limiter: "secret": rejected: .*
wardenhttp: 60 requests .*
wardenhttp: 60 requests .*
$`)
		if !want.MatchString(lines.String()) {
			t.Errorf("logged %s", &lines)
		}
	})
}

// A request that waits gets its slot, leaves, or waits until its time is up; an access log sees which.
func TestWhoWaits(t *testing.T) {
	for name, c := range map[string]struct {
		timeout time.Duration
		then    func(busy warden.Permit, leave func())
		want    int
	}{
		"its turn comes": {0, func(busy warden.Permit, _ func()) { busy.Release() }, http.StatusAccepted},
		"it leaves":      {0, func(_ warden.Permit, leave func()) { leave() }, 499},
		"it is too late": {time.Millisecond, func(warden.Permit, func()) {}, http.StatusGatewayTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
				g, busy := occupied(t, 1)
				h, seen := statuses(g.handle(t, wardenhttp.Config{Timeout: c.timeout}, func(w http.ResponseWriter, _ *http.Request) {
					w.WriteHeader(http.StatusAccepted)
				}))
				s := serve(h)
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				gone := make(chan error, 1)
				go func() { gone <- inquire(ctx, s.Client(), s.URL, http.NoBody) }()
				if c.timeout == 0 {
					g.wantQueued(t, 1)
				}
				c.then(busy, leave)
				if err := <-gone; errors.Is(err, context.Canceled) != (c.want == 499) {
					t.Error(err)
				}
				if got := <-seen; got != c.want {
					t.Errorf("H5: status %d, want %d", got, c.want)
				}
				if s := g.Limiter().Stats(); s.Queued != 0 || s.Canceled != uint64(number(c.want == 499)) ||
					s.RejectedFor(decision.DeadlineExceeded) != uint64(number(c.timeout > 0)) {
					t.Errorf("H5: %+v", s)
				}
			})
		})
	}
}

// Where the rest of the request is short, the connection is worth more.
func TestRejectionKeepsTheConnection(t *testing.T) {
	s := startServer(t, newHandler(t, newGuard(t, 0, 0), func(http.ResponseWriter, *http.Request) {
		t.Error("H10: called")
	}), false)
	c, in := raw(t, s, "")
	for _, body := range []string{"", "short", strings.Repeat("x", 64<<10)} {
		must(fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body))(t)
		resp := must(http.ReadResponse(in, nil))(t)
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusServiceUnavailable || resp.Close {
			t.Errorf("H10: %d bytes: %s, close %v", len(body), resp.Status, resp.Close)
		}
		if h := resp.Header; h.Get("Content-Type") != "application/problem+json" || h.Get("Retry-After") != "1" && h.Get("Retry-After") != "2" {
			t.Errorf("H5: %v", h)
		}
	}
}

// Over HTTP/2 to ask for the connection's end would be to end it for all.
func TestRejectionKeepsTheHTTP2Connection(t *testing.T) {
	s := startServer(t, newHandler(t, newGuard(t, 0, 0), func(http.ResponseWriter, *http.Request) {
		t.Error("H10: called")
	}), true)
	for i := range 3 {
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) {
			if c.Reused != (i > 0) {
				t.Errorf("H10: request %d: reused %v", i, c.Reused)
			}
		}})
		upload, rest := io.Pipe() // whose end never comes
		resp := must(s.Client().Do(must(http.NewRequestWithContext(ctx, http.MethodPost, s.URL, upload))(t)))(t)
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		_ = rest.Close()
		if resp.StatusCode != http.StatusServiceUnavailable || resp.ProtoMajor != 2 {
			t.Errorf("H10: %s %s", resp.Proto, resp.Status)
		}
	}
}

// Answer answers in its own form, or leaves it to the middleware.
func TestAnswerOfOnesOwn(t *testing.T) {
	full, _ := occupied(t, 0)
	h := full.handle(t, wardenhttp.Config{Answer: func(w http.ResponseWriter, r *http.Request, err error) bool {
		if r.URL.Path != "/page" {
			return false
		}
		http.Error(w, err.Error(), http.StatusTeapot)
		return true
	}}, nil)
	for path, want := range map[string]string{"/page": `418 limiter: "secret": rejected`, "/other": `503 {`} {
		rec := recorded(h, httptest.NewRequest(http.MethodGet, path, http.NoBody))
		if got := fmt.Sprintf("%d %s", rec.Code, rec.Body); !strings.HasPrefix(got, want) {
			t.Errorf("H5: %s: %s", path, got)
		}
	}
}

// Each request brings its own next. The middleware says whose the answer is.
func TestServeSaysWhoAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, 1, 0)
		m := newMiddleware(t, g, wardenhttp.Config{
			Timeout: time.Second, Exempt: func(r *http.Request) bool { return r.URL.Path == "/exempt" },
		})
		fails := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
		answers := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }
		for _, c := range []struct {
			name, path string
			full       bool
			next       http.HandlerFunc
			answered   bool
			status     int
		}{
			{"next answers", "/", false, answers, false, http.StatusTeapot},
			{"next says nothing", "/", false, func(http.ResponseWriter, *http.Request) {}, false, http.StatusOK},
			{"no slot", "/", true, answers, true, http.StatusServiceUnavailable},
			{"time is up", "/", false, fails, true, http.StatusGatewayTimeout},
			{"time is up, next answers", "/", false, func(w http.ResponseWriter, r *http.Request) {
				fails(w, r)
				answers(w, r)
			}, false, http.StatusTeapot},
			{"exempt", "/exempt", true, answers, false, http.StatusTeapot},
		} {
			var full warden.Permit
			if c.full {
				full = must(g.TryAcquire(warden.Task{}))(t)
			}
			rec := httptest.NewRecorder()
			answered := m.Serve(rec, httptest.NewRequest(http.MethodGet, c.path, http.NoBody), c.next)
			full.Release()
			if answered != c.answered || rec.Code != c.status {
				t.Errorf("%s: answered %t with %d, want %t with %d", c.name, answered, rec.Code, c.answered, c.status)
			}
		}
	})
}
