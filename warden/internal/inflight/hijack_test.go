// SPDX-License-Identifier: Apache-2.0

// Hijacked connections, and what the ResponseWriter can still do.

package inflight_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// hijackers are the two ways to a connection.
var hijackers = map[string]func(http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error){
	"assertion": func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) {
		h, ok := w.(http.Hijacker)
		if !ok {
			return nil, nil, errors.New("not an http.Hijacker")
		}
		return h.Hijack()
	},
	"controller": func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) {
		return http.NewResponseController(w).Hijack()
	},
}

// answer is what a handler writes on a connection that it has taken.
const answer = "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"

// A takeover is a handler that hijacks and says when it has, with the connection, and when it is done.
type takeover struct {
	conns chan net.Conn
	done  chan struct{}
}

func newTakeover() *takeover {
	return &takeover{make(chan net.Conn, 1), make(chan struct{}, 1)}
}

// around tells when the handler under the gate has ended.
func (o *takeover) around(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { o.done <- struct{}{} }()
		h.ServeHTTP(w, r)
	})
}

func TestHijackedConnectionHoldsUntilClosed(t *testing.T) {
	type wrap func(http.Handler) http.Handler
	for name, hijack := range hijackers {
		for outside, wrap := range map[string]wrap{
			"":         func(h http.Handler) http.Handler { return h },
			", unwrap": unwrapOnly,
		} {
			t.Run(name+outside, func(t *testing.T) {
				g := newGate(1)
				o := newTakeover()
				s := startServer(t, wrap(o.around(newHandler(g, func(w http.ResponseWriter, _ *http.Request) {
					c, buf, err := hijack(w)
					if err != nil {
						t.Errorf("H2: Hijack: %v", err)
						return
					}
					_, _ = buf.WriteString(answer)
					_ = buf.Flush()
					o.conns <- c
				}))), false)

				wantStatus(t, s, http.StatusNoContent)
				await(t, "the end of the handler", o.done)
				g.wantInFlight(t, "after the handler", 1)
				wantStatus(t, s, http.StatusServiceUnavailable)
				await(t, "the end of the rejected request", o.done)

				c := <-o.conns
				if err := c.Close(); err != nil {
					t.Errorf("H2: Close: %v", err)
				}
				g.wantInFlight(t, "after Close", 0)
				if err := c.Close(); !errors.Is(err, net.ErrClosed) {
					t.Errorf("H2: second Close: %v", err)
				}
				g.wantEmpty(t)

				wantStatus(t, s, http.StatusNoContent)
				_ = (<-o.conns).Close()
				g.wantEmpty(t)
			})
		}
	}
}

// unwrapOnly hides everything that a ResponseWriter can, as a careless middleware does; Unwrap still leads there.
func unwrapOnly(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(wrapped{w}, r) })
}

func TestClosedConnectionHoldsUntilTheHandlerIsDone(t *testing.T) {
	g := newGate(1)
	h := newHandler(g, func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		var all sync.WaitGroup
		for range 8 { // closed often, and by many
			all.Go(func() { _ = c.Close() })
		}
		all.Wait()
		_ = c.Close()
		g.wantInFlight(t, "in the handler, after Close", 1)
	})
	o := newTakeover()
	s := startServer(t, o.around(h), false)
	if resp, err := post(t, s); err == nil {
		resp.Body.Close()
		t.Errorf("H2: status %d from a closed connection", resp.StatusCode)
	}
	await(t, "the end of the handler", o.done)
	g.wantInFlight(t, "after the handler", 0)
	g.wantEmpty(t)
}

// The server does not close a hijacked connection when the handler panics: whoever has it may still be at work.
func TestHijackedConnectionHoldsAfterPanicAndGoexit(t *testing.T) {
	for name, end := range map[string]func(){
		"panic":  func() { panic(http.ErrAbortHandler) },
		"Goexit": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(1)
			o := newTakeover()
			s := startServer(t, o.around(newHandler(g, func(w http.ResponseWriter, _ *http.Request) {
				c, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				o.conns <- c
				end()
			})), false)
			answered := make(chan *http.Response, 1)
			go func() {
				resp, err := post(t, s)
				if err != nil {
					t.Errorf("H2: over the hijacked connection: %v", err)
				}
				answered <- resp
			}()
			await(t, "the end of the handler", o.done)
			g.wantInFlight(t, "after the handler", 1)
			c := <-o.conns
			if _, err := io.WriteString(c, answer); err != nil {
				t.Errorf("H2: the connection is not usable: %v", err)
			}
			if resp := <-answered; resp != nil {
				resp.Body.Close()
			}
			_ = c.Close()
			g.wantEmpty(t)
		})
	}
}

func TestFailedHijackDoesNotHold(t *testing.T) {
	g := newGate(1)
	o := newTakeover()
	s := startServer(t, o.around(newHandler(g, func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		for name, hijack := range hijackers {
			if _, _, err := hijack(w); !errors.Is(err, http.ErrHijacked) {
				t.Errorf("H2: second Hijack by %s: %v", name, err)
			}
		}
		_, _ = io.WriteString(c, answer)
		o.conns <- c
	})), false)
	wantStatus(t, s, http.StatusNoContent)
	await(t, "the end of the handler", o.done)
	g.wantInFlight(t, "after the handler", 1)
	_ = (<-o.conns).Close()
	g.wantEmpty(t)
}

// Writers that net/http does not have: what Hijack does with them must not keep the permit, nor lose it.
func TestHostileHijackReleases(t *testing.T) {
	c := &fakeConn{close: func() error { return nil }}
	for name, hijack := range map[string]func() (net.Conn, *bufio.ReadWriter, error){
		"panic":                func() (net.Conn, *bufio.ReadWriter, error) { panic("on purpose") },
		"Goexit":               func() (net.Conn, *bufio.ReadWriter, error) { runtime.Goexit(); return nil, nil, nil },
		"no connection":        func() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, nil },
		"connection and error": func() (net.Conn, *bufio.ReadWriter, error) { return c, nil, errors.New("on purpose") },
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(1)
			h := newHandler(g, func(w http.ResponseWriter, _ *http.Request) {
				defer func() { g.wantInFlight(t, "in the handler, after Hijack", 1) }()
				if got, _, err := http.NewResponseController(w).Hijack(); got != nil && err == nil {
					t.Errorf("H2: a connection: %v", got)
				}
			})
			finish(func() { h.ServeHTTP(&fakeWriter{httptest.NewRecorder(), hijack}, newRequest()) })
			if g.wantEmpty(t); g.outcomes[0].Upgraded {
				t.Error("H2: nothing was hijacked, and the request is upgraded")
			}
		})
	}
}

// takeFake is a connection as the handler gets it, over one whose Close does what the test says. The handler is done.
func takeFake(t *testing.T, g *gate, inner net.Conn) net.Conn {
	t.Helper()
	var c net.Conn
	h := newHandler(g, func(w http.ResponseWriter, _ *http.Request) {
		c, _, _ = http.NewResponseController(w).Hijack()
	})
	hijack := func() (net.Conn, *bufio.ReadWriter, error) { return inner, nil, nil }
	h.ServeHTTP(&fakeWriter{httptest.NewRecorder(), hijack}, newRequest())
	g.wantInFlight(t, "after the handler", 1)
	return c
}

func TestConnectionReleasesHoweverCloseEnds(t *testing.T) {
	for name, end := range map[string]func() error{
		"error":  func() error { return errors.New("on purpose") },
		"panic":  func() error { panic("on purpose") },
		"Goexit": func() error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(1)
			c := takeFake(t, g, &fakeConn{close: end})
			finish(func() { _ = c.Close() })
			g.wantInFlight(t, "after Close", 0)
			finish(func() { _ = c.Close() })
			g.wantEmpty(t)
		})
	}
}

// A second Close returns at once while the first is still busy, as with a TLS connection that says goodbye.
func TestConnectionHoldsWhileCloseIsBusy(t *testing.T) {
	g := newGate(1)
	busy, proceed := make(chan struct{}), make(chan struct{})
	var closes atomic.Int32
	c := takeFake(t, g, &fakeConn{close: func() error {
		if closes.Add(1) > 1 {
			return net.ErrClosed
		}
		close(busy)
		<-proceed
		return nil
	}})
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = c.Close()
	}()
	await(t, "the first Close", busy)
	if err := c.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("H2: second Close: %v", err)
	}
	g.wantInFlight(t, "H2: while the first Close is busy", 1)
	close(proceed)
	await(t, "the end of the first Close", closed)
	g.wantInFlight(t, "after Close", 0)
	g.wantEmpty(t)
}

// A Hijack that somebody else makes for the handler is part of the request from its beginning.
func TestHijackUnderWayHolds(t *testing.T) {
	g := newGate(1)
	begun, proceed, hijacked := make(chan struct{}), make(chan struct{}), make(chan net.Conn)
	h := newHandler(g, func(w http.ResponseWriter, _ *http.Request) {
		go func() {
			c, _, _ := http.NewResponseController(w).Hijack()
			hijacked <- c
		}()
		<-begun
	})
	h.ServeHTTP(&fakeWriter{httptest.NewRecorder(), func() (net.Conn, *bufio.ReadWriter, error) {
		close(begun)
		<-proceed
		return &fakeConn{close: func() error { return nil }}, nil, nil
	}}, newRequest())
	g.wantInFlight(t, "after the handler", 1)
	close(proceed)
	c := <-hijacked
	g.wantInFlight(t, "with the connection", 1)
	_ = c.Close()
	g.wantEmpty(t)
}

// A Hijack that begins when the request is over has no part in it, and must not end it again.
func TestHijackAfterTheEndEndsNothing(t *testing.T) {
	g := newGate(1)
	var late http.ResponseWriter
	h := newHandler(g, func(w http.ResponseWriter, _ *http.Request) { late = w })
	o := newTakeover()
	s := startServer(t, o.around(h), false)
	wantStatus(t, s, http.StatusOK)
	await(t, "the end of the handler", o.done)
	g.wantEmpty(t)
	finish(func() { _, _, _ = http.NewResponseController(late).Hijack() }) // net/http panics
	g.wantEmpty(t)

	h.ServeHTTP(&fakeWriter{httptest.NewRecorder(), func() (net.Conn, *bufio.ReadWriter, error) {
		return &fakeConn{close: func() error { return nil }}, nil, nil
	}}, newRequest())
	c, _, err := http.NewResponseController(late).Hijack()
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	g.wantEmpty(t)
}
