// SPDX-License-Identifier: Apache-2.0

// The server side: a request gets a slot or an answer that says why not, and holds the slot until it has ended completely.

package wardenhttp

import (
	"cmp"
	"net/http"
	"time"

	"github.com/stopbank/stopbank/warden/internal/inflight"
	"github.com/stopbank/stopbank/warden/internal/nilcheck"
	"github.com/stopbank/stopbank/warden/internal/requestid"
	"github.com/stopbank/stopbank/warden/internal/rpcstatus"
	"github.com/stopbank/stopbank/warden/internal/slot"
	"github.com/stopbank/stopbank/warden/internal/wire"
)

// Handler returns a handler that calls next for requests that get a slot, and answers the others itself as [WriteError] does.
// A nil next, which would be [http.DefaultServeMux] elsewhere, is a mistake: it is answered 500 and logged once.
//
// A request waits for its slot as [warden.Warden.Acquire] says; its body has not been read by then. It holds the slot until
// next is done; a panic or runtime.Goexit passes through with its stack trace complete. If next hijacks the connection, the
// request holds its slot until next is done and the connection that Hijack returned has been closed; see [http.Hijacker]. The
// execution time does not count as the service's if the connection was hijacked, if the client was too slow, if the request's
// context was canceled, as net/http does when the client disconnects, or if its deadline passed before next had answered.
//
// The request's context ends with its deadline: the earliest of Config.Timeout's, the Task's and the client's (see
// Config.Trusted). It carries the priority ([warden.PriorityFrom]), which is passed on with the requests that next sends through
// the transport of [NewTransport]. It also marks the slot as held: to acquire another slot of the same warden from inside is a
// [*decision.ReentryError]. A middleware inside another one of the same warden, or of the same compartment, acquires nothing and
// calls its next.
//
// A client that keeps next waiting is cut off, see [Config].Grace. A request whose context's deadline passes while next runs
// is answered 504 if next returns without having written; with [Config].Buffered, immediately.
//
// The ResponseWriter of next supports those of net/http's interfaces that w supports, except for the deprecated
// http.CloseNotifier. A connection that it hijacks is a net.Conn with CloseWrite, and not a *net.TCPConn or *tls.Conn. With
// Buffered the ResponseWriter can only be written to.
//
// A request that gets its slot immediately costs five allocations: its ID, its state, its context, the copy of the request, and
// the watch for the client; one more if there is something to hijack, one more in a compartment, and some for a deadline,
// besides those of Config's functions. Reading or writing adds a timer. A request that the warden rejects costs four: its ID,
// its rejection, the headers' values and the body.
func (m *Middleware) Handler(next http.Handler) http.Handler {
	if m == nil {
		m = new(Middleware)
	}
	if what := nilcheck.Required(next); what != "" {
		next = &nilHandler{middleware: m, value: what}
	}
	return &handler{m, next}
}

type handler struct {
	*Middleware
	next http.Handler
}

// ServeHTTP calls the next handler or answers.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.serve(w, r, h.next) }

// Serve serves one request as the handler that [Middleware.Handler] returns for next does. It is for frameworks in which each
// request has another next: it spares them a handler per request. answered reports whether the Middleware has written the
// answer itself, because the request was rejected, or next had written nothing when its time was up or its client was cut off
// or, with Buffered, had left: an error of next then needs no answer any more.
func (m *Middleware) Serve(w http.ResponseWriter, r *http.Request, next http.Handler) (answered bool) {
	if m == nil {
		m = new(Middleware)
	}
	if w == nil || r == nil {
		return false // there is nobody to answer
	}
	if what := nilcheck.Required(next); what != "" {
		next = &nilHandler{middleware: m, value: what}
	}
	return m.serve(w, r, next)
}

// serve is Serve with values that can be called.
func (m *Middleware) serve(w http.ResponseWriter, r *http.Request, next http.Handler) (answered bool) {
	if m.cfg.Exempt != nil && m.cfg.Exempt(r) {
		next.ServeHTTP(w, r)
		return false
	}
	claim := m.capacity.claim(r)
	if claim.Holds(r.Context()) { // mounted twice: the outer one holds the slot
		next.ServeHTTP(w, r)
		return false
	}
	reports := m.cfg.LoadReports && m.cfg.Trusted(r)
	got, said, err := m.acquire(w.Header(), r, next, &claim)
	if reports {
		reportLoad(w.Header(), m.capacity.warden.Load())
	}
	if err != nil {
		m.reject(w, r, &claim, said, err)
		return true
	}
	m.warnHTTP2(r)
	e := newExchange(r)
	e.m, e.next, e.slot, e.outer, e.said = m, next, got, r, said
	e.compartment, e.arrived = claim.Compartment, claim.Arrived
	inner := e.request(&claim)
	if m.cfg.Buffered {
		e.buffer(w, inner)
		return e.answered
	}
	// The server removes the form's files, and outer log handlers read the pattern, but both see only the outer request.
	defer func() { r.MultipartForm, r.Pattern = inner.MultipartForm, inner.Pattern }()
	inflight.Serve(e, e, w, inner)
	if e.timedOut {
		e.outOfTime(w)
	}
	return e.answered
}

// reject answers r, whose claim got no slot. Over HTTP/1, net/http's server reads up to 256 KiB of an unread body before it
// answers, unless the connection will be closed, so a rejection would come only after an upload, or never. A short body
// therefore gets a moment to arrive, which keeps the connection, and others none. (Over HTTP/2 the server does not read, and
// closing the connection would end all its requests.)
func (m *Middleware) reject(w http.ResponseWriter, r *http.Request, claim *slot.Claim, said wire.Said, err error) {
	if r.ProtoMajor == 1 && (r.ContentLength < 0 || r.ContentLength > maxUnread || r.Header["Expect"] != nil) {
		w.Header().Set("Connection", "close")
	}
	if unread(r) { // on failure, the server's ReadTimeout applies
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(unreadTimeout))
	}
	m.logRejected(r, claim.Task.Name, err)
	answers := m.answers
	answers.unprocessed, answers.requestID, answers.said = true, claim.Task.ID, said
	if m.cfg.Fallback != nil && m.fallBack(requestid.With(r.Context(), claim.Task.ID), w, r, said, claim.Compartment, err) {
		return
	}
	if m.cfg.Answer != nil {
		if answers.requestID != "" {
			w.Header()[requestid.HTTP] = []string{answers.requestID}
		}
		setScope(w.Header(), claim.Compartment, err)
		uncached(w.Header(), answers.said)
		if m.cfg.Answer(w, r, err) {
			return
		}
	}
	if !answers.answer(w, nil, claim.Compartment, err) {
		answers.write(w, serverError(rpcstatus.Invalid().Reason), err)
	}
}

// logRejected logs rejections, one a minute and how many there were: the access log of a program that calls the Middleware is often
// inside it, and does not see them.
func (m *Middleware) logRejected(r *http.Request, name string, err error) {
	n, now, due := m.rejected.Add(1), time.Now(), m.logRejectedAt.Load()
	if now.UnixNano() < due || !m.logRejectedAt.CompareAndSwap(due, now.Add(time.Minute).UnixNano()) {
		return
	}
	m.rejected.Add(-n)
	logf(r, "wardenhttp: %d requests were rejected, the last of them %.100q: %.300v (this is logged once a minute)", n, name, err)
}

const (
	maxUnread     = 64 << 10               // the longest unread body, in bytes, for which the connection is kept
	unreadTimeout = 500 * time.Millisecond // how long the rest of it may take
)

// acquire classifies the request, which next serves and whose answer has these headers so far, and acquires its slot.
func (m *Middleware) acquire(answer http.Header, r *http.Request, next http.Handler, claim *slot.Claim) (got slot.Slot, said wire.Said, err error) {
	if m.cfg.Task == nil {
		return got, said, notMade("Middleware", "wardenhttp.New")
	}
	bounds, _, _ := m.capacity.warden.Bounds()
	said = m.cfg.classify(answer, r, next, claim, cmp.Or(bounds.Timeout, m.cfg.Timeout))
	got, err = claim.Acquire(r.Context())
	return got, said, err
}
