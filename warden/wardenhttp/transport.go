// The client's side: a request is sent when it has its place, and holds it until nothing more of its response can come.

package wardenhttp

import (
	"context"
	"net/http"

	"github.com/stopbank/stopbank/admission/admissionhttp/inflight"
	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/internal/place"
)

// TransportConfig describes a [Transport]. The zero value is ready to use.
type TransportConfig struct {
	// Base sends the requests; nil: [http.DefaultTransport].
	Base http.RoundTripper
	// Task says what a request is to the warden; nil: a task that is called by the host. Normal priority means that of the context:
	// of the request that is being served, or what [warden.WithPriority] said. It is called by many goroutines at once, before the
	// request asks for its place.
	Task func(*http.Request) warden.Task
	// Compartment says in which compartment a request is to run; nil: in none, the warden is asked. See
	// [Config.Compartment]; here a request for which it returns nil is not sent.
	Compartment func(*http.Request) *bulkhead.Compartment
}

// Transport is an [http.RoundTripper] that sends what is given a place. It may be used by any number of goroutines, and
// must come from [NewTransport]: the zero Transport sends nothing.
type Transport struct {
	capacity capacity
	base     http.RoundTripper
	task     func(*http.Request) warden.Task
}

// NewTransport returns a Transport that asks w. Give each dependency a warden of its own, so that what is slow fills its
// own places and no others; and let it be another one than the server's, since a request that holds a place and asks the
// same warden for a second is refused. With cfg.Compartment, w is what it is to [New]. The error, a
// [*warden.InvalidError], says that there is nobody to ask.
func NewTransport(w *warden.Warden, cfg TransportConfig) (*Transport, error) {
	t := &Transport{capacity{w, cfg.Compartment}, cfg.Base, cfg.Task}
	if err := t.capacity.check(); err != nil {
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
	if r.URL == nil { // the base refuses it
		return warden.Task{}
	}
	return warden.Task{Name: r.URL.Host}
}

// RoundTrip sends the request, with the time that is left and its priority in headers, once it has its place, for which it waits as [warden.Warden.Acquire] says. It holds the place
// until nothing more can come: there is no response, or one without a body, or its body has been read to the end, failed or
// been closed. After 101 (Switching Protocols) the body is an io.ReadWriteCloser, with CloseWrite, and only Close ends the
// request. [inflight.RoundTrip] has every case. A body that nobody reads to its end or closes holds its place for ever, as
// it holds its connection.
//
// How long it took counts as the dependency's time, unless it switched protocols or its context was canceled. The breaker of
// a compartment is told the error of the base or of a Read, an error if the status is 500 or more, and else that all
// went well. What is sent has a context that ends with the Task's deadline, and with the compartment's Timeout.
//
// Warden-Timeout says in milliseconds how much is left of the context, Warden-Priority how much the request matters unless that is
// [warden.Normal], whatever header of this name was there: it may be a stranger's. Any server may ignore them; one under this
// package believes them as [Config.Trusted] says.
//
// If the request is refused, nothing is sent, its body is closed and the error is that of the warden or of the
// compartment, most often a [*warden.Rejection], a [*warden.ReentryError] if w is that of the request being served, or
// context.DeadlineExceeded if less than a millisecond is left; through an [http.Client], errors.Is, errors.As and [WriteError] find it in
// the url.Error. Each redirect that a client follows, and each retry that it makes, asks anew; those that the base makes do not.
//
// RoundTrip blocks as long as the base does, after having waited for the place, does not modify the request, and allocates the context
// and the copy of the request that is sent, its headers if there is something to say, and one small body.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	p, out, err := t.prepare(req)
	if err != nil {
		return nil, err
	}
	return inflight.RoundTrip(held{p}, t.base, out)
}

// prepare asks for the request's place, and makes what is sent. If that comes to nothing, however, it closes the request's body, as a
// RoundTripper must.
func (t *Transport) prepare(req *http.Request) (p place.Place, out *http.Request, err error) {
	ready := false
	defer func() {
		if !ready {
			closeBody(req)
		}
	}()
	switch {
	case t == nil || t.task == nil:
		return p, nil, notMade("Transport", "wardenhttp.NewTransport")
	case req == nil:
		return p, nil, noRequest()
	}
	is := t.capacity.claim(req)
	if is.Task = t.task(req); is.Task.Priority == warden.Normal {
		is.Task.Priority = warden.PriorityFrom(req.Context())
	}
	if p, err = is.Acquire(req.Context()); err != nil {
		return p, nil, err
	}
	if out, err = tell(p.Ctx, req); err != nil {
		p.End(context.Canceled, true) // nobody was asked, and nobody is to blame
		return p, nil, err
	}
	ready = true
	return p, out, nil
}

// CloseIdleConnections closes the idle connections of the base transport, if it knows how to; http.Client calls it.
func (t *Transport) CloseIdleConnections() {
	if t == nil {
		return
	}
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
