// Users of a fleet: they arrive independently of its state, wait until their timeout, and retry.

package sim

import (
	"math/rand/v2"
	"time"

	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/retry"
)

type request struct {
	at       time.Duration
	priority limiter.Priority
	work     Work
	attempts int
	call     retry.Call // nil without a retry.Caller
}

// attempt is one message to a server, from a user or from a server of the hop before.
type attempt struct {
	*request
	number uint64
	at     *server
	told   limiter.Task  // the task that the server sees
	due    time.Duration // the sender's timeout
	worth  time.Duration // the user's timeout
	heard  func(answer)  // called when the attempt ends for its sender
	over   bool          // its sender does not wait any more
}

// answer is the end of an attempt for its sender.
type answer struct {
	ok, silence bool          // neither: rejected
	asked       time.Duration // Retry-After
}

// arrivals generates users at random times, independent of everything that happens in the run.
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
			f.result.offer(r)
			if f.client.begin(r) {
				f.try(r)
			} else {
				f.result.throttle(r.at)
				f.done(r, false)
			}
			next()
		})
	}
	next()
}

// try sends a user's attempt to a server of the first hop.
func (f *fleet) try(r *request) {
	r.attempts++
	f.result.try(f.now())
	due := f.now() + f.Timeout
	f.send(&attempt{request: r, due: due, worth: due, told: f.task(r.priority, due), heard: func(came answer) {
		f.client.ended(r, came.ok)
		switch {
		case came.ok:
			f.result.answers++
			f.done(r, true)
			return
		case came.silence:
			f.result.timeouts++
		default:
			f.result.refusals++
		}
		wait, ok := f.client.again(r, came.asked)
		if !ok {
			f.done(r, false)
			return
		}
		f.after(wait, func() {
			if f.client.start(r) {
				f.try(r)
			} else {
				f.done(r, false)
			}
		})
	}}, 0)
}

func (f *fleet) task(p limiter.Priority, due time.Duration) limiter.Task {
	return limiter.Task{Priority: p, Deadline: f.start.Add(due)}
}

// send sends an attempt to a server of a hop.
func (f *fleet) send(a *attempt, to int) {
	f.numbers++
	f.result.sent++
	a.number, a.at = f.numbers, f.choose(to)
	a.at.outstanding++
	f.after(hop, func() { a.at.receive(a) })
	f.after(max(0, a.due-f.now()), func() { f.hear(a, answer{silence: true}) })
}

// choose is the load balancer: of two random servers of the hop it takes the one with fewer outstanding attempts.
func (f *fleet) choose(to int) *server {
	those := f.servers[to*f.Servers : (to+1)*f.Servers]
	a, b := those[f.chance.IntN(f.Servers)], those[f.chance.IntN(f.Servers)]
	if b.outstanding < a.outstanding {
		return b
	}
	return a
}

// hear delivers an answer or a timeout to the sender of an attempt, unless the attempt is over.
func (f *fleet) hear(a *attempt, came answer) {
	if a.over {
		if !came.silence {
			f.result.unheard++
		}
		return
	}
	a.over = true
	a.at.outstanding--
	a.heard(came)
}

func (f *fleet) done(r *request, good bool) {
	f.open--
	f.client.done(r)
	f.result.done(r, good)
}
