// SPDX-License-Identifier: Apache-2.0

// The source of a request's slot, a warden or a compartment, and the result reported to it at the end.

package wardenhttp

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/inflight"
	"github.com/stopbank/stopbank/warden/internal/nilcheck"
	"github.com/stopbank/stopbank/warden/internal/slot"
)

// capacity is the source of slots.
type capacity struct {
	warden      *warden.Warden                            // nil only if there is a compartment
	compartment func(*http.Request) *bulkhead.Compartment // nil: the warden itself
}

// check returns an error if there is no source; by is the function that it was given to, cfg the name of its configuration.
func (c capacity) check(by, cfg string) error {
	switch {
	case c.warden == nil && c.compartment == nil:
		return invalidField(by+": the warden", "nil", "a warden made by warden.New; nil only with "+cfg+".Compartment")
	case c.warden != nil && c.warden.Limiter() == nil:
		return notMade(by+": the warden", "warden.New")
	}
	return nil
}

// claim returns the source of r's slot.
func (c capacity) claim(r *http.Request) slot.Claim {
	claim := slot.Claim{Warden: c.warden}
	if c.compartment != nil {
		claim.FromCompartment, claim.Compartment = true, c.compartment(r)
	}
	return claim
}

// source is where a slot comes from: a compartment, or else a warden.
type source struct {
	warden      *warden.Warden
	compartment *bulkhead.Compartment
}

// full reports whether others need its slots, and in which mode it is.
func (s source) full() (bool, decision.Mode) {
	if c := s.compartment; c != nil {
		return c.Full(), c.Mode()
	}
	l := s.warden.Limiter().Stats()
	return l.Queued > 0 || l.Running >= l.Target, l.Mode
}

// sources are where the slots come from of the requests that a handler sends, and that wait for its client as it does.
type sources struct {
	mu  sync.Mutex // guards all
	all []source
}

func (s *sources) add(of source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, of)
}

func (s *sources) remove(of source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.all, of)
	s.all = slices.Delete(s.all, i, i+1)
}

// needed reports whether others need such a slot.
func (s *sources) needed() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.all, func(of source) bool {
		full, mode := of.full()
		return full && mode == decision.Enforce
	})
}

// holds returns where the slots come from of what the handler sends.
func (e *exchange) holds() *sources {
	if e.sends.Load() == nil {
		e.sends.CompareAndSwap(nil, new(sources))
	}
	return e.sends.Load()
}

// held is the slot of a request that is followed to its end.
type held struct {
	slot.Slot
	trip trip
	from source
}

// isFailure reports whether a server that answers with this status has failed. 501 and 505 say of the request that there is no such
// method or protocol, whoever asks.
func isFailure(status int) bool {
	return status >= http.StatusInternalServerError && status != http.StatusNotImplemented && status != http.StatusHTTPVersionNotSupported
}

// errStatus is reported to a compartment's breaker for a response that is a failure, and no other error.
var errStatus = errors.New("wardenhttp: the response says that the server has failed")

// End releases the slot.
func (h held) End(outcome inflight.Outcome) {
	if h.trip.e != nil {
		h.trip.e.holds().remove(h.from)
	}
	err := outcome.Err
	if cause := context.Cause(h.Ctx); errors.Is(err, context.Canceled) && errors.Is(cause, context.DeadlineExceeded) {
		err = cause // an attempt's time, after which it is canceled
	}
	if err == nil && isFailure(outcome.Status) {
		err = errStatus
	}
	answered := outcome.Status != 0 && !isFailure(outcome.Status) // it does not wait for a body any more
	h.trip.Sends, h.trip.Answers = h.trip.Sends && !answered, outcome.Status != 0
	if h.trip.unsent() != nil || err != nil && !outcome.Upgraded && (h.trip.fault(err) || h.trip.keeps(err)) {
		h.Slot.End(context.Canceled, slot.Discarded, slot.Served)
		return
	}
	ending, answer := endingOf(outcome, outcome.Status), slot.Served
	switch {
	case ending == slot.Abandoned:
		answer = slot.Unserved
	case err != nil && !errors.Is(err, context.Canceled):
		answer = slot.Failed
	}
	h.Slot.End(err, ending, answer)
}

// endingOf classifies a request that was answered with this status; 0: it was not. If its context ended before it had an answer,
// the work would have taken longer; if the client left while it was answered, or the connection was upgraded, the time says
// nothing.
func endingOf(outcome inflight.Outcome, status int) slot.Ending {
	unanswered := status == 0 || status >= statusClientClosed // proxies note it for a client that has left
	switch left := errors.Is(outcome.Err, context.Canceled); {
	case outcome.Upgraded:
		return slot.Discarded
	case (left || errors.Is(outcome.Err, context.DeadlineExceeded)) && unanswered:
		return slot.Abandoned
	case left:
		return slot.Discarded
	}
	return slot.Completed
}

// checkBase returns an error for a Base that is a nil pointer or function.
func checkBase(of string, base http.RoundTripper) error {
	if typed := nilcheck.Optional(base); typed != "" {
		return invalidField(of+".Base", typed, "nil (http.DefaultTransport) or a transport")
	}
	return nil
}

func noRequest() error {
	return invalidField("req", "nil", "a request")
}

func notMade(what, by string) error {
	return invalidField(what, "nil or zero", "a value made by "+by)
}

// invalidField rejects a field of a configuration, or an argument: the field as in Config.Grace.
func invalidField(field string, value any, allowed string) *warden.InvalidError {
	return &warden.InvalidError{Field: "wardenhttp." + field, Value: value, Allowed: allowed}
}
