// SPDX-License-Identifier: Apache-2.0

// The server's side: a request reaches its handler or is answered at once, and is in flight until all of it has ended.

package admissionhttp

import (
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/stopbank/stopbank/admission"
)

// HandlerConfig describes what [NewHandler] returns. Gate is required, the zero value of the rest is ready to use.
type HandlerConfig struct {
	// Gate admits the requests. Several handlers may share one.
	Gate *admission.Gate
	// RetryAfter is how long a rejected client is asked to stay away, in whole seconds: it is rounded up, 0 means one second,
	// and up to as much again is added at random, because clients that were rejected together must not come back together.
	// 0 to an hour. Rejected, if set, does not use it.
	RetryAfter time.Duration
	// Rejected answers the requests that the gate rejected, without a permit. If it is nil the answer is 503 (Service
	// Unavailable) in text/plain, with a Retry-After header, that no cache keeps.
	Rejected http.Handler
}

type handler struct {
	gate           *admission.Gate
	next, rejected http.Handler
}

// NewHandler returns a handler that calls next for the requests that cfg.Gate admits and cfg.Rejected for all others. It
// never waits. A request is in flight until next returns, panics or calls runtime.Goexit; a panic passes through with its
// stack trace complete. If next hijacks the connection, the request is in flight until next is done and the connection that
// Hijack returned has been closed; see [http.Hijacker].
//
// The ResponseWriter of next is the server's where there is nothing to hijack, as in HTTP/2. Where there is, it works with
// [http.ResponseController], and is an http.Hijacker, io.ReaderFrom (sendfile) and io.StringWriter, and an http.Flusher if
// the server's is; the deprecated http.CloseNotifier is not passed on. A hijacked connection is a net.Conn with CloseWrite,
// and not a *net.TCPConn or *tls.Conn.
//
// An admitted request costs no allocation, or two small ones if the connection can be hijacked. The error, an
// [*admission.InvalidError], names the invalid field.
func NewHandler(next http.Handler, cfg HandlerConfig) (http.Handler, error) {
	switch {
	case next == nil:
		return nil, &admission.InvalidError{Field: "next", Value: "nil", Allowed: "a handler"}
	case nilIn(next) != "":
		return nil, &admission.InvalidError{Field: "next", Value: nilIn(next), Allowed: "a handler"}
	case cfg.Gate == nil:
		return nil, &admission.InvalidError{Field: "HandlerConfig.Gate", Value: "nil", Allowed: "a gate made by admission.New"}
	case cfg.RetryAfter < 0 || cfg.RetryAfter > time.Hour:
		return nil, &admission.InvalidError{Field: "HandlerConfig.RetryAfter", Value: cfg.RetryAfter,
			Allowed: "0 (the default, 1s) to 1h"}
	case nilIn(cfg.Rejected) != "":
		return nil, &admission.InvalidError{Field: "HandlerConfig.Rejected", Value: nilIn(cfg.Rejected),
			Allowed: "nil (answers 503) or a handler"}
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
	hijacker, ok := find[http.Hijacker](w)
	if !ok {
		defer permit.Release()
		h.next.ServeHTTP(w, r)
		return
	}
	req := &request{permit: permit}
	req.parts.Store(1)
	defer req.end()
	wrapped := &writer{w, hijacker, req}
	if _, flushes := find[http.Flusher](w); flushes {
		h.next.ServeHTTP(flusher{wrapped}, r)
		return
	}
	h.next.ServeHTTP(wrapped, r)
}

// nilIn describes a nil pointer or function inside v, which is not nil itself and panics when it is called; "": there is none.
func nilIn(v any) string {
	switch inner := reflect.ValueOf(v); inner.Kind() {
	case reflect.Pointer, reflect.Func:
		if inner.IsNil() {
			return fmt.Sprintf("a nil %T", v)
		}
	}
	return ""
}

// unavailable answers 503 (RFC 9110, 15.6.4) with a Retry-After of this many seconds, or up to twice as many.
type unavailable int64

// ServeHTTP answers the request. No cache keeps the answer, whatever outer handlers have said of the content that is not sent. A
// Content-Encoding is that of an outer handler that compresses what is written.
func (u unavailable) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	maps.DeleteFunc(h, func(name string, _ []string) bool { return ofContent(name) })
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Retry-After", strconv.FormatInt(int64(u)+rand.Int64N(int64(u)+1), 10))
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = io.WriteString(w, "Service Unavailable\n") // on failure the client is gone
}

// ofContent reports whether a header describes content, says how long it may be kept, or lets a server in front replace it: nginx, Apache
// and lighttpd, LiteSpeed, Perlbal.
func ofContent(name string) bool {
	switch name = http.CanonicalHeaderKey(strings.TrimPrefix(name, http.TrailerPrefix)); name {
	case "Accept-Ranges", "Age", "Cache-Groups", "Content-Digest", "Content-Disposition", "Content-Language", "Content-Length",
		"Content-Location", "Content-Md5", "Content-Range", "Content-Type", "Digest", "Edge-Control", "Etag", "Expires", "Last-Modified",
		"Pragma", "Repr-Digest", "Surrogate-Control", "Surrogate-Key", "Unencoded-Digest", "Use-As-Dictionary", "Xkey":
		return true
	}
	for _, begins := range [...]string{"X-Accel-", "X-Sendfile", "X-Lighttpd-Send-", "X-Litespeed-", "X-Reproxy-"} {
		if strings.HasPrefix(name, begins) {
			return true
		}
	}
	return strings.HasSuffix(name, "Cache-Control") || strings.Contains(name, "Cache-Tag")
}

// wholeSeconds rounds up to whole seconds, at least one.
func wholeSeconds(d time.Duration) unavailable {
	return unavailable(max(1, (d+time.Second-1)/time.Second))
}
