// SPDX-License-Identifier: Apache-2.0

// Package patience tells whether a call failed because somebody lost patience for the client of the request that it was made for. Who is
// asked waits as long as that client takes to send a body or to read an answer. HTTP, gRPC and the compartments share it.
package patience

import (
	"context"
	"strings"
	"sync"
	"time"
)

// Served is a request that is served. A context has the innermost one under [Key].
type Served interface {
	// Waits returns those for the client by now.
	Waits(now time.Time) (body, answer Waits)
	// Fault says that a call failed for what the client has made wrong, as this status of HTTP says; 0: a later one failed for another
	// reason, which nothing excuses.
	Fault(status int)
}

// Waits are those for the body of a request, or for its answer to be read.
type Waits struct {
	Took   time.Duration // by all of them together
	First  time.Time     // when the first one began; zero: there was none
	Lately bool          // they took most of the last second, or more
	Whole  bool          // there is nothing more to wait for
}

// Recent knows what was waited for in the last second or two. Its times are by a clock of its owner's that began at 0.
type Recent struct{ at, took, before, tookBefore time.Duration }

// Note says at the beginning of a wait how long the earlier ones took.
func (r *Recent) Note(now, took time.Duration) {
	if now-r.at >= time.Second {
		r.before, r.tookBefore, r.at, r.took = r.at, r.took, now, took
	}
}

// Most reports whether the waits took most of the last second, or more.
func (r *Recent) Most(now, took time.Duration) bool {
	from, had := r.at, r.took
	if now-from < time.Second {
		from, had = r.before, r.tookBefore
	}
	return now-from >= time.Second && 2*(took-had) >= now-from
}

// Clock measures waits of which one goes on at a time. It is safe for concurrent use.
type Clock struct {
	mu     sync.Mutex // guards all below
	total  Waits
	lately Recent
	since  time.Time // when the one began that goes on; zero: none does
}

// Begin begins a wait.
func (c *Clock) Begin(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.total.First.IsZero() {
		c.total.First = now
	}
	c.lately.Note(now.Sub(c.total.First), c.total.Took)
	c.since = now
}

// End ends it. over: it was the last one.
func (c *Clock) End(now time.Time, over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total.Took += now.Sub(c.since)
	c.total.Whole = c.total.Whole || over
	c.since = time.Time{}
}

// By returns the waits by now.
func (c *Clock) By(now time.Time) Waits {
	c.mu.Lock()
	defer c.mu.Unlock()
	total := c.total
	if !c.since.IsZero() {
		total.Took += now.Sub(c.since)
	}
	total.Lately = !total.First.IsZero() && c.lately.Most(now.Sub(total.First), total.Took)
	return total
}

// Key is the key of a Served in a context.
type Key struct{}

// Trip is a call that is made for a request. The zero Trip is of none.
type Trip struct {
	Served
	Host string // who is asked

	// Sends and Answers say that the call's own body may be made of the client's, and that the answer to it may be on its way to him.
	Sends, Answers bool
	Since          Record // of who is asked, when the call began

	began        time.Time
	body, answer time.Duration // what the client had been waited for before
	sent         *Waits        // for the body, when all of it was sent; nil: it is not
}

// Begin begins a call.
func Begin(ctx context.Context, host string) Trip {
	t := Trip{Host: host}
	if t.Served, _ = ctx.Value(Key{}).(Served); t.Served != nil {
		t.began = time.Now()
		body, answer := t.Waits(t.began)
		t.body, t.answer = body.Took, answer.Took
		t.Renew()
	}
	return t
}

// OfServed is Begin for a call of which nobody knows whom it asks and what; nil: it is for no request.
func OfServed(ctx context.Context) *Trip {
	if ctx.Value(Key{}) == nil {
		return nil
	}
	t := Begin(ctx, "")
	t.Sends, t.Answers = true, true
	return &t
}

// Sent says that all of the call's body was sent: from now on nobody waits for it.
func (t *Trip) Sent() {
	if t.Served != nil && t.sent == nil {
		body, _ := t.Waits(time.Now())
		body.Whole, body.Lately = true, false
		t.sent = &body
	}
}

// Keeps reports whether the client is what took the time of a call that has failed, or of its answer since that began: he was waited for in
// most of the last second before, or in most of all, and for a second at least unless the call's time was up. late: a body may have taken it
// that is whole by now.
func (t *Trip) Keeps(timedOut, late bool) bool {
	if t.Served == nil {
		return false
	}
	now, least := time.Now(), time.Second
	lasted := now.Sub(t.began) >= least
	if timedOut {
		least = 0
	}
	body, answer := t.Waits(now)
	if t.sent != nil {
		body = *t.sent
	}
	return t.Sends && (late || !body.Whole) && (lasted && !body.Whole && body.Lately || body.most(now, t.began, t.body, least)) ||
		t.Answers && (lasted && answer.Lately || answer.most(now, later(t.began, answer.First), t.answer, least))
}

// Kept reports whether the client is what took the time of an answer that began with the first wait, now.
func (w Waits) Kept(now time.Time) bool { return w.Lately || w.most(now, w.First, 0, time.Second) }

func (w Waits) most(now, since time.Time, before, least time.Duration) bool {
	took := w.Took - before
	return took > 0 && took >= least && 2*took >= now.Sub(since)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Record is how often somebody has answered, and how often a client was the excuse that he did not. Whoever answers others is neither dead nor
// hung, and each answer excuses once.
type Record struct{ answers, excuses uint64 }

// Answered notes an answer.
func (r *Record) Answered() { r.answers++ }

// Excuse reports whether there were more answers than excuses since then, and notes one.
func (r *Record) Excuse(since Record) bool {
	if r.answers <= since.answers || r.answers-since.answers <= r.excuses-since.excuses {
		return false
	}
	r.excuses++
	return true
}

// hosts are the records of those who are asked.
type hosts struct {
	mu  sync.Mutex // guards all below
	of  map[string]*host
	now uint64
}

type host struct {
	Record
	last uint64 // when it answered last
}

// There are so many at most, and names of so many bytes: a client may choose whom a handler asks.
const mostHosts, longestHost = 256, 260

var asked = hosts{of: map[string]*host{}} //nolint:gochecknoglobals // by this process

func (h *hosts) answered(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	of := h.of[name]
	if of == nil {
		if len(name) > longestHost {
			return
		}
		if len(h.of) == mostHosts {
			delete(h.of, h.oldestLocked())
		}
		of = new(host)
		h.of[strings.Clone(name)] = of // of a URL
	}
	h.now++
	of.last = h.now
	of.Answered()
}

func (h *hosts) oldestLocked() (oldest string) {
	first := h.now + 1
	for name, of := range h.of {
		if of.last < first {
			oldest, first = name, of.last
		}
	}
	return oldest
}

func (h *hosts) record(name string) (r Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if of := h.of[name]; of != nil {
		r = of.Record
	}
	return r
}

func (h *hosts) excuse(name string, since Record) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	of := h.of[name]
	return of != nil && of.Excuse(since)
}

// Answered notes that a host has answered somebody well: what a client may call forth otherwise, such as by leaving, says nothing.
func Answered(host string) { asked.answered(host) }

// Renew forgets what others were answered: who is asked has answered this call itself.
func (t *Trip) Renew() {
	if t.Served != nil {
		t.Since = asked.record(t.Host)
	}
}

// Excuse reports whether who is asked has answered somebody else since the call began, or was renewed, whose answer has excused nobody yet.
func (t *Trip) Excuse() bool { return asked.excuse(t.Host, t.Since) }
