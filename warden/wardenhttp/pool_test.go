// SPDX-License-Identifier: Apache-2.0

// An http.Transport as a pool: what a server sees in use, and what does not reach it, is what the pool tells.

package wardenhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden/monitor"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// use is the reading of a pool of so many connections that so many requests need.
func use(needed, most int) monitor.PoolStats {
	return monitor.PoolStats{
		InUse: min(needed, most), Max: most, Waiting: monitor.Reading{Value: float64(max(needed-most, 0)), OK: true},
	}
}

// A visit is a request of the property below, and what its client, its server and the model know of it.
type visit struct {
	host, method string
	cancel       context.CancelFunc
	arrived      bool        // at its handler
	answer       chan string // to it
	resp         *http.Response
	done         bool // is RoundTrip
	unread       bool // is a body
	over         bool // it needs no connection any more
}

func (v *visit) serve(t *testing.T, w http.ResponseWriter) {
	v.arrived = true
	switch <-v.answer {
	case "abort":
		v.arrived = false // it may be sent again
		panic(http.ErrAbortHandler)
	case "empty":
		w.WriteHeader(http.StatusNoContent)
	case "whole":
		_, _ = io.WriteString(w, "body")
	case "part":
		_, _ = io.WriteString(w, "body")
		_ = http.NewResponseController(w).Flush()
		<-v.answer
	case "upgrade":
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "news")
		w.WriteHeader(http.StatusSwitchingProtocols)
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		<-v.answer
		c.Close()
	}
}

// send is the client's part, up to the response.
func (v *visit) send(rt http.RoundTripper, req *http.Request) {
	resp, err := rt.RoundTrip(req)
	v.resp, v.done = resp, true
	v.over = err != nil || resp.Body == http.NoBody || v.method == http.MethodHead ||
		resp.StatusCode == http.StatusSwitchingProtocols
	v.unread = !v.over
}

// A move is what happens next to one of the visits, and how.
type move struct {
	do, host, method, answer string
	which                    int
}

var moves = rapid.Custom(func(t *rapid.T) move {
	one := func(label string, of ...string) string { return rapid.SampledFrom(of).Draw(t, label) }
	return move{one("do", "send", "send", "answer", "answer", "cancel", "read", "close"),
		one("host", "a.example", "a.example", "b.example"),
		one("method", "POST", "HEAD"), one("answer", "empty", "whole", "part", "upgrade", "abort"),
		rapid.IntRange(0, 9).Draw(t, "which")}
})

// Whatever becomes of requests, in whichever order, the pool tells how many have a connection and how many wait for one. The
// server is the witness: a request that has a connection has come to its handler.
func TestPropertyPoolTellsConnections(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		script := rapid.SliceOfN(moves, 1, 40).Draw(rt, "moves")
		each := rapid.Bool().Draw(rt, "a connection for each request")
		var wrong error
		synctest.Test(t, func(t *testing.T) { wrong = play(t, each, script) })
		if wrong != nil {
			rt.Fatal("H22:", wrong)
		}
	})
}

func play(t *testing.T, each bool, script []move) error {
	visits := []*visit{}
	base := inMemory(t, &http.Server{ErrorLog: log.New(io.Discard, "", 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var i int
			_, _ = fmt.Sscan(r.Header.Get("Visit"), &i)
			visits[i].serve(t, w)
		})})
	base.MaxConnsPerHost, base.DisableKeepAlives = 2, each
	pool, transport := wardenhttp.Pool("payments", base)
	defer func() {
		for _, v := range visits {
			v.cancel()
			close(v.answer)
		}
		synctest.Wait()
		for _, v := range visits {
			if v.resp != nil {
				v.resp.Body.Close()
			}
		}
	}()

	binds := false // there was a connection
	check := func(after string) error {
		synctest.Wait()
		want := use(0, base.MaxConnsPerHost)
		needed, has := map[string]int{}, map[string]int{}
		for _, v := range visits {
			binds = binds || v.arrived
			if v.over {
				continue
			}
			needed[v.host]++
			if v.arrived {
				has[v.host]++
			}
		}
		for host, n := range needed {
			told := use(n, base.MaxConnsPerHost)
			if has[host] != told.InUse {
				return fmt.Errorf("after %s %d requests to %s have arrived of %d", after, has[host], host, n)
			}
			if n > want.InUse+int(want.Waiting.Value) {
				want = told
			}
		}
		if !binds {
			want = monitor.PoolStats{}
		}
		if diff := cmp.Diff(want, pool.Stats()); diff != "" {
			return fmt.Errorf("after %s (-want +got)\n%s", after, diff)
		}
		return nil
	}
	for _, m := range script {
		pick := func(is func(*visit) bool) *visit {
			some := slices.DeleteFunc(slices.Clone(visits), func(v *visit) bool { return !is(v) })
			if len(some) == 0 {
				return &visit{cancel: func() {}, answer: make(chan string, 1)} // nobody
			}
			return some[m.which%len(some)]
		}
		switch m.do {
		case "send":
			ctx, cancel := context.WithCancel(t.Context())
			v := &visit{host: m.host, method: m.method, cancel: cancel, answer: make(chan string, 2)}
			req := must(http.NewRequestWithContext(ctx, v.method, "http://"+v.host, http.NoBody))(t)
			req.Header = http.Header{"Visit": {strconv.Itoa(len(visits))}, "Connection": {"Upgrade"}, "Upgrade": {"news"}}
			visits = append(visits, v)
			go v.send(transport, req)
		case "answer":
			v := pick(func(v *visit) bool { return v.arrived && !v.over && !v.done && len(v.answer) == 0 })
			if v.method == http.MethodHead && (m.answer == "part" || m.answer == "upgrade") {
				m.answer = "whole"
			}
			v.answer <- m.answer
		case "cancel":
			v := pick(func(v *visit) bool { return !v.over })
			v.cancel()
			synctest.Wait()
			v.over, v.unread = true, false
		case "read":
			v := pick(func(v *visit) bool { return v.unread })
			v.answer <- "the rest"
			if v.resp != nil {
				_, _ = io.Copy(io.Discard, v.resp.Body)
			}
			v.over, v.unread = true, false
		case "close": // perhaps again
			v := pick(func(v *visit) bool { return v.resp != nil && v.resp.StatusCode != http.StatusSwitchingProtocols })
			if v.resp != nil {
				v.resp.Body.Close()
			}
			v.over, v.unread = true, false
		}
		if err := check(m.do); err != nil {
			return err
		}
	}
	for _, v := range visits {
		v.cancel()
		synctest.Wait()
		v.over = true
	}
	return check("all")
}

// A request that waits for its own new connection does not wait for a full pool, and one whose dial fails is over.
func TestPoolWhileConnectionsAreMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := inMemory(t, &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})})
		base.MaxConnsPerHost, base.DisableKeepAlives = 2, true
		refused := make(chan struct{})
		dial := base.DialContext
		base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) { return dial(ctx, network, addr) }
		pool, transport := wardenhttp.Pool("payments", base)
		send := func(ctx context.Context) (monitor.PoolStats, error) {
			err := inquire(ctx, &http.Client{Transport: transport}, "http://a.example", http.NoBody)
			return pool.Stats(), err
		}
		if got, err := send(t.Context()); err != nil || got != use(0, 2) {
			t.Fatalf("H22: %v, %+v", err, got)
		}
		synctest.Wait() // the connection is closed
		dial = func(context.Context, string, string) (net.Conn, error) {
			<-refused
			return nil, errors.New("refused")
		}
		var clients sync.WaitGroup
		leave := func() {}
		for n := range 4 {
			var ctx context.Context
			ctx, leave = context.WithCancel(t.Context())
			defer leave()
			clients.Go(func() {
				if _, err := send(ctx); err == nil {
					t.Error("refused, and no error")
				}
			})
			synctest.Wait()
			if got := pool.Stats(); got != use(n+1, 2) {
				t.Errorf("H22: %d are sent, two of which dial: %+v", n+1, got)
			}
		}
		leave() // who was the last
		synctest.Wait()
		if got := pool.Stats(); got != use(3, 2) {
			t.Errorf("H22: one has left: %+v", got)
		}
		close(refused)
		clients.Wait()
		if got := pool.Stats(); got != use(0, 2) {
			t.Errorf("H22: all are refused: %+v", got)
		}
	})
}

// A hook of a trace may be called often, or late, and a base may fail in any way: a request is counted once, and not after its end.
func TestPoolCountsARequestOnce(t *testing.T) {
	for name, end := range map[string]func() (*http.Response, error){
		"a body":  func() (*http.Response, error) { return respond(http.StatusOK, newPayload("body")), nil },
		"no body": func() (*http.Response, error) { return respond(http.StatusOK, http.NoBody), nil },
		"error":   func() (*http.Response, error) { return nil, errors.New("no") },
		"panic":   func() (*http.Response, error) { panic("no") },
		"Goexit":  func() (*http.Response, error) { runtime.Goexit(); return nil, nil },
	} {
		base := &http.Transport{MaxConnsPerHost: 100}
		pool, transport := wardenhttp.Pool("payments", base)
		check := func(when string, want int) {
			t.Helper()
			if diff := cmp.Diff(use(want, 100), pool.Stats()); diff != "" {
				t.Errorf("H22: %s: %s (-want +got)\n%s", name, when, diff)
			}
		}
		var trace *httptrace.ClientTrace
		base.RegisterProtocol("odd", roundTrip(func(r *http.Request) (*http.Response, error) {
			trace = httptrace.ContextClientTrace(r.Context())
			for range 3 {
				trace.GetConn("a.example:1")
				trace.GotConn(httptrace.GotConnInfo{Conn: fakeConn{}})
				check("it has a connection", 1)
			}
			return end()
		}))
		for range 2 {
			var resp *http.Response
			req := newRequest()
			req.URL.Scheme, req.URL.Host = "odd", "a.example"
			finish(func() { resp, _ = transport.RoundTrip(req) })
			check("returned", number(name == "a body"))
			for range 2 {
				if resp != nil {
					resp.Body.Close()
				}
				check("closed", 0)
				trace.GetConn("a.example:1")
				check("too late", 0)
			}
		}
	}
}

// Requests over HTTP/2 never wait for a connection: net/http opens as many as the server's limit of streams makes it, whatever
// MaxConnsPerHost says. So nothing is told of them, and everything over HTTP/1, on a real server.
func TestPoolByProtocol(t *testing.T) {
	for name, c := range map[string]struct {
		http1, encrypted, beside bool
		want                     monitor.PoolStats
		arrive, conns            int64
	}{
		"HTTP/1":               {true, false, false, use(10, 1), 1, 1},
		"HTTP/1 with TLS":      {true, true, false, use(10, 1), 1, 1},
		"HTTP/2":               {false, true, false, monitor.PoolStats{}, 10, 5},
		"HTTP/2 without TLS":   {false, false, false, monitor.PoolStats{}, 10, 5},
		"HTTP/2 beside HTTP/1": {false, true, true, use(0, 1), 10, 5},
	} {
		t.Run(name, func(t *testing.T) {
			var arrived, conns atomic.Int64
			over := make(chan struct{})
			leave := sync.OnceFunc(func() { close(over) })
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				arrived.Add(1)
				<-over
			}))
			var clients sync.WaitGroup
			defer s.Close()
			defer clients.Wait()
			defer leave()
			s.Config.ConnState = func(_ net.Conn, is http.ConnState) {
				if is == http.StateNew {
					conns.Add(1)
				}
			}
			protocols := new(http.Protocols)
			protocols.SetHTTP1(c.http1)
			protocols.SetHTTP2(!c.http1)
			protocols.SetUnencryptedHTTP2(!c.http1)
			s.Config.Protocols, s.Config.HTTP2 = protocols, &http.HTTP2Config{MaxConcurrentStreams: 2}
			base := &http.Transport{Protocols: protocols}
			if s.EnableHTTP2 = !c.http1; c.encrypted {
				s.StartTLS()
				base = s.Client().Transport.(*http.Transport)
			} else {
				s.Start()
			}
			base.MaxConnsPerHost = 1
			pool, transport := wardenhttp.Pool("payments", base)
			client := &http.Client{Transport: transport}
			defer client.CloseIdleConnections()
			if c.beside {
				_ = inquire(t.Context(), client, startServer(t, http.NotFoundHandler(), false).URL, http.NoBody)
			}
			for range 10 {
				clients.Go(func() {
					if err := inquire(t.Context(), client, s.URL, http.NoBody); err != nil {
						t.Error(err)
					}
				})
			}
			eventually(t, fmt.Sprintf("H22: %d arrived, %+v", c.arrive, c.want), func() bool {
				return arrived.Load() >= c.arrive && pool.Stats() == c.want
			})
			if got := conns.Load(); got < c.conns {
				t.Errorf("%d have arrived over %d connections, want %d", arrived.Load(), got, c.conns)
			}
			leave()
			clients.Wait()
			if got := pool.Stats(); got.InUse > 0 || got.Waiting.Value > 0 {
				t.Errorf("H22: at the end %+v", got)
			}
		})
	}
}
