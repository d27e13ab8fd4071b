// SPDX-License-Identifier: Apache-2.0

// A permit, and the outcome of the request that held it.

package inflight

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
)

// Permit is held by a request while it is in flight. [Serve] and [RoundTrip] call End exactly once, on the goroutine that ends
// the request, which waits for it: the handler's, or the one that reads or closes a body or closes a connection. A request that
// never ends keeps its permit.
type Permit interface{ End(Outcome) }

// Outcome is how a request ended.
type Outcome struct {
	// Err is nil if all went well. If the request's context had ended before the handler was done, or before the response
	// ended, Err is the context's: on a server, context.Canceled says that the client went away. Otherwise it is the error of
	// the base transport or of the body's Read, or one that says that the handler or the base transport did not return.
	Err error
	// Status is the response's status on the client's side; 0: there was no response. A server's is not known.
	Status int
	// Upgraded says that a connection outlived its request, hijacked by the handler or after 101 (Switching Protocols): how
	// long that took says nothing about the service. On the client's side Err is nil then.
	Upgraded bool
}

// held is a permit that ends once: Read and Close of a response need not agree which was first, and Hijack may be called when the
// request is over.
type held[P Permit] struct {
	permit P
	ended  atomic.Bool
}

func (h *held[P]) end(o Outcome) {
	if h.ended.CompareAndSwap(false, true) {
		h.permit.End(o)
	}
}

// errAborted is the outcome of a panic and of runtime.Goexit.
var errAborted = errors.New("inflight: the handler or the base transport did not return")

// under is the error of a request that ended with err: its context's, if that has ended.
func under(ctx context.Context, err error) error {
	if over := ctx.Err(); over != nil {
		return over
	}
	return err
}

// contextOf is the request's own context: a handler may replace it. A nil request is for next or the base to
// complain about; here, a panic would lose the permit.
func contextOf(r *http.Request) context.Context {
	if r == nil {
		return context.Background()
	}
	return r.Context()
}
