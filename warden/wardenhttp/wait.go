// SPDX-License-Identifier: Apache-2.0

// The client's time: what a request waits for its client is neither its handler's time nor the service's, and a stream has none.

package wardenhttp

import (
	"context"
	"net/http"
	"strings"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/slot"
	"github.com/stopbank/stopbank/warden/internal/timelimit"
)

// impatient reports whether a client that is too slow is cut off now: always where Config.Grace says so, and in a fallback, of which
// there are few, else while others need the slot, or that of a request that the handler sends; and nobody in a dry run or bypass.
func (e *exchange) impatient() bool {
	full, mode := source{e.m.capacity.warden, e.compartment}.full()
	full = (full || e.sends.Load().needed()) && !e.stream.Load().Parked() || e.m.cfg.Grace > 0 || e.next == nil
	if full && mode != decision.Enforce {
		e.spared.Store(true)
	}
	return full && mode == decision.Enforce
}

// warnDry logs, once, a request that Enforce would have ended.
func (e *exchange) warnDry() {
	p := timeoutRunning()
	switch {
	case e.spared.Load():
		p = slowPeer()
	case !e.slot.Time.Lapsed():
		return
	}
	if !e.m.warnedDry.Swap(true) {
		logf(e.outer, "wardenhttp: not enforcing: a request would have ended with %d %s (this is logged once)", p.status, p.reason)
	}
}

// begin is called when the answer begins, with its status. An answer that comes too late for a deadline, or for which an untrusted client
// has left too little time, is kept by no cache: it may be half a one. It reports whether the handler answers: after an untrusted
// client's own deadline nobody waits for what the handler makes of it, and the answer is the middleware's.
func (e *exchange) begin(status int) bool {
	if e.begun || e.hijacked.Load() {
		return true
	}
	e.late = !e.answered && e.timeIsUp()
	if e.late && timelimit.Strangers(context.Cause(e.slot.Ctx)) {
		e.answer(timeoutRunning(), context.DeadlineExceeded)
		e.writes.refuse(http.ErrHandlerTimeout)
		return false
	}
	if e.late = e.late || !e.answered && e.slot.Time.Short(); e.late {
		unkept(e.Header(), e.said)
	}
	h := e.Header()
	if e.begun = true; len(h["Content-Length"]) > 0 {
		e.length = h["Content-Length"][0]
	}
	if status == http.StatusSwitchingProtocols || isStream(h) {
		e.slot.Time.Lift()
		e.streams()
	}
	if status >= http.StatusOK && e.body != nil && e.outer.ProtoMajor == 1 {
		e.closeUnread(status)
	}
	return true
}

// streams makes the answer a stream.
func (e *exchange) streams() *slot.Stream {
	s := new(slot.Stream)
	if !e.stream.CompareAndSwap(nil, s) {
		return e.stream.Load()
	}
	if _, eof := e.reads().progress(); eof {
		s.Asked()
	}
	return s
}

// isStream reports whether an answer with these headers is a stream, which goes on for as long as its client likes.
func isStream(h http.Header) bool {
	for _, media := range h["Content-Type"] {
		for _, of := range [...]string{"text/event-stream", "application/grpc", "application/connect+"} { // and what follows
			if len(media) >= len(of) && strings.EqualFold(media[:len(of)], of) {
				return true
			}
		}
	}
	return false
}
