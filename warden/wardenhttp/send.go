// What a request that is sent says of itself: how much time is left, and how much it matters.

package wardenhttp

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/internal/wire"
)

// unsent is why a request is not sent: less than a millisecond is left, and to say that there is one would give away what nobody has. It is a
// type of its own because this is no answer of the server's.
type unsent struct{}

func (unsent) Error() string { return "wardenhttp: not sent: less than a millisecond is left" }
func (unsent) Unwrap() error { return context.DeadlineExceeded }
func (unsent) Timeout() bool { return true } // as a net.Error's

// tell is req under ctx, which says in its headers what ctx knows. The error is unsent.
//
// The priority's header is ours alone: one that was there may be a stranger's, which a proxy passes on, and would have our word for
// it. A time that was there counts if it is shorter. What means Normal is not said: whoever has no opinion takes the other side's.
func tell(ctx context.Context, req *http.Request) (*http.Request, error) {
	p := warden.PriorityFrom(ctx)
	due, bounded := ctx.Deadline()
	_, ranked := req.Header[wire.PriorityHTTP]
	if !bounded && !ranked && p == warden.Normal && ctx == req.Context() {
		return req, nil
	}
	out := req.WithContext(ctx)
	if !bounded && !ranked && p == warden.Normal {
		return out, nil
	}
	if out.Header = req.Header.Clone(); out.Header == nil {
		out.Header = make(http.Header, 2)
	}
	if delete(out.Header, wire.PriorityHTTP); p != warden.Normal {
		out.Header[wire.PriorityHTTP] = []string{p.String()}
	}
	if !bounded {
		return out, nil
	}
	left := time.Until(due)
	if said := wire.Read(func(n wire.Name) []string { return req.Header[n.HTTP] }); said.Left > 0 {
		left = min(left, said.Left)
	}
	switch {
	case left < time.Millisecond:
		return nil, unsent{}
	case left <= wire.Longest:
		out.Header[wire.TimeoutHTTP] = []string{strconv.FormatInt(left.Milliseconds(), 10)}
	}
	return out, nil
}
