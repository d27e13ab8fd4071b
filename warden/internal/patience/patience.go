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
	Took  time.Duration // by all of them together
	First time.Time     // when the first one began; zero: there was none
	Whole bool          // there is nothing more to wait for
}

// Key is the key of a Served in a context.
type Key struct{}

// Trip is a call that is made for a request. The zero Trip is of none.
type Trip struct {
	Served
	Host string // who is asked

	// Sends and Answers say that the call's own body may be made of the client's, and that the answer to it may be on its way to him.
	Sends, Answers bool

	began        time.Time
	body, answer time.Duration // what the client had been waited for before
}

// Begin begins a call.
func Begin(ctx context.Context, host string) Trip {
	t := Trip{Host: host}
	if t.Served, _ = ctx.Value(Key{}).(Served); t.Served != nil {
		t.Restart()
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

// Restart lets the call begin now: who is asked has shown that all is well so far.
func (t *Trip) Restart() {
	if t.Served != nil {
		t.began = time.Now()
		body, answer := t.Waits(t.began)
		t.body, t.answer = body.Took, answer.Took
	}
}

// Keeps reports whether the client is what took the time of a call that has failed, or of its answer since that began: he was waited for
// most of it, and for a second at least, unless the call's time was up. late: a body may have taken it that is whole by now.
func (t *Trip) Keeps(timedOut, late bool) bool {
	if t.Served == nil {
		return false
	}
	now, least := time.Now(), time.Second
	if timedOut {
		least = 0
	}
	body, answer := t.Waits(now)
	return t.Sends && (late || !body.Whole) && body.most(now, t.began, t.body, least) ||
		t.Answers && answer.most(now, later(t.began, answer.First), t.answer, least)
}

// Kept reports whether the client is what took the time of an answer that began with the first wait, now.
func (w Waits) Kept(now time.Time) bool { return w.most(now, w.First, 0, time.Second) }

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

// hosts says when each has answered last. Who has crashed answers nobody.
type hosts struct {
	mu       sync.Mutex // guards answered
	answered map[string]time.Time
}

// There are so many at most, and names of so many bytes: a client may choose whom a handler asks.
const mostHosts, longestHost = 256, 260

var asked = hosts{answered: map[string]time.Time{}} //nolint:gochecknoglobals // by this process

func (h *hosts) note(host string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, known := h.answered[host]; !known {
		if len(host) > longestHost {
			return
		}
		if len(h.answered) == mostHosts {
			delete(h.answered, h.oldestLocked())
		}
		host = strings.Clone(host) // of a URL
	}
	h.answered[host] = time.Now()
}

func (h *hosts) oldestLocked() (oldest string) {
	var first time.Time
	for host, at := range h.answered {
		if first.IsZero() || at.Before(first) {
			oldest, first = host, at
		}
	}
	return oldest
}

func (h *hosts) since(host string, began time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.answered[host].After(began)
}

// Answered notes that a host has answered somebody.
func Answered(host string) { asked.note(host) }

// Before reports whether the call began before that.
func (t *Trip) Before(at time.Time) bool { return at.After(t.began) }

// OthersAnswered reports whether who is asked has answered somebody since the call began.
func (t *Trip) OthersAnswered() bool { return asked.since(t.Host, t.began) }
