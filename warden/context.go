// What the context of work says of it: how much it matters, which request it is of, and which wardens have given it a place.

package warden

import (
	"context"
	"sync/atomic"

	"github.com/stopbank/stopbank/warden/internal/requestid"
)

// WithPriority returns a context whose work matters this much: every task under it that says nothing else, which is one of
// priority Normal, has this priority, and so has every request that it sends through a transport or interceptor of this
// project. [Normal] takes back what was said before. It allocates the context.
func WithPriority(ctx context.Context, p Priority) context.Context {
	return context.WithValue(ctx, priorityKey{}, p)
}

// PriorityFrom is how much the work of ctx matters: as [WithPriority] said, or the priority of the task that runs with ctx,
// whichever came last; [Normal] if nothing was said. It allocates nothing.
func PriorityFrom(ctx context.Context) Priority {
	p, _ := ctx.Value(priorityKey{}).(Priority)
	return p
}

type priorityKey struct{}

// WithRequestID returns a context whose work is of the request with this id: every task under it that has no ID of its own has this
// one, and what a compartment tells of work under it has it too. wardenhttp and wardengrpc do this for the requests of a server. An id is
// kept as it is, for a while: check and cut what a client has made up. It allocates the context.
func WithRequestID(ctx context.Context, id string) context.Context { return requestid.With(ctx, id) }

// RequestIDFrom is the id of the request that ctx is of, for logs and for requests that are sent on its behalf: as [WithRequestID] said, or
// that of the task that runs with ctx, whichever came last; "" if nothing was said. It allocates nothing.
func RequestIDFrom(ctx context.Context) string { return requestid.From(ctx) }

// mark is the context that a task runs with. Who got it may keep it for any time: it is all of a task that has to be allocated.
type mark struct {
	context.Context // the caller's
	warden          *Warden
	id              string // of the request
	priority        Priority
	ended           atomic.Bool // the place has been given back
}

type markKey struct{}

// Value finds the mark itself, and the priority and the request of its task.
func (m *mark) Value(key any) any {
	switch key.(type) {
	case markKey:
		return m
	case priorityKey:
		return m.priority
	case requestid.Key:
		return &m.id
	}
	return m.Context.Value(key)
}

// AfterFunc is what package context looks for: a context of somebody else's make is watched in its own way, and not by a goroutine.
func (m *mark) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(m.Context, f) }

// innermost is the mark of the task that was started last on the way to ctx, nil if none was.
func innermost(ctx context.Context) *mark {
	m, _ := ctx.Value(markKey{}).(*mark)
	return m
}

// Holds is whether ctx is that of a task which has its place in w now: the one that [Do] or [Warden.Acquire] has given it, or one made
// from that, also if it was detached from its cancellation. It allocates nothing.
func (w *Warden) Holds(ctx context.Context) bool {
	for m := innermost(ctx); m != nil; m = innermost(m.Context) {
		if m.warden == w && !m.ended.Load() {
			return true
		}
	}
	return false
}
