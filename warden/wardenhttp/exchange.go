// SPDX-License-Identifier: Apache-2.0

// An admitted request as its handler sees it: answer and body go through the exchange.

package wardenhttp

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/internal/inflight"
	"github.com/stopbank/stopbank/warden/internal/requestid"
	"github.com/stopbank/stopbank/warden/internal/slot"
	"github.com/stopbank/stopbank/warden/internal/timelimit"
	"github.com/stopbank/stopbank/warden/internal/wire"
)

// exchange is one request with its slot: the permit that ends with it, the handler in front of the next one, and the
// ResponseWriter of the next one.
type exchange struct {
	http.ResponseWriter // the original; a hijackedWriter after a hijack, once the handler is done
	m                   *Middleware
	next                http.Handler
	slot                slot.Slot
	ctx                 exchangeContext
	detached            detachedWork
	outer               *http.Request // the original request
	compartment         *bulkhead.Compartment
	arrived             time.Time
	body                upload
	reads, writes       direction
	spared              atomic.Bool // the client was too slow, and only Enforce would have cut it off
	unwatchContext      func() bool // stops watching the context; nil: not watched
	hijacked            bool        // guarded by writes.mu
	timedOut            bool        // the deadline has passed, and the fallback answers when the slot is released
	begun               bool        // the answer has a status
	answered            bool        // the middleware answers, not next
	encoding            []string    // of what is written around next, such as by an outer handler that compresses it; nil: none
	kept                int         // the status of an answer that is sent when the handler is done; 0: none, or not known
}

// upload is the request's body as the handler reads it.
type upload struct {
	io.ReadCloser
	e *exchange
	// held for reading while ReadCloser is in use: after the exchange, its memory may be another request's
	mu       sync.RWMutex
	tooLarge atomic.Bool // for an outer handler
}

// request returns the handler's request: a copy with its own context and body.
func (e *exchange) request() *http.Request {
	r, hasBody := e.outer, e.hasBody()
	e.ctx = exchangeContext{e.slot.Ctx, e}
	r = r.WithContext(&e.ctx)
	slack := time.Duration(0)
	if e.slot.Impatient {
		slack = timelimit.Slack
	}
	r.Header = wire.Later(r.Header, slack)
	if hasBody {
		e.body.ReadCloser, e.body.e = r.Body, e
		r.Body = &e.body
	}
	return r
}

// hasBody reports whether there is a body to wait for. An outer handler may have wrapped an empty one: its length says so, and a
// deadline for it would pass while net/http reads ahead, see [direction.stop].
func (e *exchange) hasBody() bool {
	return e.outer != nil && e.outer.ContentLength != 0 && e.outer.Body != nil && e.outer.Body != http.NoBody
}

// attach starts to watch the client through w.
func (e *exchange) attach(w http.ResponseWriter) {
	e.ResponseWriter, e.encoding = w, w.Header()["Content-Encoding"]
	e.reads = direction{e: e, w: w, reads: true, budget: e.m.pace.grace}
	e.writes = direction{e: e, w: w, budget: e.m.pace.grace, client: e.slot.Ctx}
	if _, _, bounded := timelimit.Due(e.slot.Ctx); bounded && e.hasBody() {
		e.unwatchContext = context.AfterFunc(e.slot.Ctx, func() { e.reads.stop(e.slot.Ctx.Err()) })
	}
}

// unwatch stops watching the context; call it before releasing the slot, which ends the context.
func (e *exchange) unwatch() {
	if e.unwatchContext != nil {
		e.unwatchContext()
	}
}

// detach stops watching the client. A deadline also bounds what net/http still has to read, and with a Config.Grace what it then has
// to write: the grace, or what the server sets.
func (e *exchange) detach() {
	e.unwatch()
	e.warnDry()
	e.writes.mu.Lock()
	hijacked := e.hijacked
	e.writes.mu.Unlock()
	server := serverOf(e.outer)
	mine := e.body.mu.TryLock()
	if !mine && !hijacked && e.reads.stop(io.ErrClosedPipe) { // what the handler has left behind reads, and the deadline ends that
		e.body.mu.Lock()
		mine = true
	}
	if mine {
		defer e.body.mu.Unlock()
	}
	var read, written time.Time
	if now, grace := time.Now(), e.m.pace.grace; !hijacked {
		if written = now.Add(grace); e.hasBody() && e.outer.ProtoMajor == 1 {
			read = written
			if server != nil && server.ReadTimeout > 0 && e.arrived.Add(server.ReadTimeout).Before(read) {
				read = e.arrived.Add(server.ReadTimeout)
			}
			written = read.Add(grace)
		}
		if server == nil || server.WriteTimeout > 0 || e.m.cfg.Grace == 0 { // nobody needs what the client holds
			written = time.Time{}
		}
	}
	e.reads.close(read)
	e.writes.close(written)
	if hijacked { // the connection may live for days: keep no more than its permit
		e.ResponseWriter, e.reads.w, e.writes.w = hijackedWriter{}, hijackedWriter{}, hijackedWriter{}
		e.outer, e.body.ReadCloser = nil, http.NoBody
	}
}

// ServeHTTP calls the next handler, and answers for one that wrote nothing because its deadline passed.
func (e *exchange) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.attach(w)
	defer e.detach()
	e.next.ServeHTTP(e.writer(), r)
	if used, _ := e.writes.state(); !used {
		e.conclude()
	}
}

// conclude answers if the handler has not. Otherwise net/http would send an empty 200.
func (e *exchange) conclude() {
	p, why := e.verdict(e.kept)
	e.timedOut = p.status == http.StatusGatewayTimeout && e.fallsBack()
	if why != nil && !e.timedOut {
		e.answer(p, why)
	}
}

// verdict returns the middleware's own answer, in place of status, to a request that its slow client or a deadline has ended, and why;
// nil: it has none.
func (e *exchange) verdict(status int) (p problem, why error) {
	_, late := e.reads.state()
	switch {
	case errors.Is(late, ErrSlowPeer):
		return slowPeer(), late
	case errors.Is(late, context.DeadlineExceeded), timelimit.TimeIsUp(context.Cause(e.slot.Ctx)), e.tooShort(status):
		return timeoutRunning(), context.DeadlineExceeded
	}
	return p, nil
}

// fallsBack reports whether the Fallback answers a request whose time is up: not for a client that has set that time itself, and is
// gone.
func (e *exchange) fallsBack() bool {
	return e.m.cfg.Fallback != nil && !timelimit.TooShort(e.slot.Ctx)
}

// tooShort reports whether this status is for want of time of a client that has set that itself.
func (e *exchange) tooShort(status int) bool {
	return status >= statusClientClosed && timelimit.TooShort(e.slot.Ctx)
}

// answerToEnd returns the answer to err if it is a context's error and the request has ended.
func (e *exchange) answerToEnd(err error) (problem, bool) {
	over := context.Cause(e.slot.Ctx)
	switch {
	case over == nil, !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled):
		return problem{}, false
	case timelimit.TimeIsUp(over):
		return timeoutRunning(), true
	}
	return canceled(), true
}

// exchangeOf returns the exchange that answers through w; nil: there is none, or something around it does not unwrap.
func exchangeOf(w http.ResponseWriter) *exchange {
	for {
		switch v := w.(type) {
		case interface{ exchangeOf() *exchange }:
			return v.exchangeOf()
		case interface{ Unwrap() http.ResponseWriter }:
			w = v.Unwrap()
		default:
			return nil
		}
	}
}

// exchangeOf returns e, also for types that embed it.
func (e *exchange) exchangeOf() *exchange { return e }

// AnswerLater says with which status whoever called [Middleware.Serve] answers when the handler is done. Package wardencaddy calls it.
func (e *exchange) AnswerLater(status int) { e.kept = status }

// answer answers with p. It stops reading first, because net/http would otherwise wait for the rest of the body.
func (e *exchange) answer(p problem, err error) {
	e.own()
	if e.hasBody() {
		e.reads.stop(err)
	}
	answers := e.m.answers
	answers.requestID, answers.request = requestid.From(e.slot.Ctx), e.outer
	answers.write(e, p, err)
}

// own makes the answer the middleware's.
func (e *exchange) own() {
	e.answered = true
	e.restoreEncoding(e.Header())
}

// restoreEncoding undoes what next has said in h of the encoding of content that is not sent.
func (e *exchange) restoreEncoding(h http.Header) {
	maps.DeleteFunc(h, func(name string, _ []string) bool { return strings.EqualFold(name, "Content-Encoding") })
	if e.encoding != nil {
		h["Content-Encoding"] = e.encoding
	}
}

// End releases the slot, unless a detached request keeps it. The execution time of a request whose client is too slow says
// nothing about the service.
func (e *exchange) End(outcome inflight.Outcome) {
	for _, s := range []*direction{&e.reads, &e.writes} {
		switch _, late := s.state(); {
		case errors.Is(late, ErrSlowPeer):
			outcome.Err, outcome.Upgraded = context.Canceled, true
		case errors.Is(late, context.DeadlineExceeded) && outcome.Err == nil:
			outcome.Err = late
		}
	}
	if e.detached.finish(outcome) {
		e.release()
	}
}

// release releases the slot. e.detached says when, once.
func (e *exchange) release() {
	b := &e.detached
	status, tooLate := e.writes.answer()
	short := b.outcome.Err == nil && e.tooShort(max(status, e.kept))
	if short {
		b.outcome.Err, b.outcome.Upgraded = timelimit.ErrStranger, true
	}
	ending, answer := endingOf(b.outcome, status), slot.Served
	switch err := b.outcome.Err; {
	case ending == slot.Abandoned, short, tooLate && !b.outcome.Upgraded:
		answer = slot.Unserved
	case e.reads.clientFault() || e.writes.clientFault():
	case max(status, e.kept) >= http.StatusInternalServerError,
		err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded):
		answer = slot.Failed
	}
	switch {
	case b.abandoned:
		ending = slot.Abandoned
	case b.completed:
		ending = slot.Completed
	}
	e.slot.Without(e.reads.waited()+e.writes.waited()).End(b.outcome.Err, ending, answer)
}

// writer returns the exchange with the optional interfaces of the original.
func (e *exchange) writer() http.ResponseWriter {
	_, flushes := e.ResponseWriter.(http.Flusher)
	_, hijacks := e.ResponseWriter.(http.Hijacker)
	_, pushes := e.ResponseWriter.(http.Pusher)
	switch {
	case hijacks && flushes:
		return hijackFlusher{flusher{e}}
	case hijacks:
		return hijacker{e}
	case pushes && flushes:
		return pushFlusher{flusher{e}}
	case flushes:
		return flusher{e}
	}
	return e
}

// Unwrap returns the original, for http.ResponseController.
func (e *exchange) Unwrap() http.ResponseWriter { return e.ResponseWriter }

// SetReadDeadline is called through http.ResponseController: from now on the handler decides how long it waits for the body.
func (e *exchange) SetReadDeadline(t time.Time) error { return e.reads.setHandlerDeadline(t) }

// SetWriteDeadline does the same for the answer.
func (e *exchange) SetWriteDeadline(t time.Time) error { return e.writes.setHandlerDeadline(t) }

// WriteHeader records that there is an answer. A proxy's note that the client has left, or that a client's own time was too little,
// says less than the middleware knows.
func (e *exchange) WriteHeader(status int) {
	if status == http.StatusGatewayTimeout && e.slot.Impatient && foreseen(e.Header()) { // passed on
		timelimit.TooLate(e.slot.Ctx, e.arrived, true)
	}
	if (status == statusClientClosed || status == http.StatusBadGateway && e.tooShort(status)) && !e.answered && !e.fallsBack() {
		if p, why := e.verdict(status); why != nil {
			e.answer(p, why)
			e.writes.refuse(http.ErrHandlerTimeout)
			return
		}
	}
	if status == statusClientClosed && e.body.tooLarge.Load() {
		status = http.StatusRequestEntityTooLarge
	}
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		e.writes.setAnswered(status)
		e.begin(status)
	}
	if status == http.StatusServiceUnavailable {
		e.m.warnTimeoutHandler(e.outer)
	}
	e.ResponseWriter.WriteHeader(status)
}

// Write writes b in pieces, so that each piece has its own time limit rather than the whole.
func (e *exchange) Write(b []byte) (n int, err error) {
	for {
		m, err := e.write(b[n:min(len(b), n+e.m.pace.chunk())])
		if n += m; err != nil || n == len(b) {
			return n, err
		}
	}
}

func (e *exchange) write(b []byte) (int, error) {
	e.begin(http.StatusOK)
	began, err := e.writes.beginWait()
	if err != nil {
		return 0, err
	}
	n, err := e.ResponseWriter.Write(b)
	return n, e.writes.endWait(began, int64(n), err)
}

// WriteString uses the original's WriteString, if it has one.
func (e *exchange) WriteString(s string) (n int, err error) {
	for {
		m, err := e.writeString(s[n:min(len(s), n+e.m.pace.chunk())])
		if n += m; err != nil || n == len(s) {
			return n, err
		}
	}
}

func (e *exchange) writeString(s string) (int, error) {
	e.begin(http.StatusOK)
	began, err := e.writes.beginWait()
	if err != nil {
		return 0, err
	}
	n, err := io.WriteString(e.ResponseWriter, s)
	return n, e.writes.endWait(began, int64(n), err)
}

// ReadFrom keeps sendfile for files, in pieces too. Any other source may be slow itself, which is not the client's fault.
func (e *exchange) ReadFrom(r io.Reader) (n int64, err error) {
	to, ok := e.ResponseWriter.(io.ReaderFrom)
	rest, source := int64(1<<63-1), r
	if l, limited := r.(*io.LimitedReader); limited {
		rest, source = l.N, l.R
		defer func() { l.N -= n }()
	}
	if !ok || !regular(source) {
		return io.Copy(struct{ io.Writer }{e}, r)
	}
	e.begin(http.StatusOK)
	for rest > n {
		most := min(rest-n, int64(e.m.pace.chunk()))
		began, err := e.writes.beginWait()
		if err != nil {
			return n, err
		}
		m, err := to.ReadFrom(&io.LimitedReader{R: source, N: most})
		n += m
		if err = e.writes.endWait(began, m, err); err != nil || m < most {
			return n, err
		}
	}
	return n, nil
}

// regular reports whether r is a regular file, which sendfile can send.
func regular(r io.Reader) bool {
	f, ok := r.(interface {
		fs.File
		io.Seeker
		syscall.Conn
	})
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode().IsRegular()
}

// Read reads the body under the client's time limit.
func (u *upload) Read(b []byte) (n int, err error) {
	u.mu.RLock()
	defer u.mu.RUnlock()
	began, err := u.e.reads.beginWait()
	if err == nil {
		n, err = u.ReadCloser.Read(b)
		err = u.e.reads.endWait(began, int64(n), err)
	}
	var tooLarge *http.MaxBytesError
	if err != nil && u.e.reads.clientFault() {
		if errors.As(err, &tooLarge) {
			u.tooLarge.Store(true)
		}
		return n, bodyError{err}
	}
	return n, err
}

// Close closes the body, as long as it is the handler's.
func (u *upload) Close() error {
	u.mu.RLock()
	defer u.mu.RUnlock()
	if u.e.reads.over() {
		return nil
	}
	return u.ReadCloser.Close()
}

// bodyError is the error of a body that its client broke off, sends too slowly, or makes longer than an outer handler allows. It
// matches context.Canceled too, as if the client had left: whoever sends the body on does not blame the dependency for it.
type bodyError struct{ error }

func (e bodyError) Unwrap() error      { return e.error }
func (bodyError) Is(target error) bool { return target == context.Canceled }

// flusher is an exchange with http.Flusher.
type flusher struct{ *exchange }

// Flush implements http.Flusher.
func (w flusher) Flush() { _ = w.FlushError() }

// FlushError is called by http.ResponseController.
func (w flusher) FlushError() error {
	w.begin(http.StatusOK)
	began, err := w.writes.beginWait()
	if err != nil {
		return err
	}
	return w.writes.endWait(began, 0, http.NewResponseController(w.ResponseWriter).Flush())
}

// hijacker is an exchange with http.Hijacker.
type hijacker struct{ *exchange }

// Hijack passes the connection to the handler. From then on the client's pace is not watched.
func (w hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) { return w.hijack() }

func (e *exchange) hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, buf, err := http.NewResponseController(e.ResponseWriter).Hijack()
	if err == nil {
		e.writes.setAnswered(http.StatusSwitchingProtocols)
		e.slot.Time.Lift()
		e.writes.mu.Lock()
		e.hijacked = true
		e.writes.mu.Unlock()
	}
	return c, buf, err
}

// hijackFlusher is an exchange with http.Hijacker and http.Flusher.
type hijackFlusher struct{ flusher }

// Hijack passes the connection to the handler.
func (w hijackFlusher) Hijack() (net.Conn, *bufio.ReadWriter, error) { return w.hijack() }

// pushFlusher is an exchange with http.Pusher and http.Flusher (HTTP/2).
type pushFlusher struct{ flusher }

// Push calls the original's Push.
func (w pushFlusher) Push(target string, opts *http.PushOptions) error {
	if p, ok := w.ResponseWriter.(http.Pusher); ok {
		return p.Push(target, opts)
	}
	return http.ErrNotSupported
}

// hijackedWriter replaces the ResponseWriter of a hijacked connection.
type hijackedWriter struct{}

func (hijackedWriter) Header() http.Header       { return http.Header{} }
func (hijackedWriter) Write([]byte) (int, error) { return 0, http.ErrHijacked }
func (hijackedWriter) WriteHeader(int)           {}

// serverOf returns the http.Server of r; nil if there is none.
func serverOf(r *http.Request) *http.Server {
	if r == nil {
		return nil
	}
	s, _ := r.Context().Value(http.ServerContextKey).(*http.Server)
	return s
}
