// SPDX-License-Identifier: Apache-2.0

// Bugs that others had, by the issue in which they were told, tried over real connections.

package wardenhttp_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
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
		front := serve(newHandler(t, g, proxyTo(t, upstream.URL, upstream.Client().Transport).ServeHTTP))
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
		client := through(t, g, s)
		resp := send(t, client, http.MethodGet, s.URL, http.NoBody)
		g.wantInFlight(t, name+": before its end", 1)
		if second, err := client.Get(s.URL); err == nil {
			second.Body.Close()
			t.Errorf("%s: a second request has a slot too", name)
		}
		end(resp.Body)
		g.wantEmpty(t)
		resp.Body.Close()
	}
}

// DataDog/datadog-agent #31517: clients that send their bodies slowly held all permits, and everybody else was refused. These come back
// as soon as they are cut off or rejected, and do not keep the others out either.
func TestPeer_SlowBodiesHoldAllSlots(t *testing.T) {
	const slow, slots = 20, 4
	g := newGuard(t, slots, slots)
	s := startServer(t, g.handle(t, wardenhttp.Config{Grace: 30 * time.Millisecond}, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	}), false)
	over, cancel := context.WithCancel(t.Context())
	var attackers sync.WaitGroup
	defer attackers.Wait()
	defer cancel()
	for range slow {
		attackers.Go(func() {
			for over.Err() == nil {
				c, err := new(net.Dialer).DialContext(over, "tcp", s.Listener.Addr().String())
				if err != nil {
					return
				}
				stop := context.AfterFunc(over, func() { _ = c.Close() })
				_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\nx")
				_, _ = c.Read(make([]byte, 1000))
				_ = c.Close()
				stop()
			}
		})
	}
	eventually(t, "all slots are theirs", func() bool { return g.Limiter().Stats().Rejected > 0 })
	answered := 0
	eventually(t, "H15: twenty answers to others", func() bool {
		resp := must(post(t, s))(t)
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			answered++
		}
		return answered == 20
	})
}
