// SPDX-License-Identifier: Apache-2.0

// Classification of an attempt's result: what it says about the server, and whether a retry may succeed.

package wardenhttp

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/rpcstatus"
	"github.com/stopbank/stopbank/warden/retry"
)

// idempotencyKey makes any request repeatable: the server recognizes the repetition
// (draft-ietf-httpapi-idempotency-key-header).
const idempotencyKey = "Idempotency-Key"

// target returns where a request goes. Segments of its path that have a digit count as one: most are IDs.
func target(r *http.Request, p decision.Priority) retry.Target {
	if r.URL == nil { // the base rejects it
		return retry.Target{Priority: p}
	}
	path := r.URL.Path
	if strings.ContainsAny(path, "0123456789") {
		segments := strings.Split(path, "/")
		for i, s := range segments {
			if strings.ContainsAny(s, "0123456789") {
				segments[i] = "*"
			}
		}
		path = strings.Join(segments, "/")
	}
	return retry.Target{Dependency: r.URL.Host, Path: path, Priority: p}
}

// result is the result of an attempt.
type result struct {
	outcome     retry.Outcome
	again       bool          // another attempt may succeed
	unprocessed bool          // no handler has seen it: any request may be sent again
	after       time.Duration // Retry-After
}

// classifyAttempt classifies an attempt of a request with this context.
func classifyAttempt(ctx context.Context, trip trip, resp *http.Response, err error) result {
	if err != nil || resp == nil {
		return classifyError(ctx, err)
	}
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusGatewayTimeout:
	default:
		return result{outcome: retry.Accepted}
	}
	if trip.fault(nil) || trip.keeps(nil) {
		return result{}
	}
	v := result{
		outcome: retry.Rejected, again: true,
		unprocessed: only(resp.Header, rpcstatus.RejectedHTTP) != "",
		after:       retryAfter(resp.Header, time.Now()),
	}
	switch scope := only(resp.Header, rpcstatus.ScopeHTTP); {
	case scope == rpcstatus.Tenant:
		v.outcome = retry.Unknown
	case scope == rpcstatus.Compartment: // the paths in other compartments have slots
		v.outcome = retry.Failed
	case v.unprocessed, resp.StatusCode == http.StatusServiceUnavailable: // overload; Connect has no other status for it than 429
	case resp.StatusCode == http.StatusTooManyRequests: // a quota, which says nothing about other callers (R8)
		v.outcome = retry.Unknown
	default: // perhaps only this path's service does not answer (H25)
		v.outcome = retry.Failed
	}
	return v
}

// streamError matches net/http's HTTP/2 stream error with errors.As, by its fields: the stream was reset. net/http itself
// retries streams that the server has not processed (REFUSED_STREAM, GOAWAY).
type streamError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (streamError) Error() string { return "wardenhttp: an HTTP/2 stream was reset" }

func classifyError(ctx context.Context, err error) result {
	var dialed *net.OpError
	var stream streamError
	var network net.Error
	switch {
	case errors.Is(err, errLost), errors.Is(ctx.Err(), context.Canceled):
		return result{} // canceled, by the caller or by the other attempt
	case errors.Is(err, warden.ErrRejected), errors.Is(err, notSentError{}), bulkhead.IsExcluded(err):
		return result{} // not sent
	case ctx.Err() != nil:
		return result{outcome: retry.Failed} // the deadline has passed
	case errors.As(err, &dialed) && dialed.Op == "dial":
		return result{outcome: retry.Rejected, again: true, unprocessed: true}
	case errors.As(err, &stream), errors.As(err, &network), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, context.DeadlineExceeded):
		return result{outcome: retry.Failed, again: true}
	}
	return result{} // such as an invalid certificate, or an unsupported URL
}

// idempotent is the default of RetryConfig.Repeatable.
func idempotent(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, "", http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return only(r.Header, idempotencyKey) != ""
}

// retryAfter parses Retry-After: seconds or a date (RFC 9110, 10.2.3). A date is compared with the response's own Date, so
// that clocks need not agree. 0: missing or invalid. More than a day counts as a day.
func retryAfter(h http.Header, now time.Time) time.Duration {
	const longest = 24 * time.Hour
	s := only(h, "Retry-After")
	if s == "" || len(s) > 64 {
		return 0
	}
	digits := true
	for _, c := range []byte(s) {
		digits = digits && c >= '0' && c <= '9'
	}
	if digits {
		seconds, err := strconv.ParseUint(s, 10, 32)
		if err != nil {
			return longest
		}
		return min(time.Duration(seconds)*time.Second, longest)
	}
	at, err := http.ParseTime(s)
	if err != nil {
		return 0
	}
	if sent, err := http.ParseTime(only(h, "Date")); err == nil {
		now = sent
	}
	return min(max(0, at.Sub(now)), longest)
}

// only returns the value of a header that occurs exactly once, else "".
func only(h http.Header, name string) string {
	if v := h[name]; len(v) == 1 {
		return v[0]
	}
	return ""
}
