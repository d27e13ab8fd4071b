// SPDX-License-Identifier: Apache-2.0

// Requests whose time is up while their handler runs: what the client is told, and what becomes of the handler and its slot.

package wardenhttp_test

import (
	"bytes"
	"cmp"
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
	"github.com/stopbank/stopbank/warden/internal/timelimit"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// dueIn gives a request a deadline that does not move.
func dueIn(d time.Duration) func(*http.Request) warden.Task {
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
			return handle(t, nil, wardenhttp.Config{Compartment: in(c), Buffered: buffered}, h), func() int {
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
				answered, late := stops, s.writes > timeout && !s.obeys && (buffered || name == "a client's patience") // who is gone by then
				want := max(http.StatusOK, s.status)
				switch {
				case buffered && stops >= timeout:
					answered, want = timeout, http.StatusGatewayTimeout
				case !wrote && stops >= timeout, late:
					want = http.StatusGatewayTimeout
				case !wrote:
					want = http.StatusOK
				}
				synctest.Test(t, func(t *testing.T) {
					var wrong error
					h, inFlight := kind(t, buffered, func(w http.ResponseWriter, r *http.Request) { wrong = s.run(w, r) })
					began := time.Now()
					rec := recorded(h, newRequest())
					if took := time.Since(began); took != answered || rec.Code != want {
						t.Errorf("H16: %d after %v, want %d after %v", rec.Code, took, want, answered)
					}
					ours := want == http.StatusGatewayTimeout
					if ours != strings.Contains(rec.Body.String(), `"reason":"timeout_running"`) {
						t.Errorf("H16: %s", rec.Body)
					}
					if said := wrote && (!ours || late && !buffered); said != (rec.Header().Get("Answer") == "42") {
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
					if late != errors.Is(wrong, http.ErrHandlerTimeout) {
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
		free, failed := make(chan struct{}), make(chan error, 1)
		cfg := wardenhttp.Config{Compartment: in(c), Buffered: true, Task: dueIn(50 * time.Millisecond)}
		s := serve(handle(t, nil, cfg, func(w http.ResponseWriter, r *http.Request) {
			_, err := io.Copy(io.Discard, r.Body)
			<-free
			failed <- err
			_, _ = io.WriteString(w, "too late")
		}))
		upload, client := io.Pipe()
		defer client.Close()
		go func() { _, _ = io.WriteString(client, "x") }()
		resp := send(t, s.Client(), http.MethodPost, s.URL, upload)
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
		eventually(t, "H16: a free slot", func() bool { return c.Snapshot().InFlight == 0 })
		if s := c.Snapshot(); s.Outcomes["canceled"] != 1 { // in time for the compartment, which has no Timeout
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
		g, returned := newGuard(t, 1, 0), false
		h := g.handle(t, wardenhttp.Config{Buffered: true}, c.next)
		var got any
		finish(func() {
			defer func() { got = recover() }()
			recorded(h, newRequest())
			returned = true
		})
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
		h := handle(t, nil, wardenhttp.Config{Compartment: in(c), Buffered: true}, func(http.ResponseWriter, *http.Request) {
			time.Sleep(time.Minute)
			panic("late, on purpose")
		})
		rec := recorded(h, by(server, newRequest()))
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
		cfg := wardenhttp.Config{Buffered: true, BufferPerAnswer: length}
		s := serve(g.handle(t, cfg, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			w.WriteHeader(http.StatusTeapot)
			_, _ = fmt.Fprint(w, strings.Repeat("x", length))
		}))
		resp := send(t, s.Client(), http.MethodGet, s.URL, http.NoBody)
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

// A handler that waits for a body is told that its client has been answered, whoever on the server has ended its context.
func TestNobodyReadsOnBehindABufferedAnswer(t *testing.T) {
	read := make(chan error, 1)
	var cancel context.CancelFunc
	h := newGuard(t, 1, 0).handle(t, wardenhttp.Config{Buffered: true}, func(_ http.ResponseWriter, r *http.Request) {
		time.AfterFunc(20*time.Millisecond, cancel)
		_, err := io.Copy(io.Discard, r.Body)
		read <- err
	})
	s := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var ctx context.Context
		ctx, cancel = context.WithCancel(r.Context())
		defer cancel()
		h.ServeHTTP(w, r.WithContext(ctx))
	}), false)
	nothing, client := io.Pipe()
	defer client.Close()
	resp := send(t, s.Client(), http.MethodPost, s.URL, nothing)
	resp.Body.Close()
	if err := <-read; !errors.Is(err, context.Canceled) {
		t.Errorf("H16: the body: %v", err)
	}
}

// A request that ran out of time after its handler had read the body, or that has none, leaves its connection as it was, also where an
// outer handler has wrapped the body, or a fallback blocks until Grace is over: the next ones are answered.
func TestTheConnectionOutlivesATimeout(t *testing.T) {
	blocks := func(_ http.ResponseWriter, r *http.Request, _ error) bool { <-r.Context().Done(); return false }
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		for name, c := range map[string]struct {
			buffered bool
			fallback func(http.ResponseWriter, *http.Request, error) bool
			body     string
		}{
			"a body":                     {body: "body"},
			"a body, buffered":           {body: "body", buffered: true},
			"a body, fallback":           {body: "body", fallback: blocks},
			"a body, fallback, buffered": {body: "body", fallback: blocks, buffered: true},
			"no body":                    {},
		} {
			const long = 100 * time.Millisecond
			of := compartment(t, bulkhead.CompartmentConfig{Guaranteed: 3})
			cfg := wardenhttp.Config{Compartment: in(of), Timeout: long, Buffered: c.buffered, Fallback: c.fallback, Grace: long}
			var asked atomic.Int32
			h := handle(t, nil, cfg, func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if asked.Add(1) == 1 {
					<-r.Context().Done()
				}
			})
			s := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Body = struct{ io.ReadCloser }{r.Body}
				h.ServeHTTP(w, r)
			}))
			conns := map[string]bool{}
			trace := &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { conns[c.Conn.LocalAddr().String()] = true }}
			for i, want := range []int{http.StatusGatewayTimeout, http.StatusOK, http.StatusOK} {
				ctx := httptrace.WithClientTrace(t.Context(), trace)
				req := must(http.NewRequestWithContext(ctx, http.MethodPost, s.URL, strings.NewReader(c.body)))(t)
				resp := must(s.Client().Do(req))(t)
				_, _ = io.Copy(io.Discard, resp.Body)
				if resp.Body.Close(); resp.StatusCode != want {
					t.Errorf("H16: %s: request %d: %s, want %d", name, i, resp.Status, want)
				}
			}
			if len(conns) != 1 {
				t.Errorf("H16: %s: %d connections, want 1", name, len(conns))
			}
			if got, want := fallbacksOf(of), (degraded{Failed: uint64(number(c.fallback != nil))}); got != want {
				t.Errorf("B9: %s: %+v, want %+v", name, got, want)
			}
		}
	})
}

// Each request has the timeout of its arrival, whatever it is changed to while the request is served: the warden's, or without
// one the middleware's.
func TestPropertyTimeoutChanges(t *testing.T) {
	timeouts := rapid.SampledFrom([]time.Duration{0, 0, time.Millisecond, time.Second, 3 * time.Second, time.Minute})
	rapid.Check(t, func(rt *rapid.T) {
		own, inCompartment := timeouts.Draw(rt, "own"), rapid.Bool().Draw(rt, "in a compartment")
		changes := rapid.SliceOfN(timeouts, 1, 8).Draw(rt, "changes")
		synctest.Test(t, func(t *testing.T) {
			w := must(warden.New(warden.Config{}))(t)
			cfg := wardenhttp.Config{Timeout: own}
			if inCompartment {
				cfg.Compartment = in(compartment(t, bulkhead.CompartmentConfig{Guaranteed: 8}))
			}
			m := must(wardenhttp.New(w, cfg))(t)
			var all sync.WaitGroup
			for _, timeout := range changes {
				noError(t, w.Adjust("anna", func(b *warden.Bounds) { b.Timeout = timeout }))
				want, arrived := cmp.Or(timeout, own), time.Now()
				handler := m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					time.Sleep(10 * time.Millisecond) // and the timeout changes
					at, _, bounded := timelimit.Due(r.Context())
					if bounded != (want > 0) || bounded && !at.Equal(arrived.Add(want)) {
						t.Errorf("H27: deadline %v after arrival (%v), want %v", at.Sub(arrived), bounded, want)
					}
				}))
				all.Go(func() { recorded(handler, newRequest()) })
				synctest.Wait()
			}
			all.Wait()
		})
	})
}
