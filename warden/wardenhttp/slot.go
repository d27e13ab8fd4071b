// The source of a request's slot, a warden or a compartment, and the result reported to it at the end.

package wardenhttp

import (
	"context"
	"errors"
	"net/http"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
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
		return &warden.InvalidError{Field: by + ": the warden", Value: "nil", Allowed: "a warden made by warden.New; nil only with " + cfg + ".Compartment"}
	case c.warden != nil && c.warden.Limiter() == nil:
		return notMade(by+": the warden", "warden.New")
	}
	return nil
}

// claim returns the source of r's slot.
func (c capacity) claim(r *http.Request) slot.Claim {
	is := slot.Claim{Warden: c.warden}
	if c.compartment != nil {
		is.Apart, is.Compartment = true, c.compartment(r)
	}
	return is
}

// held is the slot of a request that is followed to its end.
type held struct{ slot.Slot }

// errStatus is reported to a compartment's breaker for a response with status 500 or more and no other error.
var errStatus = errors.New("wardenhttp: the response has a status of 500 or more")

// End releases the slot.
func (h held) End(came inflight.Outcome) {
	err := came.Err
	if err == nil && came.Status >= http.StatusInternalServerError {
		err = errStatus
	}
	h.Slot.End(err, ending(came, came.Status))
}

// ending is what the time says of a request that was answered with this status, 0 if it was not. If its context ended it before it had
// an answer, the work would have taken longer; if the client left an answer that had begun, or the connection was upgraded, the time
// says nothing.
func ending(came inflight.Outcome, status int) slot.Ending {
	switch left := errors.Is(came.Err, context.Canceled); {
	case came.Upgraded:
		return slot.Silent
	case (left || errors.Is(came.Err, context.DeadlineExceeded)) && (status == 0 || status >= http.StatusInternalServerError):
		return slot.Abandoned
	case left:
		return slot.Silent
	}
	return slot.Whole
}

// noBase returns an error for a Base that is a nil pointer or function.
func noBase(of string, base http.RoundTripper) error {
	if typed := nilcheck.Optional(base); typed != "" {
		return &warden.InvalidError{Field: of + ".Base", Value: typed, Allowed: "nil (http.DefaultTransport) or a transport"}
	}
	return nil
}

func noRequest() error {
	return &warden.InvalidError{Field: "req", Value: "nil", Allowed: "a request"}
}

func notMade(what, by string) error {
	return &warden.InvalidError{Field: what, Value: "nil or zero", Allowed: "a value made by " + by}
}
