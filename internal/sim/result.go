// What a run has shown.

package sim

import (
	"math"
	"slices"
	"time"

	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
)

// Result is what came out of one run.
type Result struct {
	Scenario Scenario
	Static   int // the constant target, 0: the controller
	Trace    []Point

	offered, good     map[limiter.Priority]int
	latencies, urgent []time.Duration // of good answers; of critical ones
	perSecond         []int           // good answers by the second of their arrival
	offeredPerSecond  []int
}

// Point is one decision and the sample it followed from.
type Point struct {
	At     time.Duration
	Target int
	Shed   float64
	Reason string

	Utilization, Runnable, Lag   float64
	P50, Concurrency, Throughput float64
}

func (p *Point) sampled(s monitor.Sample) {
	p.Utilization, p.Runnable, p.Lag = s.Utilization.Value, s.Runnable.Value, s.Lag.P90.Seconds()
	p.P50, p.Concurrency, p.Throughput = s.Service.P50.Seconds(), s.Service.Concurrency, s.Service.Throughput
}

func (r *Result) answer(at time.Duration, p limiter.Priority, ran bool, took, deadline time.Duration) {
	if r.offered == nil {
		r.offered, r.good = map[limiter.Priority]int{}, map[limiter.Priority]int{}
		r.perSecond = make([]int, int(r.Scenario.Length/time.Second)+1)
		r.offeredPerSecond = make([]int, len(r.perSecond))
	}
	good := ran && took <= deadline
	r.offeredPerSecond[at/time.Second]++
	if good {
		r.perSecond[at/time.Second]++
	}
	if at < r.Scenario.Warm {
		return
	}
	r.offered[p]++
	if good {
		r.good[p]++
		r.latencies = append(r.latencies, took)
		if p == limiter.Critical {
			r.urgent = append(r.urgent, took)
		}
	}
}

// Goodput is good answers per possible ones: of those offered, no more than capacity.
func (r *Result) Goodput() float64 {
	possible := 0.0
	const step = 10 * time.Millisecond
	for at := r.Scenario.Warm; at < r.Scenario.Length; at += step {
		possible += min(r.Scenario.Load(at), 1) * r.Scenario.Capacity(at) * step.Seconds()
	}
	return float64(sum(r.good)) / possible
}

// Success is good answers per request of that priority.
func (r *Result) Success(p limiter.Priority) float64 {
	return float64(r.good[p]) / max(float64(r.offered[p]), 1)
}

// Overall is good answers per request.
func (r *Result) Overall() float64 { return float64(sum(r.good)) / max(float64(sum(r.offered)), 1) }

// Latency is a quantile of good answers' times.
func (r *Result) Latency(q float64) time.Duration {
	slices.Sort(r.latencies)
	return at(r.latencies, q)
}

// Urgent is a quantile of good critical answers' times.
func (r *Result) Urgent(q float64) time.Duration {
	slices.Sort(r.urgent)
	return at(r.urgent, q)
}

// Target is mean and coefficient of variation of the target after Warm.
func (r *Result) Target() (mean, variation float64) {
	var n, s, s2 float64
	for _, p := range r.Trace {
		if p.At >= r.Scenario.Warm {
			n, s, s2 = n+1, s+float64(p.Target), s2+float64(p.Target)*float64(p.Target)
		}
	}
	if n == 0 {
		return float64(r.Static), 0
	}
	mean = s / n
	return mean, math.Sqrt(max(s2/n-mean*mean, 0)) / mean
}

func sum(m map[limiter.Priority]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}
