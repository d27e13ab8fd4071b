// The connections of an http.Transport as a pool: a request needs one from when it asks for it until it is free again.

package wardenhttp

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"

	"github.com/stopbank/stopbank/admission/admissionhttp/inflight"
	"github.com/stopbank/stopbank/warden/monitor"
)

// Pool makes the connections of base a pool that tells how many of them are in use, for warden.Config.Pools, and returns the
// transport that counts them: the Base of a [TransportConfig], or that of an [http.Client] whose requests the handlers under a warden
// wait for. Other transports, such as one that retries, go around it. Several wardens may have the pool. If base is nil, the
// transport is too, and warden.New returns an error.
//
// The bound is MaxConnsPerHost; without one the pool tells nothing. A request needs a connection from when it asks for one until
// its response has no more to read, its body is closed, its context has ended or it fails; after 101 (Switching Protocols)
// net/http does not count the connection any more. As many requests as the bound are in use, with those that wait for their own
// new connection, as net/http counts them; the others wait. Each host has connections of its own, and the host that needs most is
// told. That several hosts share the connections of one HTTP proxy is not seen.
//
// Nothing is told before the first HTTP/1 connection. Requests over HTTP/2 are not counted: they share connections, and net/http
// opens more than MaxConnsPerHost of them as soon as the server's limit of streams requires it, so none waits for one.
//
// RoundTrip blocks as long as base does, does not modify the request, and allocates a trace, contexts, a copy of the request and
// a small body.
func Pool(name string, base *http.Transport) (monitor.Pool, http.RoundTripper) {
	if base == nil {
		return monitor.Pool{Name: name}, nil
	}
	c := &conns{base: base, needed: map[host]int{}}
	return monitor.Pool{Name: name, Stats: c.stats}, c
}

// host has connections of its own. (net/http also tells apart proxies, and requests that only HTTP/1 can carry.)
type host struct{ scheme, name string }

// conns sends requests over base and counts the connections that they need.
type conns struct {
	base *http.Transport

	mu     sync.Mutex
	needed map[host]int // none is 0
	binds  bool         // there was an HTTP/1 connection
}

func (c *conns) stats() monitor.PoolStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	most := c.base.MaxConnsPerHost
	if most <= 0 || !c.binds {
		return monitor.PoolStats{}
	}
	n := 0
	for _, needed := range c.needed {
		n = max(n, needed)
	}
	return monitor.PoolStats{InUse: min(n, most), Max: most, Waiting: monitor.Reading{Value: float64(max(n-most, 0)), OK: true}}
}

// CloseIdleConnections closes the base's; http.Client calls it.
func (c *conns) CloseIdleConnections() { c.base.CloseIdleConnections() }

// RoundTrip sends the request over the base.
func (c *conns) RoundTrip(req *http.Request) (*http.Response, error) {
	if req == nil {
		return nil, noRequest()
	}
	n := &need{conns: c}
	ctx := httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GetConn: func(string) { n.begin(host{req.URL.Scheme, req.URL.Host}) },
		GotConn: n.got,
	})
	resp, err := inflight.RoundTrip(n, http.RoundTripper(c.base), req.WithContext(ctx))
	if err != nil {
		return resp, err
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		n.over()
	} else {
		n.until(req.Context())
	}
	return resp, nil
}

// need is that of one request for a connection, counted at most once whatever is called how often and in which order. A dial that
// goes on after its request has left is nobody's need.
type need struct {
	*conns
	// guarded by conns.mu
	of             host
	counted, ended bool
	forget         func() bool // stops waiting for the end of a context
}

// begin counts the need. A request that is sent again within the base needs the next connection in place of the first.
func (n *need) begin(of host) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.counted && !n.ended {
		n.of, n.counted = of, true
		n.needed[of]++
	}
}

// got learns which connection it is.
func (n *need) got(info httptrace.GotConnInfo) {
	shared := n.shared(info.Conn)
	n.mu.Lock()
	defer n.mu.Unlock()
	if shared {
		n.free()
	} else {
		n.binds = true
	}
}

// shared reports whether a connection is one of HTTP/2. Without TLS it is where there is no choice.
func (c *conns) shared(conn net.Conn) bool {
	if p := c.base.Protocols; p != nil && !p.HTTP1() {
		return true
	}
	t, ok := conn.(*tls.Conn)
	return ok && t.ConnectionState().NegotiatedProtocol == "h2"
}

// until ends the need with ctx: net/http closes the connection then, though a caller may never close the response's body.
func (n *need) until(ctx context.Context) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.counted {
		n.forget = context.AfterFunc(ctx, n.over)
	}
}

// End is called when nothing more of the response can come, or none does.
func (n *need) End(inflight.Outcome) { n.over() }

// over ends the need for good. What a trace says after that means nothing.
func (n *need) over() {
	n.mu.Lock()
	n.ended = true
	n.free()
	forget := n.forget
	n.mu.Unlock()
	if forget != nil {
		forget()
	}
}

// free ends the need, if it is counted. The mutex must be held.
func (n *need) free() {
	if !n.counted {
		return
	}
	n.counted = false
	if n.needed[n.of]--; n.needed[n.of] == 0 {
		delete(n.needed, n.of)
	}
}
