// A world: one scenario under one controller or constant concurrency limit.

package sim

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/stopbank/stopbank/warden/control"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
)

// A Scenario is a service and the events that disturb it.
type Scenario struct {
	Name  string
	Cores int
	// Servers is the number of calls that the dependency serves at a time; 0: unlimited.
	Servers int
	// Work draws the work of a request that arrives at a time since the start.
	Work func(at time.Duration, r *rand.Rand) Work
	// Capacity is the requests per second that the service can serve at that time; loads are relative to it.
	Capacity func(at time.Duration) float64
	// Load is the offered load at that time, relative to Capacity.
	Load func(at time.Duration) float64
	// Events change the world at their time.
	Events []Event
	// Blind reports whether no sample is taken at that time; nil: never.
	Blind func(at time.Duration) bool
	// Length is the length of the run, of which Warm is not counted.
	Warm, Length time.Duration
	// Steady reports that load and service do not change after Warm, so the concurrency limit should not either.
	Steady bool
	// Static are the constant concurrency limits among which the oracle is the best.
	Static []int
	// Deadline of each request; 0: 250 ms.
	Deadline time.Duration
}

// Work is the work of one request.
type Work struct{ CPU, IO time.Duration }

// Event changes the world at a time.
type Event struct {
	At time.Duration
	Do func(w *World)
}

// World is a running scenario.
type World struct {
	cpu     *cpu
	dep     *dependency
	sensor  *sensor
	limiter *limiter.Limiter
	control *control.Controller // nil: a constant concurrency limit
	result  *Result
	start   time.Time
	mu      sync.Mutex // guards result
}

// arrival is the processor time of a request before it asks the limiter.
const arrival = 20 * time.Microsecond

// tick is the sampling interval.
const tick = 100 * time.Millisecond

// Run runs a scenario under the controller, or with a constant concurrency limit if static is not 0. Call it in a synctest bubble.
func Run(sc Scenario, static int) (*Result, error) {
	initial := decision.ControlDecision{
		Seq: 1, TargetConcurrency: static, Yields: 4,
		Reasons: []decision.Reason{decision.NewReason("static", "none", 0, decision.Hold)},
	}
	w := &World{cpu: newCPU(sc.Cores), dep: &dependency{servers: sc.Servers}, start: time.Now()}
	w.sensor = &sensor{cpu: w.cpu, last: w.start, at: w.start}
	w.result = &Result{Scenario: sc, Static: static}
	if static == 0 {
		// The controller's defaults for this number of processors.
		c, err := control.New(control.Config{Processors: sc.Cores})
		if err != nil {
			return nil, err
		}
		w.control = c
		initial = c.Step(monitor.Sample{At: w.start})
	} else if sc.Steady {
		initial.Expected = time.Duration(full(sc) * float64(time.Second))
	}
	rng := rand.New(rand.NewPCG(7, 11))
	l, err := limiter.New(limiter.Config{MaxQueue: max(1024, 64*sc.Cores), Initial: initial})
	if err != nil {
		return nil, err
	}
	w.limiter = l
	w.note(initial, 0)

	done := make(chan struct{})
	var background sync.WaitGroup
	background.Go(func() { w.drive(sc, initial, done) })
	for _, e := range sc.Events {
		background.Go(func() {
			select {
			case <-time.After(e.At):
				e.Do(w)
			case <-done:
			}
		})
	}
	var requests sync.WaitGroup
	for at := time.Duration(0); ; {
		rate := sc.Load(at) * sc.Capacity(at)
		at += time.Duration(rng.ExpFloat64() / rate * float64(time.Second))
		if at >= sc.Length {
			break
		}
		time.Sleep(time.Until(w.start.Add(at)))
		p, work := priority(rng), sc.Work(at, rng)
		requests.Go(func() { w.request(sc, at, p, work) })
	}
	requests.Wait()
	close(done)
	background.Wait()
	l.Close()
	return w.result, nil
}

// full is the mean execution time in seconds, which the oracle knows.
func full(sc Scenario) float64 {
	work := average(sc.Work)
	return (work.CPU + work.IO).Seconds()
}

// drive takes samples and applies decisions.
func (w *World) drive(sc Scenario, rules decision.ControlDecision, done <-chan struct{}) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return
		case <-ticker.C:
		}
		at := time.Since(w.start)
		if sc.Blind != nil && sc.Blind(at) {
			continue
		}
		s := w.sensor.sample()
		if w.control != nil {
			d := w.control.Step(s)
			w.limiter.Apply(d)
			rules = d
		}
		w.note(rules, at)
		w.mu.Lock()
		w.result.Trace[len(w.result.Trace)-1].sampled(s)
		w.mu.Unlock()
	}
}

func priority(r *rand.Rand) limiter.Priority {
	switch x := r.Float64(); {
	case x < 0.2:
		return limiter.Critical
	case x < 0.7:
		return limiter.Normal
	}
	return limiter.Background
}

// request is one request from arrival to answer.
func (w *World) request(sc Scenario, at time.Duration, p limiter.Priority, work Work) {
	deadline := sc.Deadline
	if deadline == 0 {
		deadline = 250 * time.Millisecond
	}
	due := w.start.Add(at + deadline)
	w.cpu.run(arrival)
	permit, err := w.limiter.Acquire(context.Background(), limiter.Task{Priority: p, Deadline: due})
	if err == nil {
		begun := w.sensor.start()
		w.cpu.run(work.CPU)
		if work.IO > 0 {
			w.dep.call(work.IO)
			w.cpu.run(arrival)
		}
		w.sensor.end(begun)
		permit.Release()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.result.answer(at, p, err == nil, time.Since(w.start)-at, deadline)
}

// note records a decision.
func (w *World) note(d decision.ControlDecision, at time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.result.Trace = append(w.result.Trace, Point{At: at, Target: d.TargetConcurrency, Shed: d.ShedProbability, Reason: d.Reasons[0].String()})
	if len(d.Reasons) > 1 {
		w.result.Trace[len(w.result.Trace)-1].Reason += "; " + d.Reasons[1].String()
	}
}

// constant returns a constant function of time.
func constant(x float64) func(time.Duration) float64 { return func(time.Duration) float64 { return x } }

// lognormal draws a duration with this median and a deviation of 20 %.
func lognormal(r *rand.Rand, median time.Duration) time.Duration {
	return time.Duration(float64(median) * math.Exp(0.2*r.NormFloat64()))
}
