// SPDX-License-Identifier: Apache-2.0

// The client side: a request is sent when it has a slot, and holds it until nothing more of its response can arrive.

package wardenhttp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/inflight"
	"github.com/stopbank/stopbank/warden/internal/slot"
	"github.com/stopbank/stopbank/warden/internal/timelimit"
)

// TransportConfig describes the transport of [NewTransport]. The zero value is ready to use.
type TransportConfig struct {
	// Base sends the requests; nil: [http.DefaultTransport].
	Base http.RoundTripper
	// Task returns the request's task; nil: a task named after the host. Priority Normal means that of the context: the one
	// of the request being served, or that of [warden.WithPriority]. It must be safe for concurrent use and is called before
	// the request acquires its slot.
	Task func(*http.Request) warden.Task
	// Compartment returns the compartment of a request; nil: requests use the warden. See [Config].Compartment; a request for
	// which it returns nil is not sent.
	Compartment func(*http.Request) *bulkhead.Compartment
}

// transport sends a request once it has a slot.
type transport struct {
	capacity capacity
	base     http.RoundTripper
	task     func(*http.Request) warden.Task
}

// NewTransport returns a transport that sends a request once it has a slot of w, with its remaining time and its priority in
// headers. It waits for the slot as [warden.Warden.Acquire] says, and holds it until nothing more can arrive: there is no
// response, or one without a body, or its body was read to the end, failed or was closed. After 101 (Switching Protocols) the
// body is an io.ReadWriteCloser with CloseWrite, and only Close ends the request. A body that is neither read to its end nor
// closed holds its slot forever, as it holds its connection.
//
// Give each dependency its own warden, so that a slow one fills only its own slots. Do not use the server's warden: a request
// that holds one of its slots is denied a second. With cfg.Compartment, w has the role that it has in [New]. The error, a
// [*warden.InvalidError], names the invalid argument.
//
// The elapsed time counts as the dependency's execution time, unless the connection switched protocols, the context was canceled,
// or its deadline passed before there was an answer. A compartment's breaker gets the error of the base or of a Read, an error
// for a status of 500 or more but 501 and 505, else nil. The context of the sent request ends with the Task's deadline, and with the
// compartment's Timeout.
//
// The header Warden-Timeout has the remaining time of the context in milliseconds, or that of a header of the request if it is
// shorter; it is not sent if that is more than a day. Warden-Priority has the priority unless it is normal, and replaces any
// such header of the request, which may come from an untrusted client. Other servers may ignore them; a server with this
// package accepts them as [Config].Trusted says.
//
// If the request is rejected, nothing is sent, its body is closed and the error is that of the warden or of the compartment,
// most often a [*warden.Rejection]; [warden.ErrReentry] if w is the warden of the request being served; or one that matches
// context.DeadlineExceeded if less than a millisecond is left. If the compartment's Timeout ends a request that was sent, the
// error, or that of a Read of the body, is a [*bulkhead.TimeoutError]. Through an [http.Client], errors.Is, errors.As and
// [WriteError] find them in the url.Error. Each redirect and each retry of a client acquires a slot of its own; retries inside
// the base do not.
//
// The transport is safe for concurrent use and does not modify requests. RoundTrip blocks for the queue wait and as long as the
// base does. It allocates the context, the copy of the request that is sent, its headers if there is something to add, and one or
// two small bodies.
func NewTransport(w *warden.Warden, cfg TransportConfig) (http.RoundTripper, error) {
	t := &transport{capacity{w, cfg.Compartment}, cfg.Base, cfg.Task}
	if err := t.capacity.check("NewTransport", "TransportConfig"); err != nil {
		return nil, err
	}
	if err := checkBase("TransportConfig", cfg.Base); err != nil {
		return nil, err
	}
	if t.base == nil {
		t.base = http.DefaultTransport
	}
	if t.task == nil {
		t.task = hostTask
	}
	return t, nil
}

func hostTask(r *http.Request) warden.Task {
	if r.URL == nil { // the base rejects it
		return warden.Task{}
	}
	return warden.Task{Name: r.URL.Host}
}

// RoundTrip sends the request once it has a slot.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	h, out, stranger, err := t.prepare(req)
	if err != nil {
		return nil, err
	}
	if h.trip, out = tripOf(h.Ctx, out).watch(out); h.trip.e != nil {
		h.trip.e.holds().add(h.from)
	}
	resp, err := inflight.RoundTrip(h, onTime{t.base, stranger}, out)
	if err != nil || resp == nil {
		return resp, h.trip.end(nil, timeoutOf(h.Ctx, err))
	}
	_, _, bounded := timelimit.Due(h.Ctx)
	if bounded && t.capacity.compartment != nil && resp.Body != nil && resp.StatusCode != http.StatusSwitchingProtocols {
		resp.Body = &boundedBody{resp.Body, h.Ctx}
	}
	return resp, nil
}

// boundedBody is the body of a response that a compartment's Timeout may end.
type boundedBody struct {
	io.ReadCloser
	ctx context.Context
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	return n, timeoutOf(b.ctx, err)
}

// timeoutOf returns the compartment's TimeoutError if its Timeout caused err. Over HTTP/1, net/http returns the cause of ctx
// itself; over HTTP/2, and in other bases, the error of ctx.
func timeoutOf(ctx context.Context, err error) error {
	var timeout *bulkhead.TimeoutError
	if errors.Is(err, context.DeadlineExceeded) && errors.As(context.Cause(ctx), &timeout) {
		return timeout
	}
	return err
}

// prepare acquires the request's slot and builds the request to send. On failure, a panic included, it closes the request's
// body, as a RoundTripper must.
func (t *transport) prepare(req *http.Request) (h held, out *http.Request, stranger time.Time, err error) {
	ready := false
	defer func() {
		if !ready {
			closeBody(req)
		}
	}()
	if req == nil {
		return h, nil, stranger, noRequest()
	}
	claim := t.capacity.claim(req)
	if claim.Task = t.task(req); claim.Task.Priority == decision.Normal {
		claim.Task.Priority = warden.PriorityFrom(req.Context())
	}
	h.from = source{claim.Warden, claim.Compartment}
	if h.Slot, err = claim.Acquire(req.Context()); err != nil {
		return h, nil, stranger, err
	}
	if out, stranger, err = withHeaders(h.Ctx, req); err != nil {
		h.Slot.End(context.Canceled, slot.Discarded, slot.Served) // nothing was sent: the breaker and the times see nothing
		return h, nil, stranger, err
	}
	ready = true
	return h, out, stranger, nil
}

// CloseIdleConnections closes the base's; http.Client calls it.
func (t *transport) CloseIdleConnections() { closeIdle(t.base) }

// closeIdle closes the idle connections of a base that has that method.
func closeIdle(base http.RoundTripper) {
	if c, ok := base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
