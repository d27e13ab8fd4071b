// The client's side: a request is sent or rejected at once, and is in flight until nothing more of its response can come.

package admissionhttp

import (
	"net/http"

	"github.com/stopbank/stopbank/admission"
	"github.com/stopbank/stopbank/admission/admissionhttp/inflight"
	"github.com/stopbank/stopbank/admission/internal/nilcheck"
)

// TransportConfig describes a [Transport]. Gate is required.
type TransportConfig struct {
	// Gate admits the requests. Give each dependency one of its own.
	Gate *admission.Gate
	// Base sends them; nil: http.DefaultTransport.
	Base http.RoundTripper
}

// Transport is an [http.RoundTripper] that sends what its gate admits. It may be used by any number of goroutines. The
// zero value rejects everything, like the zero Gate, and so does a nil one.
type Transport struct {
	gate *admission.Gate
	base http.RoundTripper
}

// NewTransport returns a Transport. The error, an [*admission.InvalidError], names the invalid field.
func NewTransport(cfg TransportConfig) (*Transport, error) {
	if cfg.Gate == nil {
		return nil, &admission.InvalidError{Field: "TransportConfig.Gate", Value: "nil", Allowed: "a gate made by admission.New"}
	}
	if typed := nilcheck.Optional(cfg.Base); typed != "" {
		return nil, &admission.InvalidError{Field: "TransportConfig.Base", Value: typed, Allowed: "nil (http.DefaultTransport) or a transport"}
	}
	t := &Transport{gate: cfg.Gate, base: cfg.Base}
	if t.base == nil {
		t.base = http.DefaultTransport
	}
	return t, nil
}

// RoundTrip sends the request if the gate admits it. The request is then in flight until nothing more can come: there is no
// response, or one without a body, or its body has been read to the end, failed or been closed. After 101 (Switching
// Protocols) the body is an io.ReadWriteCloser, with CloseWrite, and only Close ends the request. [inflight.RoundTrip] has
// every case.
//
// If the gate rejects, nothing is sent, the request's body is closed and the error is the gate's
// [*admission.RejectedError]; through an [http.Client], errors.Is and errors.As find it in the url.Error. Each redirect that
// a client follows, and each retry that it makes, asks the gate anew; those that the base makes do not.
//
// RoundTrip blocks as long as the base does, never for capacity, does not modify the request and allocates one small
// body.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if t == nil || t.gate == nil {
		t = &Transport{gate: new(admission.Gate)}
	}
	permit, err := t.gate.TryAcquire()
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // the error to return is the rejection
		}
		return nil, err
	}
	return inflight.RoundTrip(held{permit}, t.base, req)
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
