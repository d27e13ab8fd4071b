// SPDX-License-Identifier: Apache-2.0

// Package rpcstatus is what the errors of this module mean to the caller of a remote procedure: gRPC's codes by number, which
// are Connect's too, so that wardengrpc and wardenconnect cannot differ.
package rpcstatus

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/requestid"
	"github.com/stopbank/stopbank/warden/retry"
)

// Domain is that of every google.rpc.ErrorInfo.
const Domain = "stopbank/warden"

// Throttled is the reason of an outgoing call that a retry.Caller did not send.
const Throttled = "throttled"

// The codes of google.rpc.Code that are used.
const (
	canceled          = 1
	deadlineExceeded  = 4
	resourceExhausted = 8
	internal          = 13
	unavailable       = 14
)

// Status is what a caller may know of an error.
type Status struct {
	Code     uint32        // a google.rpc.Code
	Reason   string        // a code, such as queue_overflow
	Decision uint64        // the number of the decision in force; 0: none
	Again    bool          // a retry at the same server may succeed,
	After    time.Duration // after this; 0: no estimate
	Scope    string        // Tenant, Compartment, or "": it concerns all calls

	RequestID string // from the error; "": it has none
}

// Of returns the status of err, which c returned; c is nil if that is unknown. ours is false if err is not of this module.
func Of(c *bulkhead.Compartment, err error) (s Status, ours bool) {
	s, ours = of(err)
	s.Scope = ScopeOf(c, err)
	return s, ours
}

func of(err error) (Status, bool) {
	var rejection *warden.Rejection
	var timeout *bulkhead.TimeoutError
	switch {
	case errors.As(err, &rejection): // before its cause, which may be a TimeoutError
		return ofRejection(rejection, err), true
	case errors.As(err, &timeout):
		return Status{Code: deadlineExceeded, Reason: string(bulkhead.TimedOut), RequestID: timeout.RequestID}, true
	case errors.Is(err, retry.ErrThrottled):
		return Status{Code: unavailable, Reason: Throttled, Again: true}, true
	case errors.Is(err, decision.ErrReentry):
		return Status{Code: internal, Reason: string(decision.Reentry)}, true
	case errors.Is(err, bulkhead.ErrUnknownCompartment):
		return Status{Code: internal, Reason: "unknown_compartment"}, true
	case errors.Is(err, decision.ErrInvalid):
		return Invalid(), true
	}
	return Status{}, false
}

func ofRejection(r *warden.Rejection, err error) Status {
	s := Status{Reason: string(r.Reason), After: r.RetryAfter, RequestID: r.Task.ID}
	if r.Decision != nil {
		s.Decision = r.Decision.Seq
	}
	switch r.Reason {
	case decision.DeadlineExceeded, bulkhead.TimeoutQueued:
		s.Code = deadlineExceeded
	case decision.Canceled:
		s.Code = canceled
		if errors.Is(err, context.DeadlineExceeded) {
			s.Code = deadlineExceeded
		}
	case decision.Closed:
		s.Code = unavailable
	case bulkhead.BreakerOpen:
		s.Code, s.Again = unavailable, true
	default:
		s.Code, s.Again = resourceExhausted, true
	}
	return s
}

// OfStream returns the status for a stream: overload is Unavailable, because long-lived clients, such as etcd's, take
// ResourceExhausted for the end and open no other stream.
func (s Status) OfStream() Status {
	if s.Code == resourceExhausted {
		s.Code = unavailable
	}
	return s
}

// Invalid is the status of a programming error in the server.
func Invalid() Status { return Status{Code: internal, Reason: "invalid"} }

// RejectedHTTP is the header in the answer to a rejected request, with the reason. It certifies that no handler has seen the
// request, so that it can be sent again whatever its method.
const RejectedHTTP = "Warden-Rejected"

// Processed is in the metadata of the ErrorInfo of a call that no handler has seen: "false". It can be made again whatever its
// method.
const Processed = "processed"

// Scope is the key in an ErrorInfo's metadata, and ScopeHTTP the header, that says Tenant of a rejection that concerns one
// tenant, and Compartment of one that concerns one compartment.
const (
	Scope       = "scope"
	ScopeHTTP   = "Warden-Scope"
	Tenant      = "tenant"
	Compartment = "compartment"
)

// ScopeOf returns the scope of err, which c returned: Tenant, as OfTenant says; Compartment, if that had all the slots that it
// may have or its breaker is open; otherwise "".
func ScopeOf(c *bulkhead.Compartment, err error) string {
	if r, ok := err.(*warden.Rejection); ok { //nolint:errorlint // the usual, unwrapped case allocates nothing
		return scopeOf(c, r)
	}
	var r *warden.Rejection
	if !errors.As(err, &r) {
		return ""
	}
	return scopeOf(c, r)
}

func scopeOf(c *bulkhead.Compartment, r *warden.Rejection) string {
	switch {
	case OfTenant(c, r):
		return Tenant
	case r.Reason == bulkhead.BreakerOpen, r.Bound == bulkhead.BoundSlots, r.Bound == bulkhead.BoundBorrow:
		return Compartment
	}
	return ""
}

// OfTenant reports whether r, which c returned, says only that a tenant has used up its share: it had all the slots that it may
// have, or its own queue was full, or under a limiter its share of the slots, and there were no others. What else rejects a tenant's call,
// such as shedding in a compartment or a wait for slots that all its tenants share, concerns the others too. c is nil if that is unknown; then
// the second does not show.
func OfTenant(c *bulkhead.Compartment, r *warden.Rejection) bool {
	_, tenant := c.TenantKey()
	return r.Bound == bulkhead.BoundTenant || tenant && r.Reason == decision.QueueOverflow ||
		r.Bound == decision.BoundTarget && r.Tenant.Above()
}

// Metadata is that of the ErrorInfo. unseen: no handler has seen the call.
func (s Status) Metadata(unseen bool) map[string]string {
	m := map[string]string{}
	if s.Decision > 0 {
		m["decision"] = strconv.FormatUint(s.Decision, 10)
	}
	if requestid.Valid(s.RequestID) {
		m["request_id"] = s.RequestID
	}
	if unseen {
		m[Processed] = "false"
	}
	if s.Scope != "" {
		m[Scope] = s.Scope
	}
	return m
}

// Delay returns how long a caller is asked to wait before it tries again: the limiter's estimate, else otherwise, and a random
// part of up to as much again, because callers that are rejected together must not come back together.
func (s Status) Delay(otherwise time.Duration) time.Duration {
	d := cmp.Or(s.After, otherwise)
	return d + time.Duration(float64(d)*rand.Float64())
}
