// The client's side: a request is sent when it has its place, and holds it until nothing more of its response can come.

package wardenhttp

import (
	"errors"
	"io"
	"net/http"

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

// RoundTrip sends the request once it has its place, for which it waits as [warden.Warden.Acquire] says. It holds the place until
//
//   - the base transport returns an error, no response or no body, panics or calls runtime.Goexit;
//   - or the response has come and can have no body: its Body is http.NoBody, its status is 204 or 304, or the request
//     was a HEAD;
//   - or a Read of the response's body returns an error, io.EOF included, for instance because the request's context has
//     ended;
//   - or the body is closed.
//
// After 101 (Switching Protocols) the body is an io.ReadWriteCloser, with CloseWrite, and only Close ends the request: the
// end of what the other side sends is not the end of what this side does. Informational responses end nothing. A body
// that nobody reads to its end or closes holds its place for ever, as it holds its connection.
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
	held, came := false, errAborted
	defer func() {
		if !held {
			p.finish(came)
		}
	}()
	resp, err := t.base.RoundTrip(req)
	came = err
	if err != nil || resp == nil {
		return resp, err
	}
	if resp.StatusCode >= http.StatusInternalServerError {
		came = errStatus
	}
	if bodiless(req, resp) {
		return resp, nil
	}
	held = true
	resp.Body = hold(resp, p, came)
	return resp, nil
}

// What the breaker of a compartment is told.
var (
	errAborted = errors.New("wardenhttp: it did not return") // a handler or a base transport
	errStatus  = errors.New("wardenhttp: the response has a status of 500 or more")
)

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

// bodiless reports whether resp has nothing to read. Only HTTP/1 marks that with http.NoBody; the method and the status
// (RFC 9110, 6.4.1) say it for HTTP/2 too.
func bodiless(req *http.Request, resp *http.Response) bool {
	return resp.Body == nil || resp.Body == http.NoBody || req.Method == http.MethodHead ||
		resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusNotModified
}

// hold returns resp's body, which gives the place back when it ends. A place is given back once: Read and Close need not
// agree who was first.
func hold(resp *http.Response, p place, came error) io.ReadCloser {
	if stream, ok := resp.Body.(io.ReadWriteCloser); ok && resp.StatusCode == http.StatusSwitchingProtocols {
		return &upgraded{stream, p}
	}
	return &body{resp.Body, p, came}
}

// body is a response's body.
type body struct {
	io.ReadCloser
	place place
	came  error // what came of the request, if its body does not fail
}

// Read gives the place back when there is no more to read, before the caller knows.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch err {
	case nil:
	case io.EOF:
		b.place.finish(b.came)
	default:
		b.place.finish(err)
	}
	return n, err
}

// Close closes the body and then gives the place back.
func (b *body) Close() error {
	defer b.place.finish(b.came)
	return b.ReadCloser.Close()
}

// upgraded is the two-way stream after 101.
type upgraded struct {
	io.ReadWriteCloser
	place place
}

// Close closes the stream and then gives the place back.
func (u *upgraded) Close() error {
	defer u.place.end(nil, true)
	return u.ReadWriteCloser.Close()
}

// CloseWrite ends the writing direction, if the stream can.
func (u *upgraded) CloseWrite() error { return closeWrite(u.ReadWriteCloser) }
