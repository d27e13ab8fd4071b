// SPDX-License-Identifier: Apache-2.0

// Package timelimit bounds the time of a request. The bound may move while the request runs, which no context of the standard
// library can do: it stands still while its server waits for the client, and begins anew with each part of the answer. It may be
// one that an untrusted client chose, whose end is no failure of what the request asked.
package timelimit

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

// Context is a context that ends when its time is up, or with its parent. Its methods are safe for concurrent use; Start, Stop,
// Expire, Wait, Resume and Lift of a nil Context do nothing.
type Context struct {
	parent context.Context
	by     Governor      // nil: the time ends the context in any case
	outer  *Context      // the next one among the parents; nil: none
	cause  error         // of the end when the time is up
	span   time.Duration // of the time
	whose  Whose
	asked  atomic.Uint32 // how often Deadline was asked
	short  atomic.Bool   // it was too short for what the request asked, [TooShort]
	over   atomic.Value  // a context that has ended with the cause of this one's end; nil: it has no other cause than err
	timer  *time.Timer

	mu     sync.Mutex // guards all below
	due    time.Time  // when the time is up, unless it stands still
	since  time.Time  // when it began to stand still
	waits  int        // waits for the client that go on: it stands still
	rests  bool       // the timer is not set
	lifted bool       // the time is up no more
	lapsed bool       // because the governor only observes, when it was up
	err    error      // nil: it has not ended, or only the parent has

	// what contexts derived from this one are children of; nil: nobody has asked for it
	tree   context.Context
	cancel context.CancelCauseFunc
	unhook func() bool // from the parent; nil: the tree is the parent's child
	end    func()      // ends the tree with err; nil: cancel does
}

// A Governor is the limiter or the compartment of the work: while it only observes, no time ends a context.
type Governor interface{ Mode() decision.Mode }

// Whose time it is.
type Whose uint8

// The values.
const (
	Service      Whose = iota // the service set it
	Trusted                   // a trusted client told it
	Stranger                  // an untrusted client told it
	StrangersAll              // and the parent's deadline, which is not earlier
)

// New returns a context whose time of the length span is up at due, from [Context.Start] on, for a cause that is or matches
// context.DeadlineExceeded. It is no Deadline: it may move, and timers that others set to it would not. A stranger's time
// ends the context as if he had left, whatever the cause, with [ErrStranger]. Call
// [Context.Stop] in the end.
func New(parent context.Context, by Governor, whose Whose, due time.Time, span time.Duration, cause error) *Context {
	c := &Context{parent: parent, outer: Of(parent), by: by, cause: cause, span: span, whose: whose, due: due}
	if whose >= Stranger {
		c.cause = ErrStranger
	}
	return c
}

type contextKey struct{}

// Of returns the innermost Context of ctx; nil: there is none.
func Of(ctx context.Context) *Context {
	c, _ := ctx.Value(contextKey{}).(*Context)
	return c
}

// Start sets the timer, once. Until then, whoever waits for a slot observes the time.
func (c *Context) Start() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer = time.AfterFunc(time.Until(c.due), c.Expire)
}

// Expire is the timer's function. Whoever has waited for the same instant, and may be faster than the timer, calls it too.
func (c *Context) Expire() {
	if c == nil {
		return
	}
	observed := c.by != nil && c.by.Mode() != decision.Enforce // before the mutex: it takes the governor's
	c.mu.Lock()
	defer c.mu.Unlock()
	left := time.Until(c.due)
	switch {
	case c.lifted || c.waits > 0:
		c.rests = true
	case left > 0:
		c.timer.Reset(left)
	case observed:
		c.lifted, c.lapsed = true, true
	default:
		c.finishLocked(context.DeadlineExceeded, c.cause)
	}
}

// Stop ends the context and releases its resources.
func (c *Context) Stop() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer != nil {
		c.timer.Stop()
	}
	if c.unhook != nil {
		c.unhook()
	}
	c.finishLocked(context.Canceled, context.Canceled)
}

// finishLocked ends the context, once, with err and its cause, or with those of the parent if that has ended before.
func (c *Context) finishLocked(err, cause error) {
	if c.err != nil {
		return
	}
	if ended := c.parent.Err(); ended != nil {
		err, cause = ended, context.Cause(c.parent)
	}
	if c.whose == StrangersAll && errors.Is(cause, context.DeadlineExceeded) {
		cause = ErrStranger
	}
	if errors.Is(cause, ErrStranger) {
		err = context.Canceled
		c.short.Store(true)
	}
	c.err = err
	if cause != err { //nolint:errorlint // context.Cause returns err where it finds no cause
		over, cancel := context.WithCancelCause(context.Background())
		cancel(cause)
		c.over.Store(over)
	}
	switch {
	case c.end != nil:
		c.end()
	case c.cancel != nil:
		c.cancel(cause)
	}
}

// Strangers reports whether the time is an untrusted client's.
func (c *Context) Strangers() bool { return c != nil && c.whose >= Stranger }

// Wait says that the server waits for its client from now on: the time stands still, also that of outer ones.
func (c *Context) Wait(now time.Time) {
	for ; c != nil; c = c.outer {
		c.mu.Lock()
		if c.waits++; c.waits == 1 {
			c.since = now
		}
		c.mu.Unlock()
	}
}

// Resume ends one Wait. progress: the client has got a part of the answer, and the time begins anew.
func (c *Context) Resume(now time.Time, progress bool) {
	for ; c != nil; c = c.outer {
		c.mu.Lock()
		c.waits--
		switch {
		case progress:
			c.due, c.since = now.Add(c.span), now
		case c.waits == 0:
			c.due = c.due.Add(now.Sub(c.since))
		}
		if c.rests && c.waits == 0 && !c.lifted {
			c.rests = false
			c.timer.Reset(time.Until(c.due))
		}
		c.mu.Unlock()
	}
}

// Lift says that the request has become a stream, of which nobody knows how long it takes: the time is up no more, nor that of
// outer ones.
func (c *Context) Lift() {
	for ; c != nil; c = c.outer {
		c.mu.Lock()
		c.lifted = true
		c.mu.Unlock()
	}
}

// Lapsed reports whether the time was up and did not end the context, because the governor only observed.
func (c *Context) Lapsed() bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lapsed
}

// until returns when the time is up as of now; false: never.
func (c *Context) until() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	due := c.due
	if c.waits > 0 {
		due = due.Add(time.Since(c.since))
	}
	return due, !c.lifted
}

// Deadline returns the deadline of the parent, [Slack] later if it is a stranger's. It does not change.
func (c *Context) Deadline() (time.Time, bool) {
	c.asked.Add(1)
	at, bounded := c.parent.Deadline()
	if bounded && c.whose == StrangersAll {
		at = at.Add(Slack)
	}
	return at, bounded
}

// Done returns a channel that is closed when the context ends.
func (c *Context) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tree == nil {
		c.growLocked()
	}
	_ = c.errLocked() // a parent that ends says so a moment later
	return c.tree.Done()
}

// Err returns context.DeadlineExceeded once the time is up, but context.Canceled if it was a stranger's, or the parent's error.
func (c *Context) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.errLocked()
}

func (c *Context) errLocked() error {
	if c.err == nil {
		if ended := c.parent.Err(); ended != nil {
			c.finishLocked(ended, nil)
		}
	}
	return c.err
}

// Value returns the context itself for its own key.
func (c *Context) Value(key any) any {
	if key == (contextKey{}) {
		return c
	}
	c.mu.Lock()
	tree := c.tree
	c.mu.Unlock()
	if tree == nil {
		return (*root)(c).Value(key)
	}
	return tree.Value(key)
}

// growLocked makes the tree. Most requests derive no context that ends, and need none.
func (c *Context) growLocked() {
	if c.whose == Stranger {
		c.tree, c.cancel = context.WithCancelCause(c.parent)
		if c.err != nil {
			c.cancel(context.Cause((*root)(c)))
		}
		return
	}
	c.tree, c.cancel = context.WithCancelCause((*root)(c))
	if c.err != nil {
		c.end()
		return
	}
	c.unhook = context.AfterFunc(c.parent, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.finishLocked(context.Canceled, nil)
	})
}

// root is the parent of the tree. Package context hands the error of a parent on to its children, and the cause that it finds among
// the parent's values; it lets nobody else choose the error. The mutex is held when Err and AfterFunc are called.
type root Context

// never is not closed: AfterFunc tells of the end.
var never = make(chan struct{}) //nolint:gochecknoglobals // nobody writes it

func (r *root) Deadline() (time.Time, bool) { return (*Context)(r).Deadline() }
func (r *root) Done() <-chan struct{}       { return never }
func (r *root) Err() error                  { return r.err }

func (r *root) Value(key any) any {
	if over, ended := r.over.Load().(context.Context); ended {
		if v := over.Value(key); v != nil {
			return v
		}
	}
	return r.parent.Value(key)
}

// AfterFunc keeps the function that ends the tree, of which there is one.
func (r *root) AfterFunc(end func()) func() bool {
	r.end = end
	return func() bool { return false }
}
