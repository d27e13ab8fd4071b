// SPDX-License-Identifier: Apache-2.0

// Random sequences of requests and of ways to end them, with a gate on either side.

package inflight_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

// A world is one client and one server, each behind a gate. The model is naive: the client's gate holds exactly the
// responses that are open, and the server's at least the connections that its handlers left to others.
type world struct {
	server, client *gate
	http           *http.Client
	url            string
	open           []*exchange

	inHandlers atomic.Int64
	taken      atomic.Int64 // connections
	mu         sync.Mutex   // guards left
	left       []net.Conn   // hijacked, and not closed when the handler was done
}

// An exchange is a response that has not ended.
type exchange struct {
	resp   *http.Response
	cancel context.CancelFunc
	read   int // bytes; some bodies have no more than "begin" for as long as they are open
}

// behaviours are what a handler can do; the request's path names one.
var behaviours = map[string]func(*world, http.ResponseWriter, *http.Request){
	"/nothing": func(*world, http.ResponseWriter, *http.Request) {},
	"/204":     func(_ *world, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
	"/500": func(_ *world, w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "failed", http.StatusInternalServerError)
	},
	"/text":          func(_ *world, w http.ResponseWriter, _ *http.Request) { startBody(w); _, _ = io.WriteString(w, "end") },
	"/panic":         func(*world, http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	"/exit":          func(*world, http.ResponseWriter, *http.Request) { runtime.Goexit() },
	"/panic-halfway": func(_ *world, w http.ResponseWriter, _ *http.Request) { startBody(w); panic(http.ErrAbortHandler) },
	"/exit-halfway":  func(_ *world, w http.ResponseWriter, _ *http.Request) { startBody(w); runtime.Goexit() },
	"/until-gone":    func(_ *world, w http.ResponseWriter, r *http.Request) { startBody(w); <-r.Context().Done() },
}

// takeovers are those that need HTTP/1.
var takeovers = map[string]func(*world, http.ResponseWriter, *http.Request){
	"/hijack": func(o *world, w http.ResponseWriter, _ *http.Request) {
		c := o.take(w)
		begin(c)
		_ = c.Close()
	},
	"/hijack-leave": func(o *world, w http.ResponseWriter, _ *http.Request) { o.leave(o.take(w)) },
	"/hijack-panic": func(o *world, w http.ResponseWriter, _ *http.Request) {
		o.leave(o.take(w))
		panic(http.ErrAbortHandler)
	},
	"/hijack-close-panic": func(o *world, w http.ResponseWriter, _ *http.Request) {
		c := o.take(w)
		defer c.Close()
		begin(c)
		panic(http.ErrAbortHandler)
	},
}

func (o *world) take(w http.ResponseWriter) net.Conn {
	o.taken.Add(1)
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	return c
}

// begin answers with a body that ends when the connection is closed.
func begin(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nbegin") }

// leave hands the connection over to the world, and then answers: a client with a response finds it there.
func (o *world) leave(c net.Conn) {
	o.mu.Lock()
	o.left = append(o.left, c)
	o.mu.Unlock()
	begin(c)
}

func (o *world) leftOpen() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.left)
}

// send makes a request, and predicts exactly whether the client's gate rejects it.
func (o *world) send(t *rapid.T, path string) {
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, o.url+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	full := len(o.open) == o.client.limit
	resp, err := o.http.Do(req)
	if errors.Is(err, errFull) != full {
		t.Fatalf("%d of %d open: %v", len(o.open), o.client.limit, err)
	}
	if err != nil || resp.Body == http.NoBody || resp.StatusCode == http.StatusNoContent {
		cancel()
		return
	}
	o.open = append(o.open, &exchange{resp: resp, cancel: cancel})
}

// endings are what a client can do with an open response; each reports whether it has ended.
var endings = map[string]func(*exchange) bool{
	"close":       func(x *exchange) bool { x.resp.Body.Close(); return true },
	"close twice": func(x *exchange) bool { x.resp.Body.Close(); x.resp.Body.Close(); return true },
	"read some": func(x *exchange) bool {
		if x.read == len("begin") {
			return false
		}
		n, err := x.resp.Body.Read(make([]byte, 1))
		x.read += n
		return err != nil
	},
	"cancel and read": func(x *exchange) bool {
		x.cancel()
		_, _ = io.Copy(io.Discard, x.resp.Body)
		return true
	},
	"read and close at once": func(x *exchange) bool {
		var all sync.WaitGroup
		all.Go(func() { _, _ = io.Copy(io.Discard, x.resp.Body) })
		all.Go(func() { x.resp.Body.Close() })
		all.Wait()
		return true
	},
}

func (o *world) end(t *rapid.T) {
	if len(o.open) == 0 {
		t.Skip("nothing open")
	}
	i := rapid.IntRange(0, len(o.open)-1).Draw(t, "response")
	x := o.open[i]
	if endings[rapid.SampledFrom(names(endings)).Draw(t, "ending")](x) {
		o.open = slices.Delete(o.open, i, i+1)
		if rapid.Bool().Draw(t, "close afterwards") {
			x.resp.Body.Close()
		}
		x.cancel()
	}
}

func (o *world) closeLeft(t *rapid.T) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.left) == 0 {
		t.Skip("nothing left")
	}
	for range rapid.IntRange(1, 2).Draw(t, "closes") {
		_ = o.left[0].Close()
	}
	o.left = o.left[1:]
}

// closeAll ends what is open on either side. A handler may still be about to leave a connection only if the check broke off.
func (o *world) closeAll() {
	for _, x := range o.open {
		x.resp.Body.Close()
		x.cancel()
	}
	o.open = nil
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range o.left {
		_ = c.Close()
	}
	o.left = nil
}

func (o *world) check(t *rapid.T) {
	o.client.wantInFlight(t, "client", len(o.open))
	if got, least := o.server.inFlight(), o.leftOpen(); got < least || got > o.server.limit {
		t.Errorf("server: %d in flight, want %d to %d", got, least, o.server.limit)
	}
	if got := o.inHandlers.Load(); got > int64(o.server.limit) {
		t.Errorf("%d handlers at work, the limit is %d", got, o.server.limit)
	}
}

func names[V any](m map[string]V) []string {
	all := make([]string, 0, len(m))
	for name := range m {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// Whatever requests do, in whatever order: the client's gate holds the open responses and nothing else at every step, and
// in the end both gates are empty, no permit was ended twice, and upgraded is what was hijacked.
func TestPropertyEveryRequestEndsOnce(t *testing.T) {
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		var now atomic.Pointer[http.Handler] // of the current check
		s := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*now.Load()).ServeHTTP(w, r) }))
		can := names(behaviours)
		if !s.EnableHTTP2 {
			can = append(can, names(takeovers)...)
		}
		rapid.Check(t, func(t *rapid.T) {
			o := &world{
				server: newGate(rapid.IntRange(0, 4).Draw(t, "server limit")),
				client: newGate(rapid.IntRange(0, 4).Draw(t, "client limit")),
				url:    s.URL,
			}
			o.http = &http.Client{Transport: newTransport(o.client, s.Client().Transport)}
			h := newHandler(o.server, func(w http.ResponseWriter, r *http.Request) {
				o.inHandlers.Add(1)
				defer o.inHandlers.Add(-1)
				behave := behaviours[r.URL.Path]
				if behave == nil {
					behave = takeovers[r.URL.Path]
				}
				behave(o, w, r)
			})
			now.Store(&h)
			defer o.closeAll() // also if the check breaks off

			t.Repeat(map[string]func(*rapid.T){
				"send":                         func(t *rapid.T) { o.send(t, rapid.SampledFrom(can).Draw(t, "path")) },
				"end":                          o.end,
				"leave a connection no longer": o.closeLeft,
				"":                             o.check,
			})

			o.closeAll()
			o.client.wantEmpty(t)
			o.server.wantEmpty(t)
			upgraded := int64(0)
			for _, outcome := range o.server.outcomes {
				if outcome.Upgraded {
					upgraded++
				}
			}
			if want := o.taken.Load(); upgraded != want {
				t.Errorf("%d requests were upgraded, want %d", upgraded, want)
			}
		})
	})
}
