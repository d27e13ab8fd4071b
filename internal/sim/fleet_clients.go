// Clients of a fleet: which attempts they make, and when. Retry budgets and throttles are the real ones; only sending is modelled.

package sim

import (
	"math/rand/v2"
	"time"

	"github.com/failsafe-go/failsafe-go/budget"

	"github.com/stopbank/stopbank/warden/retry"
)

// A Retry is the users' reaction to a rejection or a timeout.
type Retry struct {
	Name string
	// Attempts is the highest number of attempts per request, at least 1.
	Attempts int
	// Base is the upper bound of the random backoff before the second attempt; it doubles each time. 0: no backoff.
	Base time.Duration
	// Budget is the number of retries per first attempt for all users together, with at most 100 saved; 0: unlimited.
	Budget float64
	// Failsafe uses failsafe-go's budget with its defaults, one for all users.
	Failsafe bool
	// Callers is the number of client processes, each with a retry.Caller configured by Caller; 0: none.
	Callers int
	Caller  retry.Config
}

// client decides about attempts. Only the loop calls it, so it needs no lock.
type client interface {
	// begin is called before the first attempt; false: do not send it.
	begin(r *request) bool
	// ended is called when an attempt has ended for its user.
	ended(r *request, ok bool)
	// again reports whether to retry, and the backoff; asked is the server's Retry-After.
	again(r *request, asked time.Duration) (time.Duration, bool)
	// start is called right before a retry; false: do not send it.
	start(r *request) bool
	// done is called when the request has an outcome.
	done(r *request)
}

func newClient(sc Fleet, chance *rand.Rand) (client, error) {
	p := &plain{Retry: sc.Retry, chance: chance}
	switch {
	case sc.Retry.Failsafe:
		return &failsafeBudget{p, budget.New().(permits)}, nil
	case sc.Retry.Callers > 0:
		cfg := sc.Retry.Caller
		cfg.Rand = chance.Float64
		all := &callers{}
		for range sc.Retry.Callers {
			c, err := retry.New(cfg)
			if err != nil {
				return nil, err
			}
			all.each = append(all.each, c)
		}
		return all, nil
	}
	return p, nil
}

// plain makes a fixed number of attempts, optionally within a budget like Finagle's RetryBudget.
type plain struct {
	Retry
	chance *rand.Rand
	tokens float64
}

func (p *plain) begin(*request) bool {
	p.tokens = min(p.tokens+p.Budget, 100)
	return true
}

func (p *plain) ended(*request, bool) {}

func (p *plain) again(r *request, _ time.Duration) (time.Duration, bool) {
	if r.attempts == p.Attempts || p.Budget > 0 && p.tokens < 1 {
		return 0, false
	}
	p.tokens--
	return time.Duration(p.chance.Float64() * float64(p.Base<<(r.attempts-1))), true
}

func (p *plain) start(*request) bool { return true }
func (p *plain) done(*request)       {}

// permits are the methods of failsafe-go's budget that its retry policy calls.
type permits interface {
	RecordExecution()
	ReleaseExecution()
	TryAcquirePermit() bool
	ReleasePermit()
}

// failsafeBudget calls the budget where failsafe-go's retry policy does.
type failsafeBudget struct {
	*plain
	permits
}

func (b *failsafeBudget) begin(*request) bool {
	b.RecordExecution()
	return true
}

func (b *failsafeBudget) ended(r *request, _ bool) {
	if r.attempts > 1 {
		b.ReleasePermit()
	}
}

func (b *failsafeBudget) start(*request) bool { return b.TryAcquirePermit() }
func (b *failsafeBudget) done(*request)       { b.ReleaseExecution() }

// callers are client processes with a retry.Caller each; requests use them in turn.
type callers struct {
	each []*retry.Caller
	next int
}

func (c *callers) begin(r *request) bool {
	c.next = (c.next + 1) % len(c.each)
	var err error
	r.call, err = c.each[c.next].Begin(r.priority)
	return err == nil
}

func (c *callers) ended(r *request, ok bool) {
	outcome := retry.Rejected
	if ok {
		outcome = retry.Accepted
	}
	r.call.Ended(r.priority, outcome)
}

func (c *callers) again(r *request, asked time.Duration) (time.Duration, bool) {
	return r.call.Retry(asked, time.Time{})
}

func (c *callers) start(*request) bool { return true }
func (c *callers) done(*request)       {}
