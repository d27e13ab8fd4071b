// SPDX-License-Identifier: Apache-2.0

// Clients: whether users try again, and when. Budgets and throttles are the real ones; only sending is modelled.

package sim

import (
	"errors"
	"math"
	"math/rand/v2"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/retry"
)

// Retry is the users' reaction to a rejection or to silence.
type Retry struct {
	Name string
	// Attempts is the highest number of attempts per user; 0: one.
	Attempts int
	// Backoff is the mean time in seconds before the second attempt; it doubles. It varies by half with the user, or with Full, with
	// each attempt, from 0 to its double.
	Backoff float64
	Full    bool
	// Budget is the number of retries per first attempt for all users together, with at most 100 saved; 0: unlimited.
	Budget float64
	// Callers is the number of client processes, each with a retry.Caller with its defaults; 0: none.
	Callers int
}

// client decides about attempts. Only the engine calls it, so it needs no lock.
type client interface {
	// begin is called before the first attempt; false: do not send it.
	begin(u *user) bool
	// ended is called when an attempt has ended for its user.
	ended(u *user, ok bool)
	// again reports whether to retry, and the backoff; err is the server's rejection, if there was one.
	again(u *user, err error) (time.Duration, bool)
	// done is called when the user has an outcome.
	done(u *user)
}

func newClient(e *engine) (client, error) {
	r := e.w.Retry
	p := &plain{Retry: r, chance: e.chance}
	if r.Callers == 0 {
		return p, nil
	}
	all := &callers{plain: p, e: e, calls: map[*user]*retry.Call{}}
	for range r.Callers {
		c, err := retry.New(retry.Config{Rand: e.chance.Float64})
		if err != nil {
			return nil, err
		}
		all.each = append(all.each, c)
	}
	return all, nil
}

// plain makes a fixed number of attempts, optionally within a budget like Finagle's RetryBudget.
type plain struct {
	Retry
	chance *rand.Rand
	tokens float64
}

func (p *plain) begin(*user) bool {
	p.tokens = min(p.tokens+p.Budget, 100)
	return true
}

func (p *plain) ended(*user, bool) {}

func (p *plain) again(u *user, _ error) (time.Duration, bool) {
	if u.attempts >= p.Attempts || p.Budget > 0 && p.tokens < 1 {
		return 0, false
	}
	p.tokens--
	luck := u.luck
	if p.Full {
		luck = 2 * p.chance.Float64()
	}
	return seconds(p.Backoff * luck * math.Ldexp(1, u.attempts-1)), true
}

func (p *plain) done(*user) {}

// callers are client processes with a retry.Caller each, which reads the bubble's clock; users use them in turn.
type callers struct {
	*plain
	e     *engine
	each  []*retry.Caller
	next  int
	calls map[*user]*retry.Call
}

func (c *callers) begin(u *user) bool {
	c.e.bubble.follow(c.e.now)
	c.next = (c.next + 1) % len(c.each)
	call, err := c.each[c.next].Begin(retry.Target{Priority: u.priority})
	c.calls[u] = &call
	return err == nil
}

func (c *callers) ended(u *user, ok bool) {
	c.e.bubble.follow(c.e.now)
	outcome := retry.Rejected
	if ok {
		outcome = retry.Accepted
	}
	c.calls[u].Ended(u.priority, outcome)
}

// again obeys Retry-After as wardenhttp sends it: whole seconds with up to 100 % jitter; none if the deadline cannot be met.
func (c *callers) again(u *user, err error) (time.Duration, bool) {
	var asked time.Duration
	if rejection := (*decision.Rejection)(nil); errors.As(err, &rejection) && rejection.Reason != decision.DeadlineExceeded {
		known := max(1, math.Ceil(rejection.RetryAfter.Seconds()))
		asked = seconds(known + math.Floor(c.chance.Float64()*(known+1)))
	}
	return c.calls[u].Retry(asked, time.Time{})
}

func (c *callers) done(u *user) { delete(c.calls, u) }
