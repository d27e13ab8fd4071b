// A server of a fleet: processors, a call of the dependency, and a guard.

package sim

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/control"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
)

// A Guard decides which attempts start on a server. The zero Guard starts all of them.
type Guard struct {
	Name string
	// Warden is the real controller and limiter with their defaults.
	Warden bool
	// Static is a constant concurrency limit with a queue of Queue, first come first served, without deadlines; 0: no limit.
	Static, Queue int
}

func (g Guard) limits() bool { return g.Warden || g.Static > 0 }

// reception is the processor time of an attempt before it reaches the guard, started or rejected.
const reception = 100 * time.Microsecond

type server struct {
	fleet   *fleet
	hop     int
	cpu     *cpu
	sensor  *sensor
	limiter *limiter.Limiter    // nil: none
	control *control.Controller // nil: a constant concurrency limit

	inside      int // attempts received and not yet answered
	outstanding int // attempts whose sender still waits, as the load balancer counts them
	target      int // concurrency limit of the last decision
}

func newServer(f *fleet, i int) (*server, error) {
	s := &server{fleet: f, hop: i / f.Servers, cpu: newCPU(f.Cores)}
	s.sensor = &sensor{cpu: s.cpu, last: f.start, at: f.start}
	cfg := limiter.Config{Rand: rand.New(rand.NewPCG(f.Seed, uint64(100+i))).Float64}
	switch {
	case f.Guard.Warden:
		c, err := control.New(control.Config{Processors: f.Cores})
		if err != nil {
			return nil, err
		}
		s.control = c
		cfg.MaxQueue, cfg.Initial = warden.DefaultQueue, c.Step(monitor.Sample{At: f.start})
		// Servers take their samples at different instants.
		f.every(tick+time.Duration(i)*tick/time.Duration(f.Servers), tick, s.turn)
	case f.Guard.Static > 0:
		cfg.MaxQueue = f.Guard.Queue
		cfg.Initial = decision.ControlDecision{
			Seq: 1, TargetConcurrency: f.Guard.Static, Burst: time.Hour,
			Reasons: []decision.Reason{decision.NewReason("static", "none", 0, decision.Hold)},
		}
	default:
		return s, nil
	}
	s.target = cfg.Initial.TargetConcurrency
	var err error
	s.limiter, err = limiter.New(cfg)
	return s, err
}

// close releases the tasks that still queue.
func (s *server) close() {
	if s.limiter != nil {
		s.limiter.Close()
	}
}

func (s *server) turn() {
	d := s.control.Step(s.sensor.sample())
	s.limiter.Apply(d)
	s.target, s.fleet.stirred = d.TargetConcurrency, true
	all := 0
	for _, s := range s.fleet.servers {
		all += s.target
	}
	s.fleet.result.at(s.fleet.now()).target = all
}

// receive accepts an attempt.
func (s *server) receive(a *attempt) {
	s.inside++
	s.compute(reception, func() { s.admit(a) })
}

func (s *server) admit(a *attempt) {
	switch {
	case s.fleet.down():
		s.answer(a, answer{})
		return
	case s.limiter == nil:
		s.execute(a, limiter.Permit{})
		return
	}
	task := limiter.Task{Priority: limiter.Normal}
	if s.control != nil {
		task = a.told
	}
	s.fleet.acquire(a, func() (limiter.Permit, error) { return s.limiter.Acquire(context.Background(), task) })
}

// settled continues an attempt after the limiter's answer.
func (s *server) settled(a settlement) {
	if a.err != nil {
		s.answer(a.attempt, answer{asked: s.retryAfter(a.err)})
		return
	}
	s.execute(a.attempt, a.permit)
}

// retryAfter is the value that wardenhttp sends: whole seconds with up to 100 % jitter; 0 if the deadline cannot be met.
func (s *server) retryAfter(err error) time.Duration {
	var rejection *limiter.Rejection
	if s.control == nil || !errors.As(err, &rejection) || rejection.Reason == limiter.DeadlineExceeded {
		return 0
	}
	known := max(1, math.Ceil(rejection.RetryAfter.Seconds()))
	return seconds(known + math.Floor(s.fleet.chance.Float64()*(known+1)))
}

// execute runs the work, also if the user has left: servers do not notice that.
func (s *server) execute(a *attempt, permit limiter.Permit) {
	begun := s.sensor.start()
	finish := func(came answer) {
		s.sensor.end(begun)
		permit.Release()
		s.fleet.stirred = true
		s.executed(a)
		s.answer(a, came)
	}
	fine := func() { finish(answer{ok: true}) }
	switch {
	case s.hop < len(s.fleet.Front):
		s.compute(s.fleet.Front[s.hop], func() { s.next(a, finish) })
	case a.work.IO == 0:
		s.compute(a.work.CPU, fine)
	default:
		s.compute(a.work.CPU, func() { s.fleet.call(a.work.IO, func() { s.compute(arrival, fine) }) })
	}
}

// next calls the next hop and passes its answer on.
func (s *server) next(a *attempt, then func(answer)) {
	f := s.fleet
	sub := &attempt{request: a.request, due: f.now() + f.Inner, worth: a.worth, heard: then}
	sub.told = f.task(limiter.Normal, sub.due)
	if f.Propagate {
		sub.due, sub.told = a.due, a.told
	}
	f.send(sub, s.hop+1)
}

// executed counts an execution, and whether it was wasted because the user had left.
func (s *server) executed(a *attempt) {
	count := &s.fleet.result.executed[s.hop]
	if count.all++; s.fleet.now() > a.worth {
		count.wasted++
	}
}

func (s *server) answer(a *attempt, came answer) {
	s.inside--
	s.fleet.result.answered++
	s.fleet.after(hop, func() { s.fleet.hear(a, came) })
}

// compute takes d of processor time, in slices while others are runnable.
func (s *server) compute(d time.Duration, then func()) {
	var me *ready
	var run func()
	run = func() {
		step := min(d, slice)
		s.fleet.after(step, func() {
			if d -= step; d > 0 && s.cpu.alone() {
				run()
				return
			}
			s.cpu.leave(me)
			if d > 0 {
				s.compute(d, then)
				return
			}
			then()
		})
	}
	me = s.cpu.ask(run)
}

func (f *fleet) call(d time.Duration, then func()) {
	if f.Places == 0 {
		f.after(f.dep.takes(d), then)
		return
	}
	f.dep.ask(func() {
		// The dependency's mutex is held here.
		f.after(0, func() {
			f.after(f.dep.takes(d), func() {
				f.dep.leave()
				then()
			})
		})
	})
}
