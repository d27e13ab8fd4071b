// Users of a fleet: they come whatever happens, wait for so long, and try again.

package sim

import (
	"math/rand/v2"
	"time"

	"github.com/stopbank/stopbank/warden/limiter"
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
}

type request struct {
	at       time.Duration
	priority limiter.Priority
	work     Work
	attempts int
}

type attempt struct {
	*request
	number uint64
	at     *server
	due    time.Duration
	over   bool // nobody waits for it any more
}

// arrivals has users come at random times. What they are and when they come does not depend on what happens.
func (f *fleet) arrivals() {
	rng := rand.New(rand.NewPCG(f.Seed, 1))
	var next func()
	next = func() {
		rate := f.load(f.now()) * f.Capacity
		f.after(seconds(rng.ExpFloat64()/rate), func() {
			if f.now() >= f.Length {
				f.arrived = true
				return
			}
			r := &request{at: f.now(), priority: priority(rng)}
			r.work.CPU = lognormal(rng, f.Work.CPU)
			if f.Work.IO > 0 {
				r.work.IO = lognormal(rng, f.Work.IO)
			}
			f.open++
			f.tokens = min(f.tokens+f.Retry.Budget, 100)
			f.result.offer(r)
			f.try(r)
			next()
		})
	}
	next()
}

// try sends an attempt to a server.
func (f *fleet) try(r *request) {
	r.attempts++
	f.result.try(f.now())
	f.numbers++
	a := &attempt{request: r, number: f.numbers, at: f.choose(), due: f.now() + f.Timeout}
	a.at.outstanding++
	f.after(hop, func() { a.at.receive(a) })
	f.after(f.Timeout, func() {
		if !a.over {
			f.result.timeouts++
			f.leave(a)
			f.again(r)
		}
	})
}

// choose is what the balancer does: of two servers drawn at random, the one with fewer outstanding attempts.
func (f *fleet) choose() *server {
	a, b := f.servers[f.chance.IntN(len(f.servers))], f.servers[f.chance.IntN(len(f.servers))]
	if b.outstanding < a.outstanding {
		return b
	}
	return a
}

// leave ends the waiting for an attempt.
func (f *fleet) leave(a *attempt) {
	a.over = true
	a.at.outstanding--
}

// answered is when the answer of a server has reached whoever may still wait for it.
func (f *fleet) answered(a *attempt, ok bool) {
	if a.over {
		f.result.unheard++
		return
	}
	f.leave(a)
	if !ok {
		f.result.refusals++
		f.again(a.request)
		return
	}
	f.result.answers++
	f.done(a.request, true)
}

// again makes another attempt, if there is one left.
func (f *fleet) again(r *request) {
	if r.attempts == f.Retry.Attempts || !f.afford() {
		f.done(r, false)
		return
	}
	wait := f.Retry.Base << (r.attempts - 1)
	f.after(time.Duration(f.chance.Float64()*float64(wait)), func() { f.try(r) })
}

// afford takes a retry off the budget.
func (f *fleet) afford() bool {
	if f.Retry.Budget == 0 {
		return true
	}
	if f.tokens < 1 {
		return false
	}
	f.tokens--
	return true
}

func (f *fleet) done(r *request, good bool) {
	f.open--
	f.result.done(r, good)
}
