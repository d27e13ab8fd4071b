// SPDX-License-Identifier: Apache-2.0

// Work that outlives its request: an upstream that goes on without a client keeps the slot until it is done.

package wardenhttp

import (
	"context"
	"errors"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/internal/inflight"
	"github.com/stopbank/stopbank/warden/internal/slot"
)

// Detach returns a transport for an upstream that goes on with a request whose client has left or whose deadline has passed, such
// as one with synchronous workers. A handler behind a [Middleware] then gets its error as with base, but the request keeps its
// slot until the upstream has answered, for [Config].Grace at most, so that no more work begins than the upstream can do. For a
// reverse proxy:
//
//	proxy := &httputil.ReverseProxy{Rewrite: rewrite, Transport: wardenhttp.Detach(nil)}
//
// The upstream does not learn that nobody waits. If it would stop, base is better: the work would be in vain. Only the wait for
// the answer's header is detached: an answer whose body is being read ends with its request.
//
// A nil base is [http.DefaultTransport]; one that is a nil pointer or function fails each request. Requests that no handler
// behind a Middleware sends, with its context, go to base as they are. To send the remaining time and the priority to the
// upstream, let the transport be the Base of a [TransportConfig].
//
// RoundTrip of a request with a slot blocks until the answer's header has come or the request's context has ended. It starts a
// goroutine and allocates a context and a copy of the request with its headers.
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
	ctx, cancel := context.WithCancel(context.WithoutCancel(asked))
	done := make(chan upstreamReply, 1)
	go d.send(req.Clone(ctx), done)
	select {
	case reply := <-done:
		endDetached(slots, slot.Discarded)
		context.AfterFunc(asked, cancel) // the body ends with the request
		return reply.resp, reply.err
	case <-asked.Done():
		go waitDetached(slots, done, cancel)
		return nil, context.Cause(asked)
	}
}

// errGoexit is the error of a base that did not return.
var errGoexit = errors.New("wardenhttp: the base transport called runtime.Goexit")

// send calls the base. A panic on this goroutine would end the process.
func (d *detacher) send(req *http.Request, done chan<- upstreamReply) {
	reply := upstreamReply{err: errGoexit}
	defer func() {
		if v := recover(); v != nil {
			reply = upstreamReply{err: &bulkhead.PanicError{Value: v, Stack: debug.Stack()}}
		}
		done <- reply
	}()
	reply.resp, reply.err = d.base.RoundTrip(req) //nolint:bodyclose // RoundTrip returns it, or waitDetached closes it
}

// waitDetached keeps the slots of a request that has ended until the upstream has answered, for the grace at most.
func waitDetached(slots []*exchange, done <-chan upstreamReply, cancel func()) {
	grace := time.NewTimer(slots[0].m.pace.grace)
	defer grace.Stop()
	defer cancel()
	select {
	case reply := <-done:
		endDetached(slots, slot.Completed)
		discard(reply.resp)
	case <-grace.C:
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

// Value returns the exchange itself for its own key.
func (w *exchangeContext) Value(key any) any {
	if key == (exchangeKey{}) {
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
	mu          sync.Mutex // guards all below
	pending     int        // sent requests that were not answered
	handlerDone bool       // the handler is done, with this outcome
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
