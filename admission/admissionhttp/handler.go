// The server's side: a request reaches its handler or is answered at once, and is in flight until all of it has ended.

package admissionhttp

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/stopbank/stopbank/admission"
	"github.com/stopbank/stopbank/admission/admissionhttp/inflight"
	"github.com/stopbank/stopbank/admission/internal/nilcheck"
)

// HandlerConfig describes what [NewHandler] returns. Gate is required, the zero value of the rest is ready to use.
type HandlerConfig struct {
	// Gate admits the requests. Several handlers may share one.
	Gate *admission.Gate
	// RetryAfter is how long a rejected client is asked to stay away, in whole seconds: it is rounded up, 0 means one second, and up to as
	// much again is added at random, because those who were rejected together must not come back together. 0 to an hour. Rejected,
	// if set, does not use it.
	RetryAfter time.Duration
	// Rejected answers the requests that the gate rejected, without a permit. If it is nil the answer is 503 (Service
	// Unavailable) in text/plain, with a Retry-After header.
	Rejected http.Handler
}

type handler struct {
	gate           *admission.Gate
	next, rejected http.Handler
}

// NewHandler returns a handler that calls next for the requests that cfg.Gate admits and cfg.Rejected for all others. It
// never waits. A request is in flight until next returns, panics or calls runtime.Goexit; a panic passes through with its
// stack trace complete. If next hijacks the connection, the request is in flight until next is done and the connection that Hijack
// returned has been closed; see [http.Hijacker].
//
// [inflight.Serve] describes the ResponseWriter that next gets, and hijacked connections.
//
// An admitted request costs one small allocation, or two if the connection can be hijacked. The error, an [*admission.InvalidError],
// names the invalid field.
func NewHandler(next http.Handler, cfg HandlerConfig) (http.Handler, error) {
	missing, typed := nilcheck.Required(next), nilcheck.Optional(cfg.Rejected)
	switch {
	case missing != "":
		return nil, &admission.InvalidError{Field: "next", Value: missing, Allowed: "a handler"}
	case cfg.Gate == nil:
		return nil, &admission.InvalidError{Field: "HandlerConfig.Gate", Value: "nil", Allowed: "a gate made by admission.New"}
	case cfg.RetryAfter < 0 || cfg.RetryAfter > time.Hour:
		return nil, &admission.InvalidError{Field: "HandlerConfig.RetryAfter", Value: cfg.RetryAfter, Allowed: "0 (the default, 1s) to 1h"}
	case typed != "":
		return nil, &admission.InvalidError{Field: "HandlerConfig.Rejected", Value: typed, Allowed: "nil (answers 503) or a handler"}
	}
	h := &handler{gate: cfg.Gate, next: next, rejected: cfg.Rejected}
	if h.rejected == nil {
		h.rejected = wholeSeconds(cfg.RetryAfter)
	}
	return h, nil
}

// ServeHTTP admits the request or has it answered by the handler for rejected ones.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	permit, err := h.gate.TryAcquire()
	if err != nil {
		h.rejected.ServeHTTP(w, r)
		return
	}
	inflight.Serve(held{permit}, h.next, w, r)
}

// held is a request's permit. A gate ignores how the request ended.
type held struct{ admission.Permit }

// End releases.
func (h held) End(inflight.Outcome) { h.Release() }

// unavailable answers 503 (RFC 9110, 15.6.4) with a Retry-After of this many seconds, or up to twice as many.
type unavailable int64

// ServeHTTP answers the request.
func (u unavailable) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Retry-After", strconv.FormatInt(int64(u)+rand.Int64N(int64(u)+1), 10))
	http.Error(w, http.StatusText(http.StatusServiceUnavailable), http.StatusServiceUnavailable)
}

// wholeSeconds rounds up to whole seconds, at least one.
func wholeSeconds(d time.Duration) unavailable {
	return unavailable(max(1, (d+time.Second-1)/time.Second))
}
