// SPDX-License-Identifier: Apache-2.0

// Work that outlives its request: an upstream that goes on without a client keeps the slot until it is done.

package wardenhttp

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/internal/inflight"
	"github.com/stopbank/stopbank/warden/internal/patience"
	"github.com/stopbank/stopbank/warden/internal/slot"
	"github.com/stopbank/stopbank/warden/internal/timelimit"
)

// Detach returns a transport for an upstream that goes on with a request whose client has left or whose deadline has passed, such
// as one with synchronous workers. A handler behind a [Middleware] then gets its error as with base, but the request keeps its
// slot until the upstream has answered, for [Config].Grace at most, so that no more work begins than the upstream can do. For a
// reverse proxy:
//
//	proxy := &httputil.ReverseProxy{Rewrite: rewrite, Transport: wardenhttp.Detach(nil)}
//
// The upstream does not learn that nobody waits. If it would stop, base is better: the work would be in vain. Only the wait for
// the answer's header is detached: an answer whose body is being read ends with its request. So does a request that waits for a
// connection or whose body was not read whole, as with base; when RoundTrip returns, the body and the hooks of a trace are
// the caller's again. What goes on has the values of the context: do not send with one that a framework reuses, as gin does with
// a *gin.Context, but with that of its http.Request.
//
// While an upstream works for nobody, the handler's next request through Detach, such as a retry, waits for it: a slot is one
// request at the upstream, and [NewRetry] hedges none over it. A request whose context has ended is not sent; its error matches context.Canceled.
//
// A nil base is [http.DefaultTransport]; one that is a nil pointer or function fails each request. Requests that no handler
// behind a Middleware sends, with its context, go to base as they are. Transports that wait or retry, such as those of
// [NewTransport], which sends the remaining time and the priority to the upstream, and [NewRetry], have Detach's as their Base.
//
// RoundTrip of a request with a slot blocks until the answer's header has come or the request's context has ended, and until
// base reads no more of the body. It starts a goroutine and allocates a context, a trace, and a copy of the request with its
// headers.
func Detach(base http.RoundTripper) http.RoundTripper {
	d := &detacher{base: base, err: checkBase("Detach", base)}
	if base == nil {
		d.base = http.DefaultTransport
	}
	return d
}

type detacher struct {
	base http.RoundTripper
	err  error // base cannot be called
}

// upstreamReply is the result of the base.
type upstreamReply struct {
	resp *http.Response
	err  error
}

// RoundTrip sends the request, and detaches it if its context ends before there is an answer.
func (d *detacher) RoundTrip(req *http.Request) (*http.Response, error) {
	switch {
	case d.err != nil:
		closeBody(req)
		return nil, d.err
	case req == nil:
		return nil, noRequest()
	}
	asked := req.Context()
	slots := addDetached(asked)
	if len(slots) == 0 {
		return d.base.RoundTrip(req)
	}
	if asked.Value(hedgeKey{}) != nil { // there may be transports between: NewRetry does not see all
		endDetached(slots, slot.Discarded)
		closeBody(req)
		return nil, errNoHedge
	}
	if err := awaitUpstream(asked, slots); err != nil {
		endDetached(slots, slot.Discarded)
		closeBody(req)
		return nil, innocent{err, true}
	}
	_, stranger, _ := timeLeft(asked, req.Header)
	trip, req := tripOf(asked, req).watch(req)
	out, lent := lend(req)
	done := make(chan upstreamReply, 1)
	go d.send(out, lent, done)
	select {
	case reply := <-done:
		endDetached(slots, slot.Discarded)
		if reply.err == nil && reply.resp != nil && tooLate(asked, reply.resp, stranger) {
			discard(reply.resp)
			reply = upstreamReply{err: timelimit.ErrStranger}
		}
		if err := trip.end(reply.resp, reply.err); err != nil {
			lent.end()
			return reply.resp, err
		}
		lent.watch()
		return ending(asked, reply.resp), nil
	case <-asked.Done():
	case <-req.Cancel: //nolint:staticcheck // http.Client's Timeout uses it
	}
	how := slot.Completed
	if !lent.sent() { // the upstream does not have all of it, and gets no more
		how = slot.Discarded
		lent.cancel()
	}
	lent.end()
	over := make(chan struct{})
	for _, e := range slots {
		e.detached.leave(over)
	}
	go waitDetached(slots, done, lent.cancel, how, over)
	return nil, cmp.Or(context.Cause(asked), context.Canceled)
}

// endingBody is the body of an answer. It ends with the request's context, and says why, as base's own would.
type endingBody struct {
	io.ReadCloser
	asked context.Context
}

func (b *endingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = cmp.Or(context.Cause(b.asked), err)
	}
	return n, err
}

// ending returns resp with an endingBody, unless there is nothing to read or the connection was upgraded.
func ending(asked context.Context, resp *http.Response) *http.Response {
	if resp != nil && resp.Body != nil && resp.Body != http.NoBody && resp.StatusCode != http.StatusSwitchingProtocols {
		resp.Body = &endingBody{resp.Body, asked}
	}
	return resp
}

// awaitUpstream waits until no upstream works for a caller that has left one of these exchanges: the slot is one. It returns the
// cause if ctx has ended: what nobody waits for is not sent.
func awaitUpstream(ctx context.Context, slots []*exchange) error {
	for _, e := range slots {
		for over := e.detached.left(); over != nil; over = e.detached.left() {
			select {
			case <-over:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	return context.Cause(ctx)
}

// errNoHedge is the error of a hedge.
var errNoHedge = errors.New("wardenhttp: Detach sends no hedges: a slot is one request at the upstream")

// errGoexit is the error of a base that did not return.
var errGoexit = errors.New("wardenhttp: the base transport called runtime.Goexit")

// send calls the base. A panic on this goroutine would end the process.
func (d *detacher) send(req *http.Request, lent *loan, done chan<- upstreamReply) {
	reply := upstreamReply{err: errGoexit}
	defer func() {
		if v := recover(); v != nil {
			reply = upstreamReply{err: &bulkhead.PanicError{Value: v, Stack: debug.Stack()}}
		}
		done <- reply
	}()
	reply.resp, reply.err = inflight.RoundTrip(lent, d.base, req) //nolint:bodyclose // RoundTrip returns it, or waitDetached closes it
}

// waitDetached keeps the slots of a request that has ended until the base is done with it, for the grace at most, and then closes
// over. ending is how the request ends if the base does that.
func waitDetached(slots []*exchange, done <-chan upstreamReply, cancel func(), ending slot.Ending, over chan struct{}) {
	grace := time.NewTimer(slots[0].m.pace.grace)
	defer grace.Stop()
	defer cancel()
	select {
	case reply := <-done:
		close(over)
		endDetached(slots, ending)
		discard(reply.resp)
	case <-grace.C:
		close(over)
		endDetached(slots, slot.Abandoned)
		cancel()
		discard((<-done).resp)
	}
}

// CloseIdleConnections closes the base's; http.Client calls it.
func (d *detacher) CloseIdleConnections() { closeIdle(d.base) }

// exchangeContext is the context of an exchange's handler.
type exchangeContext struct {
	context.Context
	e *exchange
}

type exchangeKey struct{}

// Value returns the exchange itself for its own key, and for that of a request that is served.
func (w *exchangeContext) Value(key any) any {
	if key == (exchangeKey{}) || key == (patience.Key{}) {
		return w.e
	}
	return w.Context.Value(key)
}

// addDetached counts a detached request for each exchange whose handler has this context, the innermost first: each middleware
// around another one has a slot of its own. It returns those exchanges.
func addDetached(ctx context.Context) (all []*exchange) {
	for e, ok := ctx.Value(exchangeKey{}).(*exchange); ok; e, ok = e.slot.Ctx.Value(exchangeKey{}).(*exchange) {
		if e.detached.add() {
			all = append(all, e)
		}
	}
	return all
}

// endDetached ends it. ending is how the detached request ended; slot.Discarded: it ended within its exchange.
func endDetached(all []*exchange, ending slot.Ending) {
	for _, e := range all {
		if e.detached.done(ending) {
			e.release()
		}
	}
}

// detachedWork counts the requests that may outlive an exchange: its slot is released when the handler is done and none is
// pending.
type detachedWork struct {
	mu          sync.Mutex        // guards all below
	pending     int               // sent requests that were not answered
	orphans     []<-chan struct{} // of these, those whose callers have left: each is closed when its request is done
	handlerDone bool              // the handler is done, with this outcome
	outcome     inflight.Outcome

	completed, abandoned bool // some request ended by itself after the handler, or was ended by the grace
}

func (b *detachedWork) add() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.handlerDone && b.pending == 0 {
		return false
	}
	b.pending++
	return true
}

// leave records that the caller of a request has left, until over is closed.
func (b *detachedWork) leave(over <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.orphans = append(b.orphans, over)
}

// left returns the channel of a request whose caller has left; nil: there is none.
func (b *detachedWork) left() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.orphans) > 0 {
		select {
		case <-b.orphans[0]:
			b.orphans = b.orphans[1:]
		default:
			return b.orphans[0]
		}
	}
	return nil
}

// done reports whether to release the slot.
func (b *detachedWork) done(ending slot.Ending) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pending--
	b.completed, b.abandoned = b.completed || ending == slot.Completed, b.abandoned || ending == slot.Abandoned
	return b.handlerDone && b.pending == 0
}

// finish records the outcome of the handler, and reports whether to release the slot.
func (b *detachedWork) finish(outcome inflight.Outcome) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.handlerDone, b.outcome = true, outcome
	return b.pending == 0
}
