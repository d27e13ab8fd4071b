// SPDX-License-Identifier: Apache-2.0

// Requests whose time is up while their handler runs: what the client is told, and what becomes of the handler and its slot.

package wardenhttp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// until gives a request a deadline that does not move.
func until(d time.Duration) func(*http.Request) warden.Task {
	return func(*http.Request) warden.Task { return warden.Task{Deadline: time.Now().Add(d)} }
}

// A script is what a handler does, and when: which it stops with its context or does not.
type script struct {
	writes time.Duration // before it writes; negative: it does not
	status int           // with a header; 0: none
	works  time.Duration // until it returns
	obeys  bool          // it stops with its context
}

func (s script) run(w http.ResponseWriter, r *http.Request) error {
	began := time.Now()
	until := func(d time.Duration) bool {
		var done <-chan struct{}
		if s.obeys {
			done = r.Context().Done()
		}
		select {
		case <-time.After(d - time.Since(began)):
			return true
		case <-done:
			return false
		}
	}
	if s.writes >= 0 {
		if !until(s.writes) {
			return nil
		}
		w.Header().Set("Answer", "42")
		if s.status != 0 {
			w.WriteHeader(s.status)
		}
		if _, err := io.WriteString(w, "body"); err != nil {
			until(s.works)
			return err
		}
	}
	until(s.works)
	return nil
}

// Whatever a handler does, its client is told what it said in time, or 504, and never a 200 that nobody has said; buffered, at
// the instant at which the time is up. It holds its slot until it returns, and not longer.
func TestPropertyTimeIsUp(t *testing.T) {
	const timeout = time.Second
	for name, kind := range map[string]func(t *testing.T, buffered bool, h http.HandlerFunc) (http.Handler, func() int){
		"a compartment": func(t *testing.T, buffered bool, h http.HandlerFunc) (http.Handler, func() int) {
			c := compartment(t, bulkhead.CompartmentConfig{Timeout: timeout})
			return inCompartment(t, wardenhttp.Config{Compartment: in(c), Buffered: buffered}, h), func() int {
				return c.Snapshot().InFlight
			}
		},
		"a warden": func(t *testing.T, buffered bool, h http.HandlerFunc) (http.Handler, func() int) {
			g := newGuard(t, 1, 0)
			return exchangeContext(timeout, newMiddleware(t, g, wardenhttp.Config{Buffered: buffered}).Handler(h)),
				func() int { return g.Limiter().Stats().Running }
		},
		"a client's patience": func(t *testing.T, buffered bool, h http.HandlerFunc) (http.Handler, func() int) {
			g := newGuard(t, 1, 0)
			next := newMiddleware(t, g, wardenhttp.Config{Buffered: buffered}).Handler(h)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Header.Set("Warden-Timeout", strconv.FormatInt(timeout.Milliseconds(), 10))
				next.ServeHTTP(w, r)
			}), func() int { return g.Limiter().Stats().Running }
		},
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				half := func(label string, least int) time.Duration { // never the instant at which the time is up
					return time.Duration(rapid.IntRange(least, 3).Draw(rt, label))*timeout/2 + timeout/4
				}
				s := script{
					half("writes", -1), rapid.SampledFrom([]int{0, 200, 204, 418}).Draw(rt, "status"),
					half("works", 0), rapid.Bool().Draw(rt, "obeys"),
				}
				s.works = max(s.works, s.writes)
				buffered := rapid.Bool().Draw(rt, "buffered")

				// what is written begins the time anew, but for a deadline that does not move
				stops, wrote := s.works, s.writes >= 0 && (!s.obeys || s.writes <= timeout)
				if s.obeys {
					over := timeout
					if wrote && !buffered && name != "a warden" && s.status != http.StatusNoContent { // without a body
						over += s.writes
					}
					stops = min(stops, over)
				}
				answered := stops
				want := max(http.StatusOK, s.status)
				switch {
				case buffered && stops >= timeout:
					answered, want = timeout, http.StatusGatewayTimeout
				case !wrote && stops >= timeout:
					want = http.StatusGatewayTimeout
				case !wrote:
					want = http.StatusOK
				}
				synctest.Test(t, func(t *testing.T) {
					var wrong error
					h, inFlight := kind(t, buffered, func(w http.ResponseWriter, r *http.Request) { wrong = s.run(w, r) })
					began := time.Now()
					rec := httptest.NewRecorder()
					h.ServeHTTP(rec, newRequest())
					if took := time.Since(began); took != answered || rec.Code != want {
						t.Errorf("H16: %d after %v, want %d after %v", rec.Code, took, want, answered)
					}
					late := want == http.StatusGatewayTimeout
					if late != strings.Contains(rec.Body.String(), `"reason":"timeout_running"`) {
						t.Errorf("H16: %s", rec.Body)
					}
					if said := wrote && !late; said != (rec.Header().Get("Answer") == "42") {
						t.Errorf("H16: the handler has answered: %v, header %v", said, rec.Header())
					}
					synctest.Wait() // both may have waited for the same instant
					if n := inFlight(); (n == 1) != (answered < stops) {
						t.Errorf("H16: %d in flight when the client is answered", n)
					}
					time.Sleep(10 * timeout)
					if n := inFlight(); n != 0 {
						t.Errorf("H16: %d in flight in the end", n)
					}
					if wantErr := buffered && s.writes > timeout &&
						!s.obeys; wantErr != errors.Is(wrong, http.ErrHandlerTimeout) {
						t.Errorf("H16: a late Write: %v", wrong)
					}
				})
			})
		})
	}
}

// Over real connections: the answer is there while the handler is stuck, also in reading a body that does not come.
func TestBufferedAnswersWhileTheHandlerIsStuck(t *testing.T) {
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		c := compartment(t, bulkhead.CompartmentConfig{})
		free := make(chan struct{})
		failed := make(chan error, 1)
		s := serve(inCompartment(t, wardenhttp.Config{Compartment: in(c), Buffered: true, Task: until(50 * time.Millisecond)}, func(
			w http.ResponseWriter, r *http.Request,
		) {
			_, err := io.Copy(io.Discard, r.Body)
			<-free
			failed <- err
			_, _ = io.WriteString(w, "too late")
		}))
		upload, client := io.Pipe()
		defer client.Close()
		go func() { _, _ = io.WriteString(client, "x") }()
		req := must(http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, upload))(t)
		resp, err := s.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusGatewayTimeout || !strings.Contains(string(body), "timeout_running") || err != nil {
			t.Errorf("H16: %s: %s, %v", resp.Status, body, err)
		}
		if n := c.Snapshot().InFlight; n != 1 {
			t.Errorf("H16: %d in flight while the handler runs", n)
		}
		close(free)
		if err := <-failed; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("H16: the body: %v", err)
		}
		for hangs := time.Now().Add(patience); c.Snapshot().InFlight > 0 && time.Now().Before(hangs); {
			<-time.After(time.Millisecond)
		}
		if s := c.Snapshot(); s.InFlight != 0 || s.Outcomes["canceled"] != 1 { // in time for the compartment, which has no Timeout
			t.Errorf("H16: %+v", s)
		}
	})
}

// A buffered handler ends as it would without: panics and Goexit are its client's, as long as it waits; afterwards they are
// logged, and end nothing else.
func TestBufferedEndings(t *testing.T) {
	value := errors.New("on purpose")
	for name, c := range map[string]struct {
		next http.HandlerFunc
		want any
	}{
		"panics": {func(http.ResponseWriter, *http.Request) { panic(value) }, value},
		"aborts": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, http.ErrAbortHandler},
		"exits":  {func(http.ResponseWriter, *http.Request) { runtime.Goexit() }, nil},
	} {
		g := newGuard(t, 1, 0)
		h := newMiddleware(t, g, wardenhttp.Config{Buffered: true}).Handler(c.next)
		var got any
		returned := false
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() { got = recover() }()
			h.ServeHTTP(httptest.NewRecorder(), newRequest())
			returned = true
		}()
		<-done
		var wrapped *bulkhead.PanicError
		if err, ok := got.(error); ok && errors.As(err, &wrapped) {
			if got = wrapped.Value; !bytes.Contains(wrapped.Stack, []byte("TestBufferedEndings")) {
				t.Errorf("%s: the stack is not the handler's:\n%s", name, wrapped.Stack)
			}
		}
		if got != c.want || returned {
			t.Errorf("%s: %v, returned %v", name, got, returned)
		}
		g.wantEmpty(t)
	}

	logged := new(lines)
	server := &http.Server{ErrorLog: log.New(logged, "", 0)}
	synctest.Test(t, func(t *testing.T) {
		c := compartment(t, bulkhead.CompartmentConfig{Timeout: time.Second})
		h := inCompartment(t, wardenhttp.Config{Compartment: in(c), Buffered: true}, func(http.ResponseWriter, *http.Request) {
			time.Sleep(time.Minute)
			panic("late, on purpose")
		})
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, newRequest().WithContext(context.WithValue(t.Context(), http.ServerContextKey, server)))
		time.Sleep(time.Hour)
		if rec.Code != http.StatusGatewayTimeout || c.Snapshot().InFlight != 0 ||
			!strings.Contains(logged.String(), "late, on purpose") {
			t.Errorf("%d, %+v, %q", rec.Code, c.Snapshot(), logged.String())
		}
	})
}

// Who reads slowly holds no slot once the answer is kept, and gets all of it.
func TestBufferedAnswersHoldNoSlotWhileTheyAreRead(t *testing.T) {
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		const length = 8 << 20
		g := newGuard(t, 1, 0)
		s := serve(newMiddleware(
			t, g, wardenhttp.Config{Buffered: true, BufferPerAnswer: length},
		).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			w.WriteHeader(http.StatusTeapot)
			_, _ = fmt.Fprint(w, strings.Repeat("x", length))
		})))
		req := must(http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, http.NoBody))(t)
		resp, err := s.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		g.wantEmpty(t)
		body, err := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusTeapot || resp.Header.Get("Content-Type") != "text/plain" || len(body) != length ||
			err != nil {
			t.Errorf("H16: %s, %v, %d bytes, %v", resp.Status, resp.Header, len(body), err)
		}
	})
}

// lines is a log that servers may write while it is read.
type lines struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// A handler that waits for a body is told that its client has been answered, and why, whoever ended its context.
func TestNobodyReadsOnBehindABufferedAnswer(t *testing.T) {
	for name, task := range map[string]func(*http.Request) warden.Task{"a deadline": until(20 * time.Millisecond), "somebody on the server": nil} {
		w := must(warden.New(warden.Config{}))(t)
		mw := must(wardenhttp.New(w, wardenhttp.Config{Buffered: true, Task: task}))(t)
		read := make(chan error, 1)
		h := mw.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, err := io.Copy(io.Discard, r.Body)
			read <- err
		}))
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			if task == nil {
				time.AfterFunc(20*time.Millisecond, cancel)
			}
			h.ServeHTTP(w, r.WithContext(ctx))
		}))
		nothing, client := io.Pipe()
		req := must(http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, nothing))(t)
		req.ContentLength = 8
		resp, err := s.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if err := <-read; !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("H16: %s: the body: %v", name, err)
		}
		_ = client.Close()
		s.Close()
	}
}

// A request that ran out of time after its handler had read the body leaves its connection as it was: the next ones are answered.
func TestTheConnectionOutlivesATimeout(t *testing.T) {
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		for _, buffered := range []bool{false, true} {
			m := newMiddleware(t, newGuard(t, 3, 0), wardenhttp.Config{Timeout: 200 * time.Millisecond, Buffered: buffered})
			var asked atomic.Int32
			s := serve(m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if asked.Add(1) == 1 {
					<-r.Context().Done()
				}
			})))
			for i, want := range []int{http.StatusGatewayTimeout, http.StatusOK, http.StatusOK} {
				if status, text, err := do(t, s.Client().Transport, http.MethodPost, s.URL, "body"); status != want ||
					err != nil {
					t.Errorf("H16: buffered %t: request %d: %d %s, %v; want %d", buffered, i, status, text, err, want)
				}
			}
		}
	})
}

// A request without a body whose time is up leaves its connection as it was, also where an outer handler has wrapped the empty body.
func TestConnectionOutlivesATimeout(t *testing.T) {
	g := newGuard(t, 1, 0)
	h := newMiddleware(t, g, wardenhttp.Config{Timeout: 20 * time.Millisecond}).Handler(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				<-r.Context().Done()
			}
		}))
	s := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = struct{ io.ReadCloser }{r.Body}
		h.ServeHTTP(w, r)
	}), false)
	conns := map[string]bool{}
	for _, path := range []string{"/slow", "/", "/slow", "/"} {
		trace := &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { conns[c.Conn.LocalAddr().String()] = true }}
		req, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodGet, s.URL+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := s.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		if resp.Body.Close(); resp.StatusCode != http.StatusGatewayTimeout && (path == "/slow" || resp.StatusCode != http.StatusOK) {
			t.Errorf("H16: %s: %s", path, resp.Status)
		}
	}
	if len(conns) != 1 {
		t.Errorf("H16: %d connections, want 1", len(conns))
	}
}
