// What a refused call is told.

package wardengrpc

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/limiter"
)

// Domain is that of every ErrorInfo of this package.
const Domain = "stopbank/warden"

// RefusedError is why a call was not made, or not handled: Err as gRPC says it. Both errors.As on Err and status.Code find what
// they look for.
type RefusedError struct {
	// Err is the cause: a *[warden.Rejection] as a rule.
	Err error

	status *status.Status
}

// Error has code and cause on one line, for whoever is on the same side as the interceptor. It allocates.
func (e *RefusedError) Error() string {
	return "wardengrpc: " + e.status.Code().String() + ": " + e.Err.Error()
}

// Unwrap returns Err.
func (e *RefusedError) Unwrap() error { return e.Err }

// GRPCStatus is what crosses the wire: it says no more than the other side may know.
func (e *RefusedError) GRPCStatus() *status.Status { return e.status }

// meaning is what an error of this project means to a caller.
type meaning struct {
	code     codes.Code
	reason   string        // as the limiter spells it
	decision uint64        // that ruled; 0: none
	after    time.Duration // when another try is worth its while, if again
	again    bool          // another try at the same server is worth its while
}

// mean says what err means; false: it is none of ours.
func mean(err error) (meaning, bool) {
	var rejection *warden.Rejection
	var timeout *bulkhead.TimeoutError
	switch {
	case errors.As(err, &timeout):
		return meaning{code: codes.DeadlineExceeded, reason: "timeout_" + timeout.Phase.String()}, true
	case errors.Is(err, bulkhead.ErrBreakerOpen):
		return meaning{code: codes.Unavailable, reason: "breaker_open", again: true}, true
	case errors.Is(err, bulkhead.ErrReentry):
		return meaning{code: codes.Internal, reason: "reentry"}, true
	case errors.Is(err, bulkhead.ErrUnknownCompartment):
		return meaning{code: codes.Internal, reason: "unknown_compartment"}, true
	case errors.As(err, &rejection):
		m := meaning{reason: rejection.Reason.String(), after: rejection.RetryAfter}
		if rejection.Decision != nil {
			m.decision = rejection.Decision.Seq
		}
		switch rejection.Reason {
		case limiter.DeadlineExceeded:
			m.code = codes.DeadlineExceeded
		case limiter.Canceled:
			m.code = codes.Canceled
			if errors.Is(err, context.DeadlineExceeded) {
				m.code = codes.DeadlineExceeded
			}
		case limiter.Closed:
			m.code = codes.Unavailable
		default:
			m.code, m.again = codes.ResourceExhausted, true
		}
		return m, true
	case errors.Is(err, warden.ErrInvalid), errors.Is(err, limiter.ErrInvalid), errors.Is(err, bulkhead.ErrInvalid):
		return meaning{code: codes.Internal, reason: "invalid"}, true
	}
	return meaning{}, false
}

// Convert returns err as a [*RefusedError] if it is, or wraps, a refusal of this project that has no gRPC status yet, and
// otherwise as it is. The server's interceptors do so with the errors of handlers, so a handler that asks for places
// itself returns what it got.
func (i *Interceptors) Convert(err error) error {
	if err == nil {
		return nil
	}
	var has interface{ GRPCStatus() *status.Status }
	if errors.As(err, &has) {
		return err
	}
	m, ours := mean(err)
	if !ours {
		return err
	}
	return i.refusal(err, m, nil)
}

// processedKey is in the ErrorInfo of a call that the interceptor refused: "false". No handler has seen it, so that it can be made again whatever
// its method. Convert does not write it: a handler may have done something before.
const processedKey = "processed"

// refusal is err on the wire, with what is to be in its ErrorInfo besides the decision.
func (i *Interceptors) refusal(err error, m meaning, also map[string]string) *RefusedError {
	s := status.New(m.code, "warden: "+m.reason)
	info := &errdetails.ErrorInfo{Reason: strings.ToUpper(m.reason), Domain: Domain, Metadata: also}
	if m.decision > 0 {
		if also == nil {
			info.Metadata = map[string]string{}
		}
		info.Metadata["decision"] = strconv.FormatUint(m.decision, 10)
	}
	var detailed *status.Status
	var failed error
	if m.again {
		detailed, failed = s.WithDetails(info, &errdetails.RetryInfo{RetryDelay: durationpb.New(i.spread(m.after))})
	} else {
		detailed, failed = s.WithDetails(info)
	}
	if failed != nil { // a message that cannot be marshaled: there is none here
		detailed = s
	}
	return &RefusedError{Err: err, status: detailed}
}

// spread is how long a client is to wait, so that those who are refused together come back apart.
func (i *Interceptors) spread(after time.Duration) time.Duration {
	if after == 0 {
		after = i.cfg.RetryAfter
	}
	return after + time.Duration(float64(after)*i.draw())
}

// draw is Rand's number, or the nearest that it may be.
func (i *Interceptors) draw() float64 {
	if i.cfg.Rand == nil {
		return 0
	}
	v := i.cfg.Rand()
	if !(v >= 0) { // NaN as well
		return 0
	}
	return min(v, 1)
}

// priority reads a priority. Its longest form is "background".
func priority(s string) (warden.Priority, bool) {
	switch s {
	case "background":
		return warden.Background, true
	case "normal":
		return warden.Normal, true
	case "high":
		return warden.High, true
	case "critical":
		return warden.Critical, true
	}
	if s == "" || len(s) > len("-128") || s[0] == '+' {
		return 0, false // not to be parsed: the error would copy it
	}
	n, err := strconv.ParseInt(s, 10, 8)
	return warden.Priority(n), err == nil
}
