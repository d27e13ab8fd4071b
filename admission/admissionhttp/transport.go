// The client's side: a request is sent or refused at once, and is in flight until nothing more of its response can come.

package admissionhttp

import (
	"io"
	"net/http"

	"github.com/stopbank/stopbank/admission"
)

// TransportConfig describes a [Transport]. Gate is required.
type TransportConfig struct {
	// Gate admits the requests. Give each dependency one of its own.
	Gate *admission.Gate
	// Base sends them; nil: http.DefaultTransport.
	Base http.RoundTripper
}

// Transport is an [http.RoundTripper] that sends what its gate admits. It may be used by any number of goroutines. The
// zero value refuses everything, like the zero Gate.
type Transport struct {
	gate *admission.Gate
	base http.RoundTripper
}

// NewTransport returns a Transport. The error, an [*admission.InvalidError], says that cfg.Gate is missing.
func NewTransport(cfg TransportConfig) (*Transport, error) {
	if cfg.Gate == nil {
		return nil, &admission.InvalidError{Field: "TransportConfig.Gate", Value: "nil", Allowed: "a gate"}
	}
	t := &Transport{gate: cfg.Gate, base: cfg.Base}
	if t.base == nil {
		t.base = http.DefaultTransport
	}
	return t, nil
}

// RoundTrip sends the request if the gate admits it. The request is then in flight until
//
//   - the base transport returns an error, no response or no body, panics or calls runtime.Goexit;
//   - or the response has come and can have no body: its Body is http.NoBody, its status is 204 or 304, or the request
//     was a HEAD;
//   - or a Read of the response's body returns an error, io.EOF included, for instance because the request's context has
//     ended;
//   - or the body is closed.
//
// After 101 (Switching Protocols) the body is an io.ReadWriteCloser, with CloseWrite, and only Close ends the request: the
// end of what the other side sends is not the end of what this side does. Informational responses end nothing.
//
// If the gate refuses, nothing is sent, the request's body is closed and the error is the gate's
// [*admission.RejectedError]; through an [http.Client], errors.Is and errors.As find it in the url.Error. Each redirect that
// a client follows, and each retry that it makes, asks the gate anew; those that the base makes do not.
//
// RoundTrip blocks as long as the base does, never for capacity, does not modify the request and allocates one small
// body.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	gate := t.gate
	if gate == nil {
		gate = new(admission.Gate)
	}
	permit, err := gate.TryAcquire()
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // the error to return is the refusal
		}
		return nil, err
	}
	ended := true
	defer func() {
		if ended {
			permit.Release()
		}
	}()
	resp, err := t.base.RoundTrip(req)
	if err != nil || resp == nil || bodiless(req, resp) {
		return resp, err
	}
	ended = false
	resp.Body = hold(resp, permit)
	return resp, nil
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

// hold returns resp's body, which releases the permit when it ends. Permits end once: Read and Close need not agree who
// was first.
func hold(resp *http.Response, permit admission.Permit) io.ReadCloser {
	if stream, ok := resp.Body.(io.ReadWriteCloser); ok && resp.StatusCode == http.StatusSwitchingProtocols {
		return &upgraded{stream, permit}
	}
	return &body{resp.Body, permit}
}

// body is a response's body.
type body struct {
	io.ReadCloser
	permit admission.Permit
}

// Read releases when there is no more to read, before the caller knows.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.permit.Release()
	}
	return n, err
}

// Close closes the body and then releases.
func (b *body) Close() error {
	defer b.permit.Release()
	return b.ReadCloser.Close()
}

// upgraded is the two-way stream after 101.
type upgraded struct {
	io.ReadWriteCloser
	permit admission.Permit
}

// Close closes the stream and then releases.
func (u *upgraded) Close() error {
	defer u.permit.Release()
	return u.ReadWriteCloser.Close()
}

// CloseWrite ends the writing direction, if the stream can.
func (u *upgraded) CloseWrite() error { return closeWrite(u.ReadWriteCloser) }
