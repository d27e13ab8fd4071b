// SPDX-License-Identifier: Apache-2.0

// Mistakes that would silently break what the middleware promises are reported in the server's log, once.

package wardenhttp

import (
	"net/http"
	"runtime"
)

// nilHandler answers 500 in the place of a nil handler. [http.DefaultServeMux] would serve what any package has registered there,
// such as net/http/pprof.
type nilHandler struct {
	middleware *Middleware
	value      string
}

// ServeHTTP implements [http.Handler].
func (h *nilHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := invalidField("Middleware.Handler: next", h.value, "a handler, such as http.DefaultServeMux")
	if !h.middleware.warnedNil.Swap(true) {
		logf(r, "%v (this is logged once)", err)
	}
	h.middleware.WriteError(w, nil, err)
}

// warnTimeoutHandler looks for net/http's TimeoutHandler among its callers when a status of 503 is written: after its timeout it
// returns and leaves its handler running without a slot.
func (m *Middleware) warnTimeoutHandler(r *http.Request) {
	if m.warnedTimeoutHandler.Load() {
		return
	}
	var callers [8]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(3, callers[:])])
	for more := true; more; {
		var f runtime.Frame
		if f, more = frames.Next(); f.Function != "net/http.(*timeoutHandler).ServeHTTP" {
			continue
		}
		if !m.warnedTimeoutHandler.Swap(true) {
			logf(r, "wardenhttp: http.TimeoutHandler inside the middleware leaves handlers running that hold no slot: "+
				"mount it outside, or use Config.Buffered (this is logged once)")
		}
		return
	}
}

// warnHTTP2 reports a server whose HTTP/2 connections have no WriteByteTimeout: a client that reads nothing at all keeps its
// handlers waiting without end, because the connection's buffer stays full.
func (m *Middleware) warnHTTP2(r *http.Request) {
	s := serverOf(r)
	if s == nil || r.ProtoMajor != 2 || s.HTTP2 != nil && s.HTTP2.WriteByteTimeout > 0 ||
		m.warnedHTTP2.Load() || m.warnedHTTP2.Swap(true) {
		return
	}
	logf(r, "wardenhttp: HTTP/2 without a WriteByteTimeout: a client that reads nothing keeps its slot; "+
		"set it in http.Server.HTTP2 (this is logged once)")
}
