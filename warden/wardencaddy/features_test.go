// SPDX-License-Identifier: Apache-2.0

// Caddy's own features beside ours: buffers, retries, passive health checks and handlers of answers, with clients that leave.

package wardencaddy_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// request_buffers keeps bodies in memory that the next requests get. A client that leaves while its body is sent has none of them
// sent in its own request.
func TestBuffersOfOthers(t *testing.T) {
	const size, leavers = 8 << 20, 3
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the collector empties pools
	begun, proceed, got := make(chan struct{}, leavers), make(chan struct{}), make(chan []byte, leavers)
	u := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/leaves" {
			begun <- struct{}{}
			<-proceed
			body, _ := io.ReadAll(r.Body)
			got <- body
		}
	}))
	u.Listener = narrow{u.Listener}
	u.Start()
	defer u.Close()
	p := newProxy(t, "log\nstopbank {\n\tgrace 1m\n}\n"+proxied(u.Listener.Addr(), "request_buffers 64MiB"))
	bodies := map[string][]byte{"/leaves": bytes.Repeat([]byte("A"), size), "/": bytes.Repeat([]byte("V"), size)}
	post := func(ctx context.Context, path string) {
		p.do(ctx, client, http.MethodPost, path, bytes.NewReader(bodies[path]), nil)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var leaving, others sync.WaitGroup
	for range leavers {
		leaving.Go(func() { post(ctx, "/leaves") })
		await(t, "a request", begun)
	}
	cancel()
	leaving.Wait()
	for strings.Count(p.log(), `"uri":"/leaves"`) < leavers {
		time.Sleep(time.Millisecond) // until Caddy has noticed
	}
	for range 8 {
		others.Go(func() { post(t.Context(), "/") })
	}
	others.Wait()
	close(proceed)
	for range leavers {
		if body := await(t, "the upstream", got); bytes.IndexByte(body, 'V') >= 0 {
			t.Errorf("H32: of %d bytes, %d are of others", len(body), bytes.Count(body, []byte("V")))
		}
	}
	p.until(0, "stopbank_limiter_running")
}

// narrow makes the kernel take little of what an upstream does not read.
type narrow struct{ net.Listener }

func (l narrow) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		err = c.(*net.TCPConn).SetReadBuffer(64 << 10)
	}
	return c, err
}

// A request whose time is up is answered, and not tried again, for however long lb_try_duration is.
func TestRetriesEndWithTheRequest(t *testing.T) {
	for _, c := range []struct {
		timeout string
		headers []string
	}{{"timeout 50ms", nil}, {"", []string{"Warden-Timeout", "50"}}} {
		u := newUpstream(t)
		p := newProxy(t, "stopbank {\n\tmax 1\n\tinitial 1\n\t"+c.timeout+"\n}\n"+
			proxied(u.addr(), "lb_try_duration 1h", "lb_try_interval 1ms"))
		got := await(t, "an answer", p.begin(t.Context(), "/hold", c.headers...))
		if got.status != http.StatusGatewayTimeout || !strings.Contains(got.body, `"reason":"timeout_running"`) {
			t.Errorf("H33: %q%q: %+v", c.timeout, c.headers, got)
		}
		u.release <- struct{}{}
		p.until(0, "stopbank_limiter_running")
		if n := len(u.begun); n != 1 {
			t.Errorf("H33: %q%q: the upstream got %d requests, want 1", c.timeout, c.headers, n)
		}
		u.Close() // nor is one that nobody accepts
		got = await(t, "an answer of a dead upstream", p.begin(t.Context(), "/", c.headers...))
		if got.status != http.StatusGatewayTimeout {
			t.Errorf("H33: %q%q: a dead upstream: %+v", c.timeout, c.headers, got)
		}
	}
}

// An attempt whose answer did not come within response_header_timeout keeps the slot while the upstream works on it: the next one
// waits for it, and so does what follows when no attempt is left.
func TestAttemptsThatTimeOutKeepTheSlot(t *testing.T) {
	const longest = 20 * time.Millisecond
	var all, running, most atomic.Int64
	last := make(chan struct{})
	u := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stream" {
			_ = http.NewResponseController(w).Flush()
			time.Sleep(10 * longest)
			_, _ = io.WriteString(w, "done")
			return
		}
		now, n := running.Add(1), all.Add(1)
		defer running.Add(-1)
		if now > most.Load() {
			most.Store(now)
		}
		if time.Sleep(10 * longest); n == 3 { // it never looks at its client
			<-last
		}
	}))
	t.Cleanup(u.Close)
	p := newProxy(t, fmt.Sprintf("stopbank {\n\tmax 1\n\tinitial 1\n\tgrace 1m\n}\nreverse_proxy %s {\n\ttransport stopbank {\n"+
		"\t\tresponse_header_timeout %v\n\t}\n\tlb_retries 2\n}\n", u.Listener.Addr(), longest))
	if got := p.want("/stream", http.StatusOK); got.body != "done" {
		t.Errorf("H23: of a stream that goes on for longer came %q", got.body)
	}
	p.want("/", http.StatusGatewayTimeout)
	if got := p.metric("stopbank_limiter_running"); got != 1 {
		t.Errorf("H23: %v run while the upstream works for nobody", got)
	}
	close(last)
	p.until(0, "stopbank_limiter_running")
	if all.Load() != 3 || most.Load() != 1 {
		t.Errorf("H33: with one slot the upstream had %d requests, %d at a time, want 3, 1", all.Load(), most.Load())
	}
}

// The deadline that a client chooses for itself takes no upstream away from the others.
func TestDeadlineOfAClientIsNoFailure(t *testing.T) {
	for _, header := range []string{"Warden-Timeout: 20", "Grpc-Timeout: 20m", "X-Envoy-Expected-Rq-Timeout-Ms: 20"} {
		u := newUpstream(t)
		p := newProxy(t, "stopbank\n"+proxied(u.addr(), "fail_duration 1h"))
		name, value, _ := strings.Cut(header, ": ")
		if got := await(t, "an answer", p.begin(t.Context(), "/hold", name, value)); got.status != http.StatusGatewayTimeout {
			t.Errorf("H14: %s: %+v", header, got)
		}
		if got := p.get("/"); got.status != http.StatusOK {
			t.Errorf("H14: %s: another's request: %+v", header, got)
		}
		u.release <- struct{}{}
	}
}

// An upstream that sees at once that a client has given itself too little time stays there for the others.
func TestTooLittleTimeOfAClientIsNoFailure(t *testing.T) {
	u := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/short" {
			w.Header().Set("Warden-Rejected", "deadline_exceeded")
			w.WriteHeader(http.StatusGatewayTimeout)
		}
	}))
	t.Cleanup(u.Close)
	p := newProxy(t, "stopbank\n"+proxied(u.Listener.Addr(), "fail_duration 1h", "unhealthy_status 5xx"))
	if got := await(t, "an answer", p.begin(t.Context(), "/short", "Warden-Timeout", "60000")); got.status != http.StatusGatewayTimeout {
		t.Errorf("H14: %+v", got)
	}
	p.want("/", http.StatusOK)
	if got := p.metric("stopbank_limiter_failed_total"); got != 0 {
		t.Errorf("H31: %v failed", got)
	}
}

// What of a key a client chooses makes no other tenant's key of it: where one value ends shows.
func TestKeysOfSeveralValues(t *testing.T) {
	begun, release := make(chan string, 10), make(chan struct{})
	u := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		begun <- r.URL.Path
		select {
		case <-release:
		case <-t.Context().Done():
		}
	}))
	t.Cleanup(u.Close)
	p := newProxy(t, fmt.Sprintf("stopbank {\n\ttotal 8\n\tcompartment all {\n\t\tguaranteed 8\n\t\tqueue 20\n\t\ttenant {header.A}{header.B} 1\n\t}\n}\n"+
		"reverse_proxy %s\n", u.Listener.Addr()))
	for path, keys := range map[string][2]string{"/one": {"1", "2"}, "/other": {"12", ""}} {
		_ = p.begin(t.Context(), path, "A", keys[0], "B", keys[1])
	}
	await(t, "one tenant", begun)
	await(t, "the other tenant", begun) // though one may have one slot
	close(release)
}

// One customer's flood does not take what others need, under one limit for all.
func TestTenantsOfAHandlerTakeTurns(t *testing.T) {
	begun, release := make(chan string, 10), make(chan struct{})
	u := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		begun <- r.URL.Path
		select {
		case <-release:
		case <-t.Context().Done():
		}
	}))
	t.Cleanup(u.Close)
	p := newProxy(t, fmt.Sprintf("stopbank {\n\tmax 1\n\tinitial 1\n\ttenant {header.Customer}\n}\nreverse_proxy %s\n", u.Listener.Addr()))
	for _, c := range []struct{ path, customer string }{{"/1", "big"}, {"/2", "big"}, {"/3", "big"}, {"/small", "small"}} {
		_ = p.begin(t.Context(), c.path, "Customer", c.customer)
		time.Sleep(200 * time.Millisecond) // they wait in this order
	}
	for i, want := range []string{"/1", "/small"} {
		if got := await(t, "request", begun); got != want {
			t.Errorf("Q25: %d: %s, want %s", i, got, want)
		}
		release <- struct{}{}
	}
	close(release)
}

// A client whose body stops, is none, or takes too long takes no upstream away from the others, with either transport.
func TestBodyOfAClientIsNoFailure(t *testing.T) {
	for _, transport := range []string{"http", "stopbank"} {
		for name, rest := range map[string]string{
			"stops":          "Content-Length: 500000\r\n\r\nhello",
			"is none":        "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nworld\r\n",
			"takes too long": "Content-Length: 500000\r\n\r\nhello",
			"is too long":    "Transfer-Encoding: chunked\r\n\r\n927c1\r\n" + strings.Repeat("x", 600_001) + "\r\n0\r\n\r\n",
		} {
			u := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
			p := newProxy(t, fmt.Sprintf("log\nrequest_body {\n\tmax_size 600KB\n}\nstopbank {\n\tgrace 300ms\n}\nreverse_proxy %s {\n\ttransport %s\n\tfail_duration 1h\n}\n",
				u.Listener.Addr(), transport))
			c := p.dial("POST /upload HTTP/1.1\r\nHost: %s\r\n" + rest)
			var err error
			if name == "stops" {
				err = c.(*net.TCPConn).CloseWrite()
			} else {
				var line string
				line, err = bufio.NewReader(c).ReadString('\n') // it is told
				if name == "is too long" && !strings.Contains(line, " 413 ") {
					t.Errorf("a body that %s: %s", name, line)
				}
			}
			if err != nil && name != "is none" {
				t.Error(err)
			}
			for !strings.Contains(p.log(), `"uri":"/upload"`) {
				time.Sleep(time.Millisecond) // until Caddy is done with it
			}
			if got := p.get("/"); got.status != http.StatusOK {
				t.Errorf("H14: transport %s, a body that %s: another's request: %+v", transport, name, got)
			}
			_ = c.Close()
			u.Close()
		}
	}
}

// What handle_response makes of an answer is the answer, and the slot is free after it.
func TestHandledResponses(t *testing.T) {
	u := newUpstream(t)
	p := newProxy(t, "stopbank\n"+proxied(u.addr(), "@all status 200", "handle_response @all {", "\trespond \"handled\" 203", "}"))
	if got := p.want("/", http.StatusNonAuthoritativeInfo); got.body != "handled" {
		t.Errorf("%+v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_ = p.begin(ctx, "/hold")
	await(t, "the first request", u.begun)
	await(t, "the second request", u.begun)
	cancel()
	p.until(1, "stopbank_limiter_running")
	u.release <- struct{}{}
	p.until(0, "stopbank_limiter_running")
}

// What map, vars and header_regexp make of a header that is sent twice is refused as the guide says.
func TestRepeatedHeadersAreRefused(t *testing.T) {
	u := newUpstream(t)
	p := newProxy(t, `@twice vars_regexp {header.X-Api-Key} ,
	error @twice 400
	map {header.X-Api-Key} {mapped} {
		~(.*) $1
	}
	vars copied {header.X-Api-Key}
	@key header_regexp key X-Api-Key (.*)
	stopbank {
		total 8
		compartment keys @key {
			guaranteed 4
			queue 20
			tenant {mapped}{vars.copied}{re.key.1} 2
		}
		compartment rest {
			guaranteed 4
		}
	}
	`+u.proxied())
	for status, keys := range map[int][]string{http.StatusOK: {"acme"}, http.StatusBadRequest: {"mine", "acme"}} {
		got := p.do(t.Context(), client, http.MethodGet, "/", http.NoBody, func(r *http.Request) { r.Header["X-Api-Key"] = keys })
		if got.status != status {
			t.Errorf("%q: %+v, want %d", keys, got, status)
		}
	}
}

// What a client sends twice, or spells otherwise, makes it no other tenant: all who do that are one, with those who send none.
func TestOneClientIsOneTenant(t *testing.T) {
	var running, most atomic.Int64
	begun, release := make(chan struct{}, 100), make(chan struct{})
	u := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		now := running.Add(1)
		defer running.Add(-1)
		for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
		}
		begun <- struct{}{}
		select {
		case <-release:
		case <-t.Context().Done():
		}
	}))
	t.Cleanup(u.Close)
	for placeholder, request := range map[string]func(r *http.Request, n int){
		"{header.X-Api-Key}":       func(r *http.Request, n int) { r.Header["X-Api-Key"] = []string{"acme", fmt.Sprint(n)} },
		"{header.X-Name}":          func(r *http.Request, n int) { r.Header.Set("X-Name", strings.Repeat(" ", n)+"acme") },
		"{query.key}":              func(r *http.Request, n int) { r.URL.RawQuery = fmt.Sprintf("key=acme&key=%d", n) },
		"{query.key}  ":            func(r *http.Request, n int) { r.URL.RawQuery = fmt.Sprintf("key=%d&Key=acme", n) },
		"{query.key} ":             func(r *http.Request, n int) { r.URL.RawQuery = fmt.Sprintf("key=%d&a=;key=acme", n) },
		"{http.request.cookie.id}": func(r *http.Request, n int) { r.Header.Set("Cookie", fmt.Sprintf("id=%d; id=acme", n)) },
		"{cookie.id}":              func(r *http.Request, n int) { r.Header.Set("Cookie", "id="+strings.Repeat(" ", n)+"acme") },
		"{query.api_key}": func(r *http.Request, n int) { // PHP takes the last one
			name := []string{"api.key", "+api_key", "api+key", "api[key", "api%%5Fkey[]", "api_key%%00%%zz"}[n]
			r.URL.RawQuery = fmt.Sprintf("api_key=%d&"+name+"=acme", n)
		},
		"{query.of}": func(r *http.Request, n int) { // as Rack reads it
			r.URL.RawQuery = fmt.Sprintf("of=%d&%s=acme", n, []string{"[of]", "[of", "]of", "of]", "[[of]]", "of]x"}[n])
		},
		"{cookie.api_key}": func(r *http.Request, n int) { // and the first one
			name := []string{"api.key", "api key", "api[key", "api_key[0]", "api%5fkey", "api_key "}[n]
			r.Header.Set("Cookie", fmt.Sprintf("%s=acme; api_key=%d", name, n))
		},
		"{cookie.token}": func(r *http.Request, n int) {
			r.Header.Set("Cookie", "token="+[]string{"ac%me", "%61c%me", "a%63%me", "ac%25me", "ac%%6de", "ac%m%65"}[n])
		},
		"{host}": func(r *http.Request, n int) {
			r.Host = []string{"shop.test", "Shop.test", "shop.test.", "shop.test:80", "SHOP.test.:80", "shop.TEST"}[n]
		},
		"{host} ": func(r *http.Request, n int) {
			r.Host = []string{"[::1]", "[::1]:80", "[0::1]", "[::01]", "[0:0:0:0:0:0:0:1]:8", "[::0:1]"}[n]
		},
		"{labels.1}": func(r *http.Request, n int) {
			r.Host = []string{"shop.test", "Shop.test", "shop.test.", "shop.test:80", "SHOP.test.:80", "shop.test.."}[n]
		},
		"{header.Authorization}": func(r *http.Request, n int) {
			r.Header["Authorization"] = []string{[]string{"Bearer x", "bearer x", "BEARER x ", " Bearer  x", "  bearer   x", " Bearer x"}[n]}
		},
		"{http.request.header.authorization}": func(r *http.Request, n int) {
			r.Header["Authorization"] = []string{[]string{"Basic YTpi", "basic YTpi", "BASIC YTpi", " BAsic YTpi", "  BaSic YTpi ", "BasiC YTpi "}[n]}
		},
		"{hostport}": func(r *http.Request, n int) { r.Host = fmt.Sprintf("shop.test:%d", n) },
	} {
		most.Store(0)
		spaced := &http.Client{Transport: &http.Transport{Protocols: new(http.Protocols)}} // HTTP/2 keeps the spaces around a value
		spaced.Transport.(*http.Transport).Protocols.SetUnencryptedHTTP2(true)
		defer spaced.CloseIdleConnections()
		p := newProxy(t, fmt.Sprintf("stopbank {\n\ttotal 8\n\tcompartment all {\n\t\tguaranteed 8\n\t\tqueue 20\n\t\ttenant %s 2\n\t}\n}\n"+
			"reverse_proxy %s\n", placeholder, u.Listener.Addr()))
		var all sync.WaitGroup
		for n := range 6 {
			all.Go(func() {
				got := p.do(t.Context(), spaced, http.MethodGet, "", http.NoBody, func(r *http.Request) { request(r, n) })
				if got.err != nil {
					t.Error(got.err)
				}
			})
		}
		await(t, "a request", begun)
		await(t, "a request", begun)
		for len(begun) == 0 && p.metric("stopbank_compartment_queued") < 4 {
			time.Sleep(time.Millisecond) // until all wait, or one too many runs
		}
		for range 6 {
			release <- struct{}{}
		}
		all.Wait()
		if got := most.Load(); got != 2 {
			t.Errorf("%s: %d of one client at a time, want 2", placeholder, got)
		}
		for len(begun) > 0 {
			<-begun
		}
	}
}

// A client's request that cannot be sent on for what is in it takes no upstream away from the others.
func TestWhatCannotBeSentOnIsNoFailure(t *testing.T) {
	for transport, requests := range map[string][]string{
		"http": {"POST / HTTP/1.1\r\nHost: %s\r\nTransfer-Encoding: chunked\r\nTrailer: no name\r\n\r\n0\r\n\r\n"},
		"stopbank": {
			"POST / HTTP/1.1\r\nHost: %s\r\nTransfer-Encoding: chunked\r\nTrailer: no name\r\n\r\n0\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: any\r\n\r\n",
			"GET http:none HTTP/1.1\r\nHost: %s\r\n\r\n",
		},
	} {
		u := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		u.EnableHTTP2 = transport == "stopbank" // Caddy's own is in a race with net/http's there
		u.StartTLS()
		t.Cleanup(u.Close)
		p := newProxy(t, fmt.Sprintf("stopbank\nreverse_proxy https://%s {\n\ttransport %s {\n\t\ttls_insecure_skip_verify\n\t}\n\tfail_duration 1h\n}\n",
			u.Listener.Addr(), transport))
		for _, request := range requests {
			c := p.dial(request)
			if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || strings.Contains(line, " 50") {
				t.Errorf("H14: %s: %q: %q, %v", transport, request, line, err)
			}
			_ = c.Close()
			p.want("/", http.StatusOK)
		}
		if got := p.metric("stopbank_limiter_failed_total"); got != 0 {
			t.Errorf("H31: %s: %v failed", transport, got)
		}
	}
}

// A retry that waits for the attempt before it until its time is up takes no upstream away that it was not sent to.
func TestAnUpstreamThatWasNotAsked(t *testing.T) {
	hangs, other := newUpstream(t), newUpstream(t)
	p := newProxy(t, fmt.Sprintf("stopbank {\n\tgrace 1m\n\ttimeout 300ms\n}\nreverse_proxy %s %s {\n\ttransport stopbank {\n"+
		"\t\tresponse_header_timeout 20ms\n\t}\n\tlb_policy first\n\tlb_retries 2\n\tfail_duration 1h\n}\n", hangs.addr(), other.addr()))
	if got := await(t, "an answer", p.begin(t.Context(), "/hold")); got.status != http.StatusGatewayTimeout {
		t.Errorf("H33: %+v", got)
	}
	hangs.release <- struct{}{}
	if p.until(0, "stopbank_limiter_running"); len(other.begun) > 0 {
		t.Error("H33: the retry did not wait")
	}
	p.want("/", http.StatusOK)
}
