// SPDX-License-Identifier: Apache-2.0

// Fallbacks: another answer for a request that a compartment rejects, or whose time is up (B9).

package wardenhttp

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/internal/requestid"
	"github.com/stopbank/stopbank/warden/internal/slot"
	"github.com/stopbank/stopbank/warden/internal/wire"
)

// fallBack lets the Config's Fallback, which is not nil, answer r, which c rejected or ended with cause, and reports whether
// there is an answer. ctx bounds it, and so does Grace. It has an exchange of its own, without slot and body: the handler's may
// still be in use, and a slow client must not keep a fallback either.
func (m *Middleware) fallBack(
	ctx context.Context, w http.ResponseWriter, r *http.Request, said wire.Said, c *bulkhead.Compartment, cause error,
) (answered bool) {
	ctx, cancel := context.WithTimeout(ctx, m.pace.grace)
	defer cancel()
	_ = c.RunFallback(ctx, cause, func(ctx context.Context, cause error) error { // what matters is whether it answered
		uncached(w.Header(), said) // the Fallback may say otherwise
		if id := requestid.From(ctx); id != "" {
			w.Header()[requestid.HTTP] = []string{id}
		}
		inner := r.WithContext(ctx)
		inner.Body = http.NoBody
		e := &exchange{m: m, slot: slot.Slot{Ctx: ctx}, outer: inner, said: said, compartment: c}
		e.attach(w)
		defer e.detach()
		answeredByFallback := m.cfg.Fallback(e.writer(), inner, cause)
		if answered, _ = e.writes.state(); answered || answeredByFallback {
			answered = true
			return nil
		}
		e.restoreEncoding(w.Header())
		return cause
	})
	return answered
}

// outOfTime answers a request whose deadline passed while its handler ran, and that has no answer. w is the server's own.
func (e *exchange) outOfTime(w http.ResponseWriter) {
	e.own()
	if !e.fallsBack() {
		e.answer(timeoutRunning(), context.DeadlineExceeded)
		return
	}
	if e.outer.ProtoMajor == 1 && e.body != nil {
		if _, eof := e.reads().progress(); !eof {
			w.Header().Set("Connection", "close")
		}
		if e.rested() {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(unreadTimeout))
		}
	}
	var timeout *bulkhead.TimeoutError
	cause := context.DeadlineExceeded
	if errors.As(context.Cause(e.slot.Ctx), &timeout) {
		cause = timeout
	}
	id := requestid.From(e.slot.Ctx)
	if !e.m.fallBack(requestid.With(e.outer.Context(), id), w, e.outer, e.said, e.compartment, cause) {
		answers := e.m.answers
		answers.requestID, answers.said = id, e.said
		answers.write(w, timeoutRunning(), cause)
	}
}
