// SPDX-License-Identifier: Apache-2.0

// Bugs that others had, by the issue in which they were told, tried over real connections.

package wardenhttp_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// zalando/skipper #2579: the slot was free when the upstream's header had come, so that any number of bodies was streamed at once.
func TestPeer_ASlotIsFreeAtTheHeader(t *testing.T) {
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		more := make(chan struct{})
		upstream := serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).Flush()
			<-more
		}))
		g := newGuard(t, 1, 0)
		proxy := httputil.NewSingleHostReverseProxy(must(url.Parse(upstream.URL))(t))
		proxy.Transport = upstream.Client().Transport
		front := serve(newHandler(t, g, proxy.ServeHTTP))
		resp := must(post(t, front))(t) // its body is still to come
		g.wantInFlight(t, "while the body is streamed", 1)
		wantStatus(t, front, http.StatusServiceUnavailable)
		close(more)
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		g.wantEmpty(t)
		wantStatus(t, front, http.StatusOK)
	})
}

// e2b-dev/E2B #1675: the same on the side that asks, until the body was read to its end, or given up.
func TestPeer_ASlotIsFreeBeforeTheBody(t *testing.T) {
	for name, end := range map[string]func(io.ReadCloser){
		"read":     func(b io.ReadCloser) { _, _ = io.Copy(io.Discard, b) },
		"given up": func(b io.ReadCloser) { _ = b.Close() },
	} {
		s := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }), false)
		g := newGuard(t, 1, 0)
		client := &http.Client{Transport: newTransport(t, g, s.Client().Transport)}
		ask := func() (*http.Response, error) {
			return client.Do(must(http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, http.NoBody))(t))
		}
		resp := must(ask())(t)
		g.wantInFlight(t, name+": before its end", 1)
		if second, err := ask(); err == nil {
			second.Body.Close()
			t.Errorf("%s: a second request has a slot too", name)
		}
		end(resp.Body)
		g.wantEmpty(t)
		resp.Body.Close()
	}
}

// DataDog/datadog-agent #31517: clients that send their bodies slowly held all permits, and everybody else was refused.
func TestPeer_SlowBodiesHoldAllSlots(t *testing.T) {
	g := newGuard(t, 1, 0)
	m := newMiddleware(t, g, wardenhttp.Config{Grace: 50 * time.Millisecond})
	s := startServer(t, m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })), false)
	slow := must((&net.Dialer{}).DialContext(t.Context(), "tcp", s.Listener.Addr().String()))(t)
	defer slow.Close()
	fmt.Fprint(slow, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n1")
	if got := status(t, slow); got != http.StatusRequestTimeout {
		t.Errorf("whoever sends nothing hears %d", got)
	}
	g.wantEmpty(t)
	wantStatus(t, s, http.StatusOK)
}
