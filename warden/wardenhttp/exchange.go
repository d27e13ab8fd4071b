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
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/stopbank/stopbank/warden"
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
	said                wire.Said     // by it: next may change its headers, and outlive it
	compartment         *bulkhead.Compartment
	arrived             time.Time
	body                *upload // nil: there is none to wait for
	writes              direction
	sends               atomic.Pointer[sources]     // nil: the handler has sent nothing that has a slot
	stream              atomic.Pointer[slot.Stream] // the answer goes on for as long as the client likes; nil: it does not
	spared              atomic.Bool                 // the client was too slow, and only Enforce would have cut it off
	hijacked            atomic.Bool
	timedOut            bool         // the deadline has passed, and the fallback answers when the slot is released
	begun               bool         // the answer has a status
	drains              bool         // and may wait until net/http has read the rest of a body
	closes              bool         // and is the last of its connection
	late                bool         // and came too late, or in too little time: no cache keeps it
	answered            bool         // the middleware answers, not next
	length              string       // of the answer, as its header says
	encoding            []string     // of what is written around next, such as by an outer handler that compresses it; nil: none
	kept                int          // the status of an answer that is sent when the handler is done; 0: none, or not known
	wrong               atomic.Int32 // the answer to what its client has made wrong, in place of a proxy's; 0: none
}

// newExchange returns the exchange of a request, in one allocation with that of its body if it has one.
func newExchange(r *http.Request) *exchange {
	// An outer handler may have wrapped an empty one: its length says so, and a deadline for it would pass while net/http reads
	// ahead, see [direction.stop].
	if r.ContentLength == 0 || r.Body == nil || r.Body == http.NoBody {
		return new(exchange)
	}
	both := new(struct {
		exchange
		upload
	})
	both.body = &both.upload
	return &both.exchange
}

// request returns the handler's request: a copy with its own context and body, and without an untrusted client's time that a library
// would set a timer to, which does not stand still. Of what is left, whoever it is sent on to learns that nobody vouches for it.
func (e *exchange) request(claim *slot.Claim) *http.Request {
	r := e.outer
	e.ctx = exchangeContext{e.slot.Ctx, e}
	r = r.WithContext(&e.ctx)
	if e.said != (wire.Said{}) {
		r.Header = wire.Undated(r.Header, claim.Trusted == 0)
		r.Header = wire.Ranked(r.Header, warden.PriorityFrom(e.slot.Ctx))
	}
	if claim.Stranger > 0 {
		wire.Keep(r.Header)
		r.Header[wire.UntrustedHTTP] = []string{"1"}
	}
	maps.DeleteFunc(r.Trailer, noTrailer)
	if e.body != nil {
		e.body.ReadCloser, e.body.trailer = r.Body, r.Trailer
		e.body.reads = direction{e: e, reads: true, budget: e.m.pace.grace}
		_, _, e.body.reads.bounded = timelimit.Due(e.slot.Ctx)
		r.Body = e.body
	}
	return r
}

// reads returns the direction of the body; nil: there is none.
func (e *exchange) reads() *direction {
	if e.body == nil {
		return nil
	}
	return &e.body.reads
}

// attach starts to watch the client through w.
func (e *exchange) attach(w http.ResponseWriter) {
	e.ResponseWriter, e.encoding = w, w.Header()["Content-Encoding"]
	e.writes = direction{e: e, budget: e.m.pace.grace}
}

// detach stops watching the client.
func (e *exchange) detach() {
	e.warnDry()
	hijacked := e.hijacked.Load()
	mine := e.body == nil
	if !mine {
		e.reads().unwatch()
		mine = e.body.mu.TryLock()
		if !mine && !hijacked && e.reads().stop(io.ErrClosedPipe) { // what the handler has left behind reads, and the deadline ends that
			e.body.mu.Lock()
			mine = true
		}
		if mine {
			defer e.body.mu.Unlock()
		}
	}
	if !hijacked {
		read, written := e.rest(mine)
		e.reads().close(read)
		if _, eof := e.reads().progress(); eof && e.reads().isCut() && e.begun && !e.closes { // the connection may be of no use to others
			e.writes.stop(io.ErrClosedPipe)
		}
		e.writes.close(written)
		return
	}
	e.reads().close(time.Time{})
	e.writes.close(time.Time{})
	// the connection may live for days: keep no more than its permit
	if e.ResponseWriter, e.outer = (hijackedWriter{}), nil; e.body != nil {
		e.body.ReadCloser = http.NoBody
	}
}

// rest returns until when net/http may read the rest of the body, and with a Config.Grace until when it may then write that of the
// answer: for the grace, or as long as the server says. idle: nobody reads the body.
func (e *exchange) rest(idle bool) (read, written time.Time) {
	uploads := idle && e.body != nil && unread(e.outer)
	if !uploads && e.m.cfg.Grace == 0 { // nobody needs what the client holds
		return read, written
	}
	server, grace := serverOf(e.outer), e.m.pace.grace
	if written = time.Now().Add(grace); uploads {
		read = written
		if server != nil && server.ReadTimeout > 0 && e.arrived.Add(server.ReadTimeout).Before(read) {
			read = e.arrived.Add(server.ReadTimeout)
		}
		written = read.Add(grace)
	}
	if server == nil || server.WriteTimeout > 0 || e.m.cfg.Grace == 0 {
		written = time.Time{}
	}
	return read, written
}

// ServeHTTP calls the next handler, and answers for one that wrote nothing because its deadline passed.
func (e *exchange) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.attach(w)
	defer e.detach()
	returned := false
	defer func() {
		if !returned {
			e.aborted(recover())
		}
	}()
	e.next.ServeHTTP(e.writer(), r)
	returned = true
	e.over()
}

// over ends the answer of a handler that has returned.
func (e *exchange) over() {
	if used, _ := e.writes.state(); !used {
		e.conclude()
	} else if e.timeIsUp() || e.slot.Time.Short() {
		e.breakOff()
	}
}

// aborted does the same, when the time was up, for one that has panicked as a proxy does to break an answer off: ours, in place of it, is
// whole.
func (e *exchange) aborted(v any) {
	if v == nil { // runtime.Goexit
		return
	}
	if v == http.ErrAbortHandler && (e.timeIsUp() || e.slot.Time.Short()) { //nolint:errorlint // what net/http looks for
		if e.over(); e.answered || e.timedOut {
			return
		}
	}
	panic(v) //nolint:forbidigo // it is the handler's own
}

// parting is how long what there is of an answer that is cut may take to leave.
const parting = 250 * time.Millisecond

// breakOff ends an answer in the middle of which the time was up, or became too short, if it was not whole by what it says of its
// length: nobody must take it for that, neither the client nor a cache in front. What there is of it is sent first: a client that has
// seen nothing sends its request again.
func (e *exchange) breakOff() {
	status, _ := e.writes.answer()
	bytes, _ := e.writes.progress()
	switch {
	case e.answered, e.late, e.stream.Load() != nil, e.length == strconv.FormatInt(bytes, 10),
		e.outer.Method == http.MethodHead, status == http.StatusNoContent, status == http.StatusNotModified:
		return
	}
	_ = http.NewResponseController(e.ResponseWriter).SetWriteDeadline(time.Now().Add(parting))
	_ = http.NewResponseController(e.ResponseWriter).Flush()
	if !e.writes.stop(http.ErrHandlerTimeout) && serverOf(e.outer) != nil {
		panic(http.ErrAbortHandler) //nolint:forbidigo // there is no other way through who has wrapped the writer; httputil.ReverseProxy does it too
	}
}

// timeIsUp reports whether the handler's context has ended for a deadline.
func (e *exchange) timeIsUp() bool {
	return e.slot.Ctx.Err() != nil && timelimit.TimeIsUp(context.Cause(e.slot.Ctx))
}

// conclude answers if the handler has not. Otherwise net/http would send an empty 200.
func (e *exchange) conclude() {
	e.slot.Time.Expire()
	p, why := e.verdict(e.kept)
	e.timedOut = p.status == http.StatusGatewayTimeout && e.fallsBack()
	if why != nil && !e.timedOut {
		e.answer(p, why)
	}
}

// verdict returns the middleware's own answer, in place of status, to a request that its slow client or a deadline has ended, and why;
// nil: it has none.
func (e *exchange) verdict(status int) (p problem, why error) {
	_, late := e.reads().state()
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

// tooShort reports whether this status is for want of time of a client that has set that itself, and not a failure of the handler's own.
func (e *exchange) tooShort(status int) bool {
	return (status == statusClientClosed || status >= http.StatusBadGateway) && timelimit.TooShort(e.slot.Ctx)
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
	if e.body != nil {
		e.reads().stop(err)
	}
	answers := e.m.answers
	answers.requestID, answers.said = requestid.From(e.slot.Ctx), e.said
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
	for _, s := range [...]*direction{e.reads(), &e.writes} {
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
	err := b.outcome.Err
	failed := isFailure(max(status, e.kept)) ||
		err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
	now := time.Now()
	excused := failed && (e.wrong.Load() != 0 || e.broken() || e.writes.waits(now).Kept(now))
	switch {
	case ending == slot.Abandoned, short, tooLate && !b.outcome.Upgraded:
		answer = slot.Unserved
	case failed && !excused:
		answer = slot.Failed
	}
	switch {
	case excused && err != nil && !errors.Is(err, context.DeadlineExceeded):
		b.outcome.Err, ending = context.Canceled, slot.Discarded
	case b.abandoned:
		ending = slot.Abandoned
	case b.completed:
		ending = slot.Completed
	}
	e.stream.Load().Ended(&e.slot, ending == slot.Completed)
	e.slot.Without(e.reads().waited()+e.writes.waited()).End(b.outcome.Err, ending, answer)
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
func (e *exchange) SetReadDeadline(t time.Time) error {
	if e.body != nil {
		return e.reads().setHandlerDeadline(t)
	}
	e.writes.mu.Lock()
	defer e.writes.mu.Unlock()
	if e.writes.closed {
		return e.writes.err
	}
	return http.NewResponseController(e.ResponseWriter).SetReadDeadline(t)
}

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
	if status == http.StatusBadGateway && e.outer != nil && slices.ContainsFunc(e.outer.Header["Upgrade"], unprintable) {
		e.wrong.Store(http.StatusBadRequest) // httputil.ReverseProxy does not ask anybody
	}
	if wrong := int(e.wrong.Load()); wrong > 0 && (status == statusClientClosed || status == http.StatusBadGateway) {
		uncached(e.Header(), e.said)
		status = wrong
	}
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		if !e.begin(status) {
			return
		}
		e.writes.setAnswered(status)
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
	if !e.begin(http.StatusOK) {
		return 0, http.ErrHandlerTimeout
	}
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
	if !e.begin(http.StatusOK) {
		return 0, http.ErrHandlerTimeout
	}
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
	if !e.begin(http.StatusOK) {
		return 0, http.ErrHandlerTimeout
	}
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

// flusher is an exchange with http.Flusher.
type flusher struct{ *exchange }

// Flush implements http.Flusher.
func (w flusher) Flush() { _ = w.FlushError() }

// FlushError is called by http.ResponseController.
func (w flusher) FlushError() error {
	if !w.begin(http.StatusOK) {
		return http.ErrHandlerTimeout
	}
	began, err := w.writes.beginWait()
	if err != nil {
		return err
	}
	err = w.writes.endWait(began, 0, http.NewResponseController(w.ResponseWriter).Flush())
	if err == nil {
		w.stream.Load().Sent(&w.slot)
	}
	return err
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
		e.streams().Sent(&e.slot)
		e.hijacked.Store(true)
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
