// SPDX-License-Identifier: Apache-2.0

// Requests that wait, are rejected, go away or are exempt, on real connections.

package wardenhttp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"testing"
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

func TestWaitsForItsSlot(t *testing.T) {
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		g, busy := occupied(t, 1)
		s := serve(newHandler(t, g, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) }))
		answered := make(chan int, 1)
		go func() {
			resp, err := post(t, s)
			if err != nil {
				t.Error(err)
				answered <- 0
				return
			}
			resp.Body.Close()
			answered <- resp.StatusCode
		}()
		g.wantQueued(t, 1)
		busy.Release()
		if got := <-answered; got != http.StatusAccepted {
			t.Errorf("H1: status %d", got)
		}
		g.wantEmpty(t)
	})
}

// Who goes away while waiting leaves the queue, is never served, and is 499 to a log.
func TestClientThatGoesAwayIsCanceled(t *testing.T) {
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		g, _ := occupied(t, 1)
		h, seen := statuses(newHandler(t, g, func(http.ResponseWriter, *http.Request) { t.Error("H5: called") }))
		s := serve(h)
		ctx, cancel := context.WithCancel(t.Context())
		req := must(http.NewRequestWithContext(ctx, http.MethodGet, s.URL, http.NoBody))(t)
		gone := make(chan error, 1)
		go func() {
			resp, err := s.Client().Do(req)
			if err == nil {
				resp.Body.Close()
			}
			gone <- err
		}()
		g.wantQueued(t, 1)
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if got := <-seen; got != 499 {
			t.Errorf("H5: status %d", got)
		}
		if s := g.Limiter().Stats(); s.Canceled != 1 || s.Queued != 0 || s.Running != 1 {
			t.Errorf("H5: %+v", s)
		}
	})
}

func TestDeadlineThatPassesInTheQueueIs504(t *testing.T) {
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		g, _ := occupied(t, 1)
		s := serve(newMiddleware(t, g, wardenhttp.Config{Timeout: time.Millisecond}).Handler(nil))
		wantStatus(t, s, http.StatusGatewayTimeout)
		if got := g.Limiter().Stats().RejectedFor(decision.DeadlineExceeded); got != 1 {
			t.Errorf("H5: %d for their deadline", got)
		}
	})
}

// raw sends head over a connection of its own and returns it, with what can be read from it.
func raw(t *testing.T, s *httptest.Server, head string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c := must(net.Dial("tcp", s.Listener.Addr().String()))(t)
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	must(io.WriteString(c, head))(t)
	return c, bufio.NewReader(c)
}

// Where the rest of the request is short, the connection is worth more.
func TestRejectionKeepsTheConnection(t *testing.T) {
	s := startServer(t, newHandler(t, newGuard(t, 0, 0), func(http.ResponseWriter, *http.Request) {
		t.Error("H10: called")
	}), false)
	c, in := raw(t, s, "")
	for _, body := range []string{"", "short", strings.Repeat("x", 64<<10)} {
		must(fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body))(t)
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusServiceUnavailable || resp.Close {
			t.Errorf("H10: %d bytes: %s, close %v", len(body), resp.Status, resp.Close)
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
		req := must(http.NewRequestWithContext(ctx, http.MethodPost, s.URL, upload))(t)
		resp, err := s.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
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
	w, err := warden.New(warden.Config{})
	if err != nil {
		t.Fatal(err)
	}
	w.Limiter().Close()
	mw := must(wardenhttp.New(w, wardenhttp.Config{Answer: func(w http.ResponseWriter, r *http.Request, err error) bool {
		var why *warden.Rejection
		if r.URL.Path != "/page" || !errors.As(err, &why) {
			return false
		}
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, string(why.Reason))
		return true
	}}))(t)
	for path, want := range map[string]string{"/page": "418 closed", "/other": "503 {"} {
		rec := httptest.NewRecorder()
		mw.Handler(http.NotFoundHandler()).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, http.NoBody))
		if got := fmt.Sprintf("%d %s", rec.Code, rec.Body); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s", path, got)
		}
	}
}
