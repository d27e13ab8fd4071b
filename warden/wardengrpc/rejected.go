// SPDX-License-Identifier: Apache-2.0

// The status of a rejected call.

package wardengrpc

import (
	"errors"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/stopbank/stopbank/warden/internal/rpcstatus"
)

// rejectedError says why a call was not made, or not handled: its cause, usually a *warden.Rejection, with a gRPC status.
type rejectedError struct {
	cause  error
	status *status.Status
}

// Error returns code and cause on one line, for the interceptor's side. It allocates.
func (e *rejectedError) Error() string {
	return "wardengrpc: " + e.status.Code().String() + ": " + e.cause.Error()
}

// Unwrap returns the cause.
func (e *rejectedError) Unwrap() error { return e.cause }

// GRPCStatus returns the status that is sent: it has only what the other side may know.
func (e *rejectedError) GRPCStatus() *status.Status { return e.status }

// Convert returns err with a gRPC status if it is, or wraps, an error of this project without one, and InvalidArgument if it is that of
// a call that was not sent for what is in it; other errors are returned unchanged. status.Code finds the code, and errors.As the cause.
// The server's interceptors convert the errors of handlers, so a handler that acquires slots itself can return them as they are.
func (i *Interceptors) Convert(err error) error {
	if err == nil {
		return nil
	}
	var has interface{ GRPCStatus() *status.Status }
	if errors.As(err, &has) {
		if of, is := has.(innocentError); is && of.unsent {
			return &rejectedError{err, status.New(codes.InvalidArgument, status.Convert(err).Message())}
		}
		return err
	}
	m, ours := rpcstatus.Of(nil, err)
	if !ours {
		return err
	}
	return i.rejection(err, m, false)
}

// rejection is err on the wire. unseen: no handler has seen the call. Convert does not say so: a handler may have done something
// before.
func (i *Interceptors) rejection(err error, m rpcstatus.Status, unseen bool) *rejectedError {
	s := status.New(codes.Code(m.Code), "warden: "+m.Reason)
	info := &errdetails.ErrorInfo{Reason: strings.ToUpper(m.Reason), Domain: rpcstatus.Domain, Metadata: m.Metadata(unseen)}
	var detailed *status.Status
	var failed error
	if m.Again {
		detailed, failed = s.WithDetails(
			info, &errdetails.RetryInfo{RetryDelay: durationpb.New(m.Delay(i.cfg.RetryAfter))},
		)
	} else {
		detailed, failed = s.WithDetails(info)
	}
	if failed != nil { // a message that cannot be marshaled: there is none here
		detailed = s
	}
	return &rejectedError{err, detailed}
}
