// SPDX-License-Identifier: Apache-2.0

// The connections of an http.Transport as a pool: a request needs one from when it asks for it until it is free again.

package wardenhttp

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"

	"github.com/stopbank/stopbank/warden/internal/inflight"
	"github.com/stopbank/stopbank/warden/monitor"
)

// Pool makes the connections of base a pool that reports how many of them are in use, for warden.Config.Pools, and returns the
// transport that counts them: the Base of a [TransportConfig], or that of an [http.Client] whose requests the handlers under a
// warden wait for. Other transports, such as one that retries, go around it. Several wardens may have the pool. If base is nil,
// the transport is too, and warden.New returns an error.
//
// The bound is MaxConnsPerHost; without one the pool reports nothing. A request needs a connection from when it asks for one
// until its response has no more to read, its body is closed, its context has ended or it fails; after 101 (Switching Protocols)
// net/http does not count the connection any more. As many requests as the bound are in use, with those that wait for their own
// new connection, as net/http counts them; the others wait. Each host has connections of its own, and the host that needs most is
// told. That several hosts share the connections of one HTTP proxy is not seen.
//
// Nothing is reported before the first HTTP/1 connection. Requests over HTTP/2 are not counted: they share connections, and
// net/http opens more than MaxConnsPerHost of them as soon as the server's limit of streams requires it, so none waits for one.
//
// RoundTrip blocks as long as base does, does not modify the request, and allocates a trace, contexts, a copy of the request and
// a small body.
func Pool(name string, base *http.Transport) (monitor.Pool, http.RoundTripper) {
	if base == nil {
		return monitor.Pool{Name: name}, nil
	}
	c := &poolTransport{base: base, needed: map[host]int{}}
	return monitor.Pool{Name: name, Stats: c.stats}, c
}

// host has connections of its own. (net/http also has separate connections for each proxy, and for requests that only HTTP/1 can
// carry.)
type host struct{ scheme, name string }

// poolTransport sends requests over base and counts the connections that they need.
type poolTransport struct {
	base *http.Transport

	mu     sync.Mutex
	needed map[host]int // none is 0
	http1  bool         // there was an HTTP/1 connection
}

func (c *poolTransport) stats() monitor.PoolStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	most := c.base.MaxConnsPerHost
	if most <= 0 || !c.http1 {
		return monitor.PoolStats{}
	}
	n := 0
	for _, needed := range c.needed {
		n = max(n, needed)
	}
	return monitor.PoolStats{InUse: min(n, most), Max: most, Waiting: monitor.Reading{Value: float64(max(n-most, 0)), OK: true}}
}

// CloseIdleConnections closes the base's; http.Client calls it.
func (c *poolTransport) CloseIdleConnections() { c.base.CloseIdleConnections() }

// RoundTrip sends the request over the base.
func (c *poolTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req == nil {
		return nil, noRequest()
	}
	n := &connNeed{poolTransport: c}
	ctx := httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GetConn: func(string) { n.count(host{req.URL.Scheme, req.URL.Host}) },
		GotConn: n.gotConn,
	})
	resp, err := inflight.RoundTrip(n, http.RoundTripper(c.base), req.WithContext(ctx))
	if err != nil {
		return resp, err
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		n.end()
	} else {
		n.endWith(req.Context())
	}
	return resp, nil
}

// connNeed is the need of one request for a connection. It is counted at most once, however often and in whatever order a trace
// calls. A dial that goes on after its request has ended counts for none.
type connNeed struct {
	*poolTransport
	// guarded by conns.mu
	host          host
	counted, over bool
	stopWatching  func() bool // stops waiting for the end of a context
}

// count adds the need. A request that is sent again within the base needs the next connection in place of the first.
func (n *connNeed) count(of host) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.counted && !n.over {
		n.host, n.counted = of, true
		n.needed[of]++
	}
}

// gotConn forgets the need if the connection is shared.
func (n *connNeed) gotConn(info httptrace.GotConnInfo) {
	shared := n.shared(info.Conn)
	n.mu.Lock()
	defer n.mu.Unlock()
	if shared {
		n.uncountLocked()
	} else {
		n.http1 = true
	}
}

// shared reports whether a connection is one of HTTP/2. Without TLS it is where there is no choice.
func (c *poolTransport) shared(conn net.Conn) bool {
	if p := c.base.Protocols; p != nil && !p.HTTP1() {
		return true
	}
	t, ok := conn.(*tls.Conn)
	return ok && t.ConnectionState().NegotiatedProtocol == "h2"
}

// endWith ends the need when ctx ends: net/http closes the connection then, though a caller may never close the response's body.
func (n *connNeed) endWith(ctx context.Context) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.counted {
		n.stopWatching = context.AfterFunc(ctx, n.end)
	}
}

// End is called when nothing more of the response can come, or none does.
func (n *connNeed) End(inflight.Outcome) { n.end() }

// end ends the need for good: later calls of a trace change nothing.
func (n *connNeed) end() {
	n.mu.Lock()
	n.over = true
	n.uncountLocked()
	forget := n.stopWatching
	n.mu.Unlock()
	if forget != nil {
		forget()
	}
}

// uncountLocked removes the need, if it is counted.
func (n *connNeed) uncountLocked() {
	if !n.counted {
		return
	}
	n.counted = false
	if n.needed[n.host]--; n.needed[n.host] == 0 {
		delete(n.needed, n.host)
	}
}
