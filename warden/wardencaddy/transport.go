// SPDX-License-Identifier: Apache-2.0

// The transport: reverse_proxy's own, under which the slot of a request stays with its upstream until that has answered.

package wardencaddy

import (
	"context"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/stopbank/stopbank/warden/wardenhttp"
)

func init() { caddy.RegisterModule(new(Transport)) } //nolint:gochecknoinits // as Caddy finds modules

// Transport is the transport http, with its options, for upstreams that go on with a request whose client has left or whose time
// is up, response_header_timeout included, as synchronous workers do: the request keeps its slot until the upstream has answered,
// for the handler's Grace at most, so that no more work begins than the upstream can do, and a retry waits for that. See
// [wardenhttp.Detach]. Without a [Handler] in front it is the transport http.
type Transport struct {
	reverseproxy.HTTPTransport

	detached http.RoundTripper
	longest  time.Duration // of the wait for an answer's header; 0: unlimited
}

// CaddyModule returns the name of the module.
func (*Transport) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.reverse_proxy.transport.stopbank", New: func() caddy.Module { return new(Transport) }}
}

// Provision makes the transport ready for use.
func (t *Transport) Provision(ctx caddy.Context) error {
	t.detached = wardenhttp.Detach(&t.HTTPTransport)
	t.longest, t.ResponseHeaderTimeout = time.Duration(t.ResponseHeaderTimeout), 0 // http would cut the connection
	return t.HTTPTransport.Provision(ctx)
}

// RoundTrip sends a request. It returns when the answer's header has come or the request's context has ended.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	// The request may go on while the rest of the chain writes to its variables, which have no lock.
	if vars, ok := req.Context().Value(caddyhttp.VarsCtxKey).(map[string]any); ok {
		req = req.WithContext(context.WithValue(req.Context(), caddyhttp.VarsCtxKey, maps.Clone(vars)))
		if u, ok := vars[uploadVar].(*upload); ok && req.Body != nil && req.Body != http.NoBody {
			req.Body = u.attempt(req.Body)
		}
	}
	if t.longest > 0 {
		return t.bounded(req)
	}
	return t.detached.RoundTrip(req)
}

// errNoHeader says that no answer's header came in time.
var errNoHeader = &net.OpError{Op: "response_header_timeout", Err: context.DeadlineExceeded}

// bounded sends a request, and waits for the answer's header for longest at most from when it is written, as the transport http.
func (t *Transport) bounded(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	var timer *time.Timer
	var once sync.Once // the timer starts, or RoundTrip returns first
	resp, err := t.detached.RoundTrip(req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteRequest: func(httptrace.WroteRequestInfo) {
			once.Do(func() { timer = time.AfterFunc(t.longest, func() { cancel(errNoHeader) }) })
		},
	})))
	once.Do(func() {})
	if timer == nil || timer.Stop() || err != nil {
		return resp, err
	}
	_ = resp.Body.Close() // it came as the time was up
	return nil, errNoHeader
}

// Interfaces that Caddy looks for.
var (
	_ caddy.Provisioner                                = (*Transport)(nil)
	_ caddy.CleanerUpper                               = (*Transport)(nil)
	_ caddyfile.Unmarshaler                            = (*Transport)(nil)
	_ http.RoundTripper                                = (*Transport)(nil)
	_ reverseproxy.TLSTransport                        = (*Transport)(nil)
	_ reverseproxy.H2CTransport                        = (*Transport)(nil)
	_ reverseproxy.HealthCheckSchemeOverriderTransport = (*Transport)(nil)
)
