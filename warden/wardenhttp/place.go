// Whom requests ask for their place, and what that is told when they give it back.

package wardenhttp

import (
	"context"
	"errors"
	"net/http"

	"github.com/stopbank/stopbank/admission/admissionhttp/inflight"
	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/internal/place"
)

// capacity is whom requests ask for their place.
type capacity struct {
	warden      *warden.Warden                            // nil only if there is a compartment
	compartment func(*http.Request) *bulkhead.Compartment // nil: the warden itself is asked
}

// check says what is wrong with it.
func (c capacity) check() error {
	switch {
	case c.warden == nil && c.compartment == nil:
		return &warden.InvalidError{Field: "w", Value: "nil", Allowed: "a warden made by warden.New; nil only with compartments"}
	case c.warden != nil && c.warden.Limiter() == nil:
		return notMade("w", "warden.New")
	}
	return nil
}

// claim says whom r asks.
func (c capacity) claim(r *http.Request) place.Claim {
	is := place.Claim{Warden: c.warden}
	if c.compartment != nil {
		is.Apart, is.Compartment = true, c.compartment(r)
	}
	return is
}

// held is the place of a request that is followed to its end.
type held struct{ place.Place }

// errStatus is what the breaker of a compartment is told of a response that says nothing worse.
var errStatus = errors.New("wardenhttp: the response has a status of 500 or more")

// End gives the place back. If somebody lost interest, or the connection was upgraded, the time that it took says nothing about the
// service.
func (h held) End(came inflight.Outcome) {
	err := came.Err
	if err == nil && came.Status >= http.StatusInternalServerError {
		err = errStatus
	}
	h.Place.End(err, came.Upgraded || errors.Is(err, context.Canceled))
}

func noRequest() error {
	return &warden.InvalidError{Field: "req", Value: "nil", Allowed: "a request"}
}

func notMade(what, by string) error {
	return &warden.InvalidError{Field: what, Value: "zero", Allowed: "one made by " + by}
}
