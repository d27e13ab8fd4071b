// SPDX-License-Identifier: Apache-2.0

// Deadline and priority of an outgoing request, sent in headers.

package wardenhttp

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/timelimit"
	"github.com/stopbank/stopbank/warden/internal/wire"
)

// notSentError is the error of a request that is not sent because less than a millisecond is left: rounding up would promise time
// that is not there. It is a type of its own because the server has not answered.
type notSentError struct{}

func (notSentError) Error() string { return "wardenhttp: not sent: less than a millisecond is left" }
func (notSentError) Unwrap() error { return context.DeadlineExceeded }
func (notSentError) Timeout() bool { return true } // as a net.Error's

// withHeaders returns req under ctx, with the deadline and the priority of ctx in headers. The error is a notSentError, or
// that of an untrusted client's own deadline.
//
// An existing priority header is replaced: a proxy may pass on one from an untrusted client, and the server would trust it as
// ours. An existing timeout counts if it is shorter. Normal is not sent: the server's own default applies.
func withHeaders(ctx context.Context, req *http.Request) (*http.Request, error) {
	p := warden.PriorityFrom(ctx)
	due, own, bounded := timelimit.Due(ctx)
	_, ranked := req.Header[wire.PriorityHTTP]
	if !bounded && !ranked && p == decision.Normal && ctx == req.Context() {
		return req, nil
	}
	out := req.WithContext(ctx)
	if !bounded && !ranked && p == decision.Normal {
		return out, nil
	}
	if out.Header = req.Header.Clone(); out.Header == nil {
		out.Header = make(http.Header, 2)
	}
	if delete(out.Header, wire.PriorityHTTP); p != decision.Normal {
		out.Header[wire.PriorityHTTP] = []string{p.String()}
	}
	if !bounded {
		return out, nil
	}
	left := time.Until(due)
	if own && left > 0 {
		left += time.Millisecond // the server's own answer that the time is up is to come after the client's time, not before
	}
	if headers := wire.Read(func(n wire.Name) []string { return req.Header[n.HTTP] }); headers.Timeout > 0 {
		left = min(left, headers.Timeout)
	}
	switch {
	case left < time.Millisecond && own:
		return nil, timelimit.ErrStranger
	case left < time.Millisecond:
		return nil, notSentError{}
	case left <= wire.Longest:
		out.Header[wire.TimeoutHTTP] = []string{strconv.FormatInt(left.Milliseconds(), 10)}
	}
	return out, nil
}
