// What an answer, or none, says about the server, and whether another attempt may fare better.

package wardenhttp

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/retry"
)

// RefusedHeader is in a response of a [Middleware] to a request that it refused, and holds the reason. It says that no handler has seen the
// request, so that it can be sent again whatever its method. [WriteError] does not write it: a handler may have done something before.
const RefusedHeader = "Warden-Refused"

// idempotencyKey makes a request repeatable whose method is not: the server knows it again
// (draft-ietf-httpapi-idempotency-key-header).
const idempotencyKey = "Idempotency-Key"

// verdict is what came of an attempt.
type verdict struct {
	outcome     retry.Outcome
	again       bool          // another attempt may fare better
	unprocessed bool          // no handler has seen it: it is safe to send anything again
	after       time.Duration // that the server wants to be left alone
}

// judge says what came of an attempt of a request with this context.
func judge(ctx context.Context, resp *http.Response, err error) verdict {
	if err != nil || resp == nil {
		return judgeError(ctx, err)
	}
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusGatewayTimeout:
		return verdict{
			outcome: retry.Refused, again: true,
			unprocessed: only(resp.Header, RefusedHeader) != "",
			after:       retryAfter(resp.Header, time.Now()),
		}
	}
	return verdict{outcome: retry.Accepted}
}

// streamError is what net/http's HTTP/2 has errors.As fill in: a type with these fields. It says that a stream was reset. One that the server has not
// worked on (REFUSED_STREAM, GOAWAY) net/http sends again by itself.
type streamError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (streamError) Error() string { return "wardenhttp: an HTTP/2 stream was reset" }

func judgeError(ctx context.Context, err error) verdict {
	var dialed *net.OpError
	var stream streamError
	var network net.Error
	switch {
	case errors.Is(err, errLost), errors.Is(ctx.Err(), context.Canceled):
		return verdict{} // somebody else's doing
	case errors.Is(err, warden.ErrRejected), errors.Is(err, unsent{}), bulkhead.NoVerdict(err):
		return verdict{} // it was not sent
	case ctx.Err() != nil:
		return verdict{outcome: retry.Refused} // no time is left
	case errors.As(err, &dialed) && dialed.Op == "dial":
		return verdict{outcome: retry.Refused, again: true, unprocessed: true}
	case errors.As(err, &stream), errors.As(err, &network), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, context.DeadlineExceeded):
		return verdict{outcome: retry.Refused, again: true}
	}
	return verdict{} // such as a certificate that is not accepted, or a URL that nobody understands
}

// idempotent is RetryConfig.Repeatable's default.
func idempotent(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, "", http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return only(r.Header, idempotencyKey) != ""
}

// retryAfter reads Retry-After: seconds or a date (RFC 9110, 10.2.3), against the response's own Date, so that clocks need not agree. 0: there
// is none that can be read. What is more than a day is a day.
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

// only is the value of a header that is there once, else "".
func only(h http.Header, name string) string {
	if v := h[name]; len(v) == 1 {
		return v[0]
	}
	return ""
}
