// What a refused call is told.

package wardengrpc

import (
	"errors"
	"strconv"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/internal/rpcstatus"
)

// Domain is that of every ErrorInfo of this package.
const Domain = rpcstatus.Domain

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
	m, ours := rpcstatus.Of(err)
	if !ours {
		return err
	}
	return i.refusal(err, m)
}

func (i *Interceptors) refusal(err error, m rpcstatus.Status) *RefusedError {
	s := status.New(codes.Code(m.Code), "warden: "+m.Reason)
	info := &errdetails.ErrorInfo{Reason: strings.ToUpper(m.Reason), Domain: Domain}
	if m.Decision > 0 {
		info.Metadata = map[string]string{"decision": strconv.FormatUint(m.Decision, 10)}
	}
	var detailed *status.Status
	var failed error
	if m.Again {
		detailed, failed = s.WithDetails(info, &errdetails.RetryInfo{RetryDelay: durationpb.New(m.Delay(i.cfg.RetryAfter, i.cfg.Rand))})
	} else {
		detailed, failed = s.WithDetails(info)
	}
	if failed != nil { // a message that cannot be marshaled: there is none here
		detailed = s
	}
	return &RefusedError{Err: err, status: detailed}
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
