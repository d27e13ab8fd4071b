// Clients of a fleet: which attempts they make, and when. The budgets and the throttle are the real ones; only sending is modelled.

package sim

import (
	"math/rand/v2"
	"time"

	"github.com/failsafe-go/failsafe-go/budget"

	"github.com/stopbank/stopbank/warden/retry"
)

// A Retry is what users do when an attempt was refused or has taken too long.
type Retry struct {
	Name string
	// Attempts is how many they make at most, 1 or more.
	Attempts int
	// Base is the upper end of the random time before the second attempt; it doubles each time. 0: at once.
	Base time.Duration
	// Budget is how many retries per first attempt all users together may make, with 100 saved up at most; 0: any number.
	Budget float64
	// Failsafe is failsafe-go's budget with its defaults, one for all users.
	Failsafe bool
	// Callers is how many processes with a retry.Caller of their own share the users; 0: none. Caller is what those are made of.
	Callers int
	Caller  retry.Config
}

// client is what decides about attempts. The loop calls it, so it needs no lock of its own.
type client interface {
	// begin is before the first attempt; false: it is not made.
	begin(r *request) bool
	// ended is when an attempt is over for its user.
	ended(r *request, ok bool)
	// again is whether to make another attempt, and after what time; asked is what the server asked for.
	again(r *request, asked time.Duration) (time.Duration, bool)
	// start is just before that attempt; false: it is not made after all.
	start(r *request) bool
	// done is when the request is over.
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

// plain makes so many attempts, perhaps out of a budget like Finagle's RetryBudget.
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

// failsafeBudget calls them where failsafe-go's retry policy does.
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

// callers are processes whose calls go through a retry.Caller each, in turn.
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
