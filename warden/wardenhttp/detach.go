// Work that outlives its request: an upstream that goes on when nobody waits for it keeps the slot until it is done.

package wardenhttp

import (
	"context"
	"errors"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/stopbank/stopbank/admission/admissionhttp/inflight"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/internal/slot"
)

// Detach returns a transport for an upstream that goes on with a request whose client has left or whose deadline has passed, such as
// one with synchronous workers. A handler behind a [Middleware] then gets its error as with base, but the request keeps its slot until
// the upstream has answered, for [Config].Grace at most, so that no more work begins than the upstream can do. For a reverse proxy:
//
//	proxy := &httputil.ReverseProxy{Rewrite: rewrite, Transport: wardenhttp.Detach(nil)}
//
// The upstream is not told that nobody waits. Where it would stop, base is better: the work would be in vain. Only the wait for the
// answer's header is detached: an answer whose body is being read ends with its request.
//
// A nil base is [http.DefaultTransport]; one that is a nil pointer or function fails each request. Requests that no handler behind a
// Middleware sends, with its context, go to base as they are. To send the remaining time and the priority to the upstream, let the
// transport be the Base of a [TransportConfig].
//
// RoundTrip blocks until the answer's header has come or the request's context has ended. It starts a goroutine and allocates a
// context and a copy of the request with its headers.
func Detach(base http.RoundTripper) http.RoundTripper {
	d := &detached{base: base, bad: noBase("wardenhttp.Detach", base)}
	if base == nil {
		d.base = http.DefaultTransport
	}
	return d
}

type detached struct {
	base http.RoundTripper
	bad  error // base cannot be called
}

// came is what the base returned.
type came struct {
	resp *http.Response
	err  error
}

// RoundTrip sends the request, and leaves it behind if its context ends before there is an answer.
func (d *detached) RoundTrip(req *http.Request) (*http.Response, error) {
	switch {
	case d.bad != nil:
		closeBody(req)
		return nil, d.bad
	case req == nil:
		return nil, noRequest()
	}
	asked := req.Context()
	slots := join(asked)
	if len(slots) == 0 {
		return d.base.RoundTrip(req)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(asked))
	done := make(chan came, 1)
	go d.send(req.Clone(ctx), done)
	select {
	case got := <-done:
		part(slots, slot.Silent)
		context.AfterFunc(asked, cancel) // the body ends with the request
		return got.resp, got.err
	case <-asked.Done():
		go follow(slots, done, cancel)
		return nil, context.Cause(asked)
	}
}

// errNothing is the error of a base that did not return.
var errNothing = errors.New("wardenhttp: the base transport called runtime.Goexit")

// send calls the base. A panic on this goroutine would end the process.
func (d *detached) send(req *http.Request, done chan<- came) {
	got := came{err: errNothing}
	defer func() {
		if v := recover(); v != nil {
			got = came{err: &bulkhead.PanicError{Value: v, Stack: debug.Stack()}}
		}
		done <- got
	}()
	got.resp, got.err = d.base.RoundTrip(req) //nolint:bodyclose // RoundTrip returns it, or follow closes it
}

// follow keeps the slots until the upstream has answered somebody who does not wait any more, for the grace at most.
func follow(slots []*exchange, done <-chan came, cancel func()) {
	grace := time.NewTimer(slots[0].h.pace.grace)
	defer grace.Stop()
	defer cancel()
	select {
	case got := <-done:
		part(slots, slot.Whole)
		discard(got.resp)
	case <-grace.C:
		part(slots, slot.Abandoned)
		cancel()
		discard((<-done).resp)
	}
}

// CloseIdleConnections closes the base's; http.Client calls it.
func (d *detached) CloseIdleConnections() { closeIdle(d.base) }

// within is the context of an exchange's handler.
type within struct {
	context.Context
	e *exchange
}

type withinKey struct{}

// Value returns the exchange itself for its own key.
func (w *within) Value(key any) any {
	if key == (withinKey{}) {
		return w.e
	}
	return w.Context.Value(key)
}

// join adds a part to the requests whose handlers have this context, the innermost first: each middleware around another one has a
// slot of its own.
func join(ctx context.Context) (all []*exchange) {
	for e, ok := ctx.Value(withinKey{}).(*exchange); ok; e, ok = e.slot.Ctx.Value(withinKey{}).(*exchange) {
		if e.behind.join() {
			all = append(all, e)
		}
	}
	return all
}

// part ends that part. how is what the time says of what the request left behind; Silent: it left nothing.
func part(all []*exchange, how slot.Ending) {
	for _, e := range all {
		if e.behind.part(how) {
			e.release()
		}
	}
}

// behind is what a request leaves behind: the slot is released when the handler is done and nothing is left.
type behind struct {
	mu   sync.Mutex // guards all below
	left int        // sent requests that were not answered
	over bool       // the handler is done, with this outcome
	came inflight.Outcome

	whole, cut bool // some were done by themselves after the request, or ended by the grace
}

func (b *behind) join() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over && b.left == 0 {
		return false
	}
	b.left++
	return true
}

// part reports whether the slot is to be released.
func (b *behind) part(how slot.Ending) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left--
	b.whole, b.cut = b.whole || how == slot.Whole, b.cut || how == slot.Abandoned
	return b.over && b.left == 0
}

// end records the outcome of the handler, and reports whether the slot is to be released.
func (b *behind) end(came inflight.Outcome) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over, b.came = true, came
	return b.left == 0
}
