// SPDX-License-Identifier: Apache-2.0

// Deadline and priority of an outgoing request, sent in headers, and the answer that the deadline is too early.

package wardenhttp

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/rpcstatus"
	"github.com/stopbank/stopbank/warden/internal/timelimit"
	"github.com/stopbank/stopbank/warden/internal/wire"
)

// notSentError is the error of a request that is not sent because less than a millisecond is left: rounding up would promise time
// that is not there. It is a type of its own because the server has not answered.
type notSentError struct{}

func (notSentError) Error() string { return "wardenhttp: not sent: less than a millisecond is left" }
func (notSentError) Unwrap() error { return context.DeadlineExceeded }
func (notSentError) Timeout() bool { return true } // as a net.Error's

// timeLeft returns what a request under ctx with these headers tells the other side of its time; false: it has no end. stranger is
// when that is up if the service does not count it as its own: an untrusted client's, or that of a header which says less than ctx,
// and which a proxy may have passed on; else zero. RPC libraries round what ctx says.
func timeLeft(ctx context.Context, h http.Header) (left time.Duration, stranger time.Time, bounded bool) {
	now := time.Now()
	due, strangers, bounded := timelimit.Due(ctx)
	left = due.Sub(now)
	if strangers && left > 0 {
		left += time.Millisecond // the server's own answer that the time is up is to come after the client's time, not before
	}
	if says := wire.Read(func(n wire.Name) []string { return h[n.HTTP] }).Timeout; says > 0 && (!bounded || says < left) {
		strangers = strangers || !bounded || says < left-time.Millisecond
		left, bounded = says, true
	}
	if strangers {
		stranger = now.Add(left.Truncate(time.Millisecond))
	}
	return left, stranger, bounded
}

// withHeaders returns req under ctx, with the deadline and the priority of ctx in headers, and stranger as timeLeft does. The error is
// a notSentError, or that of an untrusted client's own deadline.
//
// An existing priority header is replaced: a proxy may pass on one from an untrusted client, and the server would trust it as
// ours. An existing timeout counts if it is shorter. Normal is not sent: the server's own default applies.
func withHeaders(ctx context.Context, req *http.Request) (out *http.Request, stranger time.Time, err error) {
	p := warden.PriorityFrom(ctx)
	left, stranger, bounded := timeLeft(ctx, req.Header)
	_, ranked := req.Header[wire.PriorityHTTP]
	says := bounded || ranked || p != decision.Normal
	if !says && ctx == req.Context() {
		return req, stranger, nil
	}
	out = req.WithContext(ctx)
	if !says {
		return out, stranger, nil
	}
	if out.Header = req.Header.Clone(); out.Header == nil {
		out.Header = make(http.Header, 2)
	}
	if delete(out.Header, wire.PriorityHTTP); p != decision.Normal {
		out.Header[wire.PriorityHTTP] = []string{p.String()}
	}
	if delete(out.Header, wire.UntrustedHTTP); !stranger.IsZero() {
		out.Header[wire.UntrustedHTTP] = []string{"1"}
	}
	switch {
	case !bounded:
	case left < time.Millisecond && timelimit.TooLate(ctx, stranger, true):
		return nil, stranger, timelimit.ErrStranger
	case left < time.Millisecond:
		return nil, stranger, notSentError{}
	case left <= wire.Longest:
		out.Header[wire.TimeoutHTTP] = []string{strconv.FormatInt(left.Milliseconds(), 10)}
	}
	return out, stranger, nil
}

// onTime is a base whose answer for want of an untrusted client's time, of which the server was told, is the end of the request's
// context, which may not have been noticed yet.
type onTime struct {
	http.RoundTripper
	stranger time.Time // when the time is up; zero: it is the service's own
}

func (o onTime) RoundTrip(req *http.Request) (*http.Response, error) {
	trip := tripOf(req.Context(), req)
	if trip.Served != nil {
		trip, req = trip.watch(req)
	}
	resp, err := o.RoundTripper.RoundTrip(req)
	if err := trip.end(resp, err); err != nil {
		return resp, err
	}
	if resp != nil && tooLate(req.Context(), resp, o.stranger) {
		discard(resp)
		return nil, timelimit.ErrStranger
	}
	return resp, err
}

// foreseen reports whether a server of this project has seen at once that the time would not be enough.
func foreseen(h http.Header) bool {
	return only(h, rpcstatus.RejectedHTTP) == string(decision.DeadlineExceeded)
}

// tooLate reports whether resp is for want of time that is up at stranger. Calls over gRPC have a status of their own.
func tooLate(ctx context.Context, resp *http.Response, stranger time.Time) bool {
	foreseen := foreseen(resp.Header)
	return (foreseen || resp.StatusCode == http.StatusGatewayTimeout || only(resp.Header, "Grpc-Status") == "4") &&
		timelimit.TooLate(ctx, stranger, foreseen)
}
