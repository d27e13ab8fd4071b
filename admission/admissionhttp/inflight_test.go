// SPDX-License-Identifier: Apache-2.0

// A2 over HTTP: a request is in flight until its handler and its connection, or its response, have ended.

package admissionhttp_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
)

func (g gate) wantInFlight(t *testing.T, when string, want int) {
	t.Helper()
	if got := g.Stats().InFlight; got != want {
		t.Errorf("A2: %s: %d in flight, want %d", when, got, want)
	}
}

// ends are the ways in which a handler ends.
var ends = map[string]func(){"returns": func() {}, "panics": func() { panic(http.ErrAbortHandler) }, "exits": runtime.Goexit}

func TestHandlerHoldsUntilItEnds(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		for name, end := range ends {
			g := newGate(t, "server", 1)
			s := startServer(t, newHandler(t, g, func(w http.ResponseWriter, _ *http.Request) {
				g.wantInFlight(t, "in a handler that "+name, 1)
				_, _ = io.WriteString(w, "begin")
				if err := http.NewResponseController(w).Flush(); err != nil {
					t.Error(err)
				}
				if _, ok := w.(http.Flusher); !ok {
					t.Errorf("%T is no http.Flusher", w)
				}
				_, _ = io.Copy(w, strings.NewReader("end"))
				end()
			}), http2)
			if resp, err := post(t, s); err == nil {
				text, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				if name == "returns" && (string(text) != "beginend" || resp.ProtoMajor == 2 != http2) {
					t.Errorf("the client got %q by %s", text, resp.Proto)
				}
			}
			g.wantEmpty(t)
		}
	}
}

// A hijacked connection that outlives its handler is in flight too, whichever way it was hijacked and the handler ended.
func TestHijackedConnectionHoldsUntilClosed(t *testing.T) {
	for name, end := range ends {
		for by, hijack := range map[string]func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error){
			"assertion": func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) { return w.(http.Hijacker).Hijack() },
			"controller": func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) {
				return http.NewResponseController(w).Hijack()
			},
		} {
			t.Run(name+" "+by, func(t *testing.T) {
				g := newGate(t, "server", 1)
				conns, done := make(chan net.Conn, 1), make(chan struct{}, 3)
				h := newHandler(t, g, func(w http.ResponseWriter, _ *http.Request) {
					c, _, err := hijack(w)
					if err != nil {
						t.Error(err)
					}
					if _, _, err := hijack(w); !errors.Is(err, http.ErrHijacked) {
						t.Errorf("a second Hijack: %v", err)
					}
					conns <- c
					end()
				})
				s := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					defer func() { done <- struct{}{} }()
					h.ServeHTTP(w, r)
				}), false)
				gone := make(chan struct{})
				go func() {
					defer close(gone)
					if resp, err := post(t, s); err == nil {
						resp.Body.Close()
					}
				}()
				c := <-conns
				<-done // the handler has ended
				g.wantInFlight(t, "after the handler", 1)
				wantStatus(t, s, http.StatusServiceUnavailable)
				if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
					t.Error(err)
				}
				g.wantInFlight(t, "after CloseWrite", 1)
				var all sync.WaitGroup
				for range 4 {
					all.Go(func() { _ = c.Close() })
				}
				all.Wait()
				<-gone
				g.wantEmpty(t)
			})
		}
	}
}

// A connection that is closed while its handler still works, once or twice, does not end the request.
func TestClosedConnectionHoldsUntilTheHandlerIsDone(t *testing.T) {
	for _, times := range []int{1, 2} {
		g := newGate(t, "server", 1)
		s := startServer(t, newHandler(t, g, func(w http.ResponseWriter, _ *http.Request) {
			c, _, err := http.NewResponseController(w).Hijack()
			for range times {
				_ = c.Close()
			}
			if g.wantInFlight(t, "after Close, in the handler", 1); err != nil {
				t.Error(err)
			}
		}), false)
		if resp, err := post(t, s); err == nil {
			resp.Body.Close()
		}
		g.wantEmpty(t)
	}
}

// unwraps hides all that a ResponseWriter can but Unwrap, as a logging middleware does.
type unwraps struct{ http.ResponseWriter }

func (u unwraps) Unwrap() http.ResponseWriter { return u.ResponseWriter }

// hijackable is a ResponseWriter whose Hijack fails, in the way that the test says.
type hijackable struct {
	http.ResponseWriter
	hijack func() (net.Conn, *bufio.ReadWriter, error)
}

func (h hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) { return h.hijack() }

func TestFailedHijackDoesNotHold(t *testing.T) {
	for name, hijack := range map[string]func() (net.Conn, *bufio.ReadWriter, error){
		"error":         func() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, http.ErrHijacked },
		"no connection": func() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, nil },
		"panic":         func() (net.Conn, *bufio.ReadWriter, error) { panic("on purpose") },
	} {
		g := newGate(t, "server", 1)
		h := newHandler(t, g, func(w http.ResponseWriter, _ *http.Request) {
			defer func() { _ = recover() }()
			if c, _, _ := w.(http.Hijacker).Hijack(); c != nil {
				t.Errorf("%s: a connection", name)
			}
		})
		h.ServeHTTP(unwraps{hijackable{httptest.NewRecorder(), hijack}}, newRequest())
		g.wantInFlight(t, name, 0)
	}
}

// A base that panics, or calls Goexit, gives the slot back.
func TestBaseThatDoesNotReturn(t *testing.T) {
	for _, name := range []string{"panics", "exits"} {
		g := newGate(t, "orders", 1)
		rt := newTransport(t, g, roundTrip(func(*http.Request) (*http.Response, error) { ends[name](); return nil, nil }))
		var all sync.WaitGroup
		all.Go(func() {
			defer func() { _ = recover() }()
			_, _ = rt.RoundTrip(newRequest())
		})
		all.Wait()
		g.wantInFlight(t, "after a base that "+name, 0)
	}
}

// both is the body after 101: it reads and writes.
type both struct {
	*payload
	io.Writer
}

func TestResponseHoldsUntilItEnds(t *testing.T) {
	failed := errors.New("on purpose")
	read := func(resp *http.Response) { _, _ = io.ReadAll(resp.Body) }
	shut := func(resp *http.Response) { resp.Body.Close() }
	for name, c := range map[string]struct {
		method string
		status int
		body   io.ReadCloser
		err    error
		end    func(*http.Response) // nil: nothing more can come
	}{
		"read":         {"GET", 200, newPayload("text"), nil, read},
		"closed":       {"GET", 200, newPayload("text"), nil, shut},
		"fails":        {"GET", 200, &payload{Reader: iotest.ErrReader(failed)}, nil, read},
		"an error":     {"GET", 0, nil, failed, nil},
		"http.NoBody":  {"GET", 500, http.NoBody, nil, nil},
		"HEAD":         {"HEAD", 200, newPayload(""), nil, nil},
		"no content":   {"GET", 204, newPayload(""), nil, nil},
		"not modified": {"GET", 304, newPayload(""), nil, nil},
		"upgraded":     {"GET", 101, both{newPayload("text"), io.Discard}, nil, shut},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(t, "orders", 1)
			rt := newTransport(t, g, roundTrip(func(*http.Request) (*http.Response, error) {
				g.wantInFlight(t, "in the base", 1)
				if c.err != nil {
					return nil, c.err
				}
				return &http.Response{StatusCode: c.status, Body: c.body}, nil
			}))
			resp, err := rt.RoundTrip(httptest.NewRequest(c.method, "/", http.NoBody))
			if !errors.Is(err, c.err) {
				t.Fatal(err)
			}
			if c.end == nil {
				g.wantInFlight(t, "when nothing more can come", 0)
				return
			}
			defer resp.Body.Close()
			g.wantInFlight(t, "before the body has ended", 1)
			if c.status == http.StatusSwitchingProtocols {
				read(resp)
				g.wantInFlight(t, "after one direction", 1)
				if err := resp.Body.(interface{ CloseWrite() error }).CloseWrite(); !errors.Is(err, http.ErrNotSupported) {
					t.Errorf("CloseWrite: %v", err)
				}
			}
			c.end(resp)
			g.wantInFlight(t, "at the end", 0)
			if next, err := g.TryAcquire(); err != nil {
				t.Error(err)
			} else {
				c.end(resp)
				g.wantInFlight(t, "ended twice: the next one", 1)
				next.Release()
			}
		})
	}
}
