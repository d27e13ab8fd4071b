// SPDX-License-Identifier: Apache-2.0

// The task in a context: its priority, its request ID, and the wardens whose slots it holds.

package warden

import (
	"context"
	"sync/atomic"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/requestid"
)

// WithPriority returns a context with a priority. A task under it that leaves its priority Normal has this one, and so do the
// requests that it sends through a transport or interceptor of this project. [decision.Normal] removes an earlier priority.
// WithPriority allocates the context.
func WithPriority(ctx context.Context, p decision.Priority) context.Context {
	return context.WithValue(ctx, priorityKey{}, p)
}

// PriorityFrom returns the priority of ctx: the one set by [WithPriority] or that of the running task, whichever is
// innermost; [decision.Normal] if there is none. It allocates nothing.
func PriorityFrom(ctx context.Context) decision.Priority {
	p, _ := ctx.Value(priorityKey{}).(decision.Priority)
	return p
}

type priorityKey struct{}

// WithRequestID returns a context with a request ID. A task under it without an ID of its own has this one, and events of a
// compartment carry it too. wardenhttp and wardengrpc set it for server requests. Explanations keep the ID unchanged after
// the request has ended: validate and truncate an ID that a client chose. WithRequestID allocates the context.
func WithRequestID(ctx context.Context, id string) context.Context { return requestid.With(ctx, id) }

// RequestIDFrom returns the request ID of ctx, for logs and outgoing requests: the one set by [WithRequestID] or that of the
// running task, whichever is innermost; "" if there is none. It allocates nothing.
func RequestIDFrom(ctx context.Context) string { return requestid.From(ctx) }

// taskContext is the context of a running task, and the only allocation of a task. It may outlive the task.
type taskContext struct {
	context.Context // the caller's
	warden          *Warden
	id              string // of the request
	priority        decision.Priority
	ended           atomic.Bool // the slot was released
}

type taskKey struct{}

// Value returns the mark itself, or its task's priority or request ID.
func (m *taskContext) Value(key any) any {
	switch key.(type) {
	case taskKey:
		return m
	case priorityKey:
		return m.priority
	case requestid.Key:
		return &m.id
	}
	return m.Context.Value(key)
}

// AfterFunc is found by package context: a derived context then uses the caller's own AfterFunc instead of a goroutine.
func (m *taskContext) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(m.Context, f) }

// innermost returns the mark of the innermost task of ctx, nil if there is none.
func innermost(ctx context.Context) *taskContext {
	m, _ := ctx.Value(taskKey{}).(*taskContext)
	return m
}

// Holds reports whether ctx belongs to a task that holds a slot of w now: it is the context from [Do] or [Warden.Acquire], or
// derives from it, with or without its cancellation. It allocates nothing.
func (w *Warden) Holds(ctx context.Context) bool {
	for m := innermost(ctx); m != nil; m = innermost(m.Context) {
		if m.warden == w && !m.ended.Load() {
			return true
		}
	}
	return false
}
