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
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/decision"
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
		base := &http.Transport{MaxConnsPerHost: 2, DisableKeepAlives: rapid.Bool().Draw(rt, "a connection for each request")}
		var wrong error
		synctest.Test(t, func(t *testing.T) { wrong = play(t, base, script) })
		if wrong != nil {
			rt.Fatal("H22:", wrong)
		}
	})
}

func play(t *testing.T, base *http.Transport, script []move) error {
	network, visits := newPipes(), []*visit{}
	base.DialContext = network.dial
	server := &http.Server{ErrorLog: log.New(io.Discard, "", 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var i int
			_, _ = fmt.Sscan(r.Header.Get("Visit"), &i)
			visits[i].serve(t, w)
		})}
	go func() { _ = server.Serve(network) }()
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
		base.CloseIdleConnections()
		server.Close()
		time.Sleep(time.Hour) // net/http lingers
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
		network := newPipes()
		server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
		go func() { _ = server.Serve(network) }()
		defer server.Close()
		refused := make(chan struct{})
		dial := network.dial
		pool, transport := wardenhttp.Pool("payments", &http.Transport{MaxConnsPerHost: 2, DisableKeepAlives: true,
			DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				return dial(ctx, network, addr)
			}})
		send := func(ctx context.Context) (monitor.PoolStats, error) {
			resp, err := transport.RoundTrip(
				must(http.NewRequestWithContext(ctx, http.MethodGet, "http://a.example", http.NoBody))(t),
			)
			if err == nil {
				resp.Body.Close()
			}
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

// A hook of a trace may be called often, late or never, and a base may fail in any way: a request is counted at most once, and
// not after its end.
func TestPropertyPoolCountsARequestOnce(t *testing.T) {
	const most = 100
	rapid.Check(t, func(rt *rapid.T) {
		base := &http.Transport{MaxConnsPerHost: most}
		pool, transport := wardenhttp.Pool("payments", base)
		want, binds := 0, false
		check := func(when string) {
			told := use(want, most)
			if !binds {
				told = monitor.PoolStats{}
			}
			if diff := cmp.Diff(told, pool.Stats()); diff != "" {
				rt.Errorf("H22: %s (-want +got)\n%s", when, diff)
			}
		}
		type open struct {
			body    io.Closer
			trace   *httptrace.ClientTrace
			counted int
		}
		var left []open
		base.RegisterProtocol("odd", roundTrip(func(r *http.Request) (*http.Response, error) {
			trace, counted := httptrace.ContextClientTrace(r.Context()), false
			for _, hook := range rapid.SliceOfN(
				rapid.SampledFrom([]string{"GetConn", "GotConn", "GotConn, HTTP/2"}), 0, 5,
			).Draw(rt, "hooks") {
				before := counted
				switch hook {
				case "GetConn":
					trace.GetConn("a.example:1")
					counted = true
				case "GotConn":
					trace.GotConn(httptrace.GotConnInfo{Conn: fakeConn{}})
					binds = true
				default:
					base.Protocols = new(http.Protocols)
					base.Protocols.SetUnencryptedHTTP2(true)
					trace.GotConn(httptrace.GotConnInfo{Conn: fakeConn{}})
					base.Protocols = nil
					counted = false
				}
				want += number(counted) - number(before)
				check(hook)
			}
			end := rapid.SampledFrom([]string{"body", "no body", "error", "panic", "Goexit"}).Draw(rt, "end")
			if end != "body" {
				want -= number(counted)
			}
			switch end {
			case "error":
				return nil, errors.New("no")
			case "panic":
				panic("no")
			case "Goexit":
				runtime.Goexit()
			case "no body":
				return respond(http.StatusOK, http.NoBody), nil
			}
			left = append(left, open{trace: trace, counted: number(counted)})
			return respond(http.StatusOK, io.NopCloser(strings.NewReader("body"))), nil
		}))
		for range rapid.IntRange(1, 5).Draw(rt, "requests") {
			finish(func() {
				req := newRequest()
				req.URL.Scheme, req.URL.Host = "odd", "a.example"
				if resp, err := transport.RoundTrip(req); err == nil && resp.Body != http.NoBody {
					left[len(left)-1].body = resp.Body
				}
			})
			check("returned")
		}
		for i := range left {
			want -= left[i].counted
			for range 2 {
				left[i].body.Close()
				check("closed")
				left[i].trace.GetConn("a.example:1")
				check("too late")
			}
		}
	})
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
				resp := send(t, client, http.MethodGet, startServer(t, http.NotFoundHandler(), false).URL)
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			for range 10 {
				clients.Go(func() {
					resp, err := client.Get(s.URL)
					if err != nil {
						t.Error(err)
						return
					}
					resp.Body.Close()
				})
			}
			// a queue says nothing when it grows
			for hangs := time.Now().Add(patience); arrived.Load() < c.arrive ||
				pool.Stats() != c.want; time.Sleep(time.Millisecond) {
				if time.Now().After(hangs) {
					t.Fatalf("H22: %d have arrived over %d connections, %+v", arrived.Load(), conns.Load(), pool.Stats())
				}
			}
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

// Forty users of a dependency over four connections: the limit follows to what those are enough for, and the reason names the
// pool. So it does where the warden is that of a server whose handlers wait.
func TestLimitFollowsTheConnections(t *testing.T) {
	for _, of := range []string{"dependency", "server"} {
		t.Run(of, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			defer running.Wait()
			defer cancel()
			payments := startServer(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				time.Sleep(5 * time.Millisecond)
			}), false)
			pool, base := wardenhttp.Pool("payments", &http.Transport{MaxConnsPerHost: 4, MaxIdleConnsPerHost: 4})
			w := must(warden.New(warden.Config{Interval: 10 * time.Millisecond, Pools: []monitor.Pool{pool}}))(t)
			running.Go(func() { _ = w.Run(ctx) })
			client, url := &http.Client{Transport: base}, payments.URL
			defer client.CloseIdleConnections()
			if of == "dependency" {
				client = &http.Client{Transport: must(wardenhttp.NewTransport(w, wardenhttp.TransportConfig{Base: base}))(t)}
			} else {
				behind := client
				s := startServer(t, must(wardenhttp.New(w, wardenhttp.Config{}))(t).Handler(http.HandlerFunc(func(
					_ http.ResponseWriter, r *http.Request,
				) {
					req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, payments.URL, http.NoBody)
					if err != nil {
						t.Error(err)
						return
					}
					if resp, err := behind.Do(req); err == nil {
						resp.Body.Close()
					}
				})), false)
				client, url = s.Client(), s.URL
			}
			for range 40 {
				running.Go(func() {
					for ctx.Err() == nil {
						req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
						if err != nil {
							t.Error(err)
							return
						}
						if resp, err := client.Do(req); err == nil {
							resp.Body.Close()
						}
					}
				})
			}
			for hangs := time.Now().Add(patience); ; time.Sleep(time.Millisecond) { // nothing tells when
				d := w.Latest().Decision
				if why := fmt.Sprint(d.Reasons); d.TargetConcurrency <= 6 &&
					strings.Contains(why, "pool_full: payments: 4 of 4 in use, ") {
					break
				}
				if time.Now().After(hangs) {
					t.Fatalf("limit %d, %v, %+v", d.TargetConcurrency, d.Reasons, pool.Stats())
				}
			}
		})
	}
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestPoolWithoutBaseOrBound(t *testing.T) {
	pool, transport := wardenhttp.Pool("payments", nil)
	var invalid *decision.InvalidError
	if _, err := warden.New(warden.Config{Pools: []monitor.Pool{pool}}); transport != nil || !errors.As(err, &invalid) ||
		invalid.Field != "monitor.Pools[0].Stats" {
		t.Errorf("no base: %v, %v", transport, err)
	}
	pool, transport = wardenhttp.Pool("payments", &http.Transport{})
	client := &http.Client{Transport: transport}
	defer client.CloseIdleConnections()
	resp := send(t, client, http.MethodGet, startServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "body")
	}), false).URL)
	if got := pool.Stats(); got != (monitor.PoolStats{}) {
		t.Errorf("no bound: %+v", got)
	}
	resp.Body.Close()
	var argument *warden.InvalidError
	if _, err := transport.RoundTrip(nil); !errors.As(err, &argument) || argument.Field != "wardenhttp.req" {
		t.Errorf("no request: %v", err)
	}
}
