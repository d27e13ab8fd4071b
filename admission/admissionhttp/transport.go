// SPDX-License-Identifier: Apache-2.0

// The client's side: a request is sent or rejected at once, and is in flight until nothing more of its response can come.

package admissionhttp

import (
	"io"
	"net/http"

	"github.com/stopbank/stopbank/admission"
)

// TransportConfig describes what [NewTransport] returns. Gate is required.
type TransportConfig struct {
	// Gate admits the requests. Give each dependency one of its own.
	Gate *admission.Gate
	// Base sends them; nil: http.DefaultTransport.
	Base http.RoundTripper
}

type transport struct {
	gate *admission.Gate
	base http.RoundTripper
}

// NewTransport returns an [http.RoundTripper] that sends the requests that cfg.Gate admits. It may be used by any number of
// goroutines. A request is in flight until nothing more can come: there is no response, or one without a body (http.NoBody,
// status 204 or 304, or the answer to a HEAD), or its body has been read to the end, failed or been closed. After 101
// (Switching Protocols) a body that is an io.ReadWriteCloser, as that of an [http.Transport] is, stays one, and only Close
// ends the request.
//
// If the gate rejects, nothing is sent, the request's body is closed and the error is the gate's
// [*admission.RejectedError]; through an [http.Client], errors.Is and errors.As find it in the url.Error. Each redirect that
// a client follows, and each retry that it makes, asks the gate anew; those that the base makes do not.
//
// RoundTrip blocks as long as the base does, never for capacity, does not modify the request and allocates one small body if
// the response has one. [http.Client.CloseIdleConnections] reaches the base. The error, an [*admission.InvalidError], names
// the invalid field.
func NewTransport(cfg TransportConfig) (http.RoundTripper, error) {
	if cfg.Gate == nil {
		return nil, &admission.InvalidError{Field: "TransportConfig.Gate", Value: "nil", Allowed: "a gate made by admission.New"}
	}
	if typed := nilIn(cfg.Base); typed != "" {
		allowed := "nil (http.DefaultTransport) or a transport"
		return nil, &admission.InvalidError{Field: "TransportConfig.Base", Value: typed, Allowed: allowed}
	}
	t := &transport{gate: cfg.Gate, base: cfg.Base}
	if t.base == nil {
		t.base = http.DefaultTransport
	}
	return t, nil
}

// RoundTrip sends the request if the gate admits it.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	permit, err := t.gate.TryAcquire()
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // the error to return is the rejection
		}
		return nil, err
	}
	follows := false // a body, which releases the permit
	defer func() {
		if !follows {
			permit.Release()
		}
	}()
	resp, err := t.base.RoundTrip(req)
	if err != nil || resp == nil || bodiless(req, resp) {
		return resp, err
	}
	follows = true
	if both, ok := resp.Body.(io.ReadWriteCloser); ok && resp.StatusCode == http.StatusSwitchingProtocols {
		resp.Body = &stream{both, permit}
	} else {
		resp.Body = &body{resp.Body, permit}
	}
	return resp, nil
}

// bodiless reports whether resp has nothing to read. Only HTTP/1 says that with http.NoBody; the method and the status
// (RFC 9110, 6.4.1) say it over HTTP/2 too.
func bodiless(req *http.Request, resp *http.Response) bool {
	switch resp.StatusCode {
	case http.StatusNoContent, http.StatusNotModified:
		return true
	}
	return resp.Body == nil || resp.Body == http.NoBody || req.Method == http.MethodHead
}

// CloseIdleConnections closes the idle connections of the base, if it knows how to; http.Client calls it.
func (t *transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
