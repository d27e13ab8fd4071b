// The client's side: a request is sent when it has its place, and holds it until nothing more of its response can come.

package wardenhttp

import (
	"net/http"

	"github.com/stopbank/stopbank/admission/admissionhttp/inflight"
	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
)

// TransportConfig describes a [Transport]. The zero value is ready to use.
type TransportConfig struct {
	// Base sends the requests; nil: [http.DefaultTransport].
	Base http.RoundTripper
	// Task says what a request is to the warden; nil: a task of normal priority that is called by the host. It is called by
	// many goroutines at once, before the request asks for its place.
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
// same warden for a second waits for itself. With cfg.Compartment, w is what it is to [New]. The error, a
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

func hostTask(r *http.Request) warden.Task { return warden.Task{Name: r.URL.Host} }

// RoundTrip sends the request once it has its place, for which it waits as [warden.Warden.Acquire] says. It holds the place
// until nothing more can come: there is no response, or one without a body, or its body has been read to the end, failed or
// been closed. After 101 (Switching Protocols) the body is an io.ReadWriteCloser, with CloseWrite, and only Close ends the
// request. [inflight.RoundTrip] has every case. A body that nobody reads to its end or closes holds its place for ever, as
// it holds its connection.
//
// How long it took counts as the dependency's time, unless it switched protocols or its context was canceled. The breaker of
// a compartment is told the error of the base or of a Read, an error if the status is 500 or more, and else that all
// went well. What is sent in a compartment has a context that ends with the compartment's Timeout.
//
// If the request is refused, nothing is sent, its body is closed and the error is that of the warden or of the
// compartment, most often a [*warden.Rejection]; through an [http.Client], errors.Is, errors.As and [WriteError] find it in
// the url.Error. Each redirect that a client follows, and each retry that it makes, asks anew; those that the base makes do not.
//
// RoundTrip blocks as long as the base does, after having waited for the place, does not modify the request and
// allocates one small body.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	p, err := t.acquire(req)
	if err != nil {
		return nil, err
	}
	if p.ctx != req.Context() {
		req = req.WithContext(p.ctx)
	}
	return inflight.RoundTrip(p, t.base, req)
}

// acquire asks for the request's place. If it gets none, however that comes, it closes the request's body, as a
// RoundTripper must.
func (t *Transport) acquire(req *http.Request) (p place, err error) {
	given := false
	defer func() {
		if !given && req.Body != nil {
			_ = req.Body.Close() // the error to return is the refusal
		}
	}()
	if t.task == nil {
		return place{}, notMade("Transport", "wardenhttp.NewTransport")
	}
	p, err = t.capacity.acquire(req, t.task(req))
	given = err == nil
	return p, err
}

// CloseIdleConnections closes the idle connections of the base transport, if it knows how to; http.Client calls it.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
