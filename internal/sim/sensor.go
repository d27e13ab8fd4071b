// The sensor: the readings that a monitor would take of the modelled process.

package sim

import (
	"slices"
	"sync"
	"time"

	"github.com/stopbank/stopbank/warden/monitor"
)

// sensor times executions, like warden's facade, and reads the processors.
type sensor struct {
	cpu *cpu

	mu      sync.Mutex // guards all fields below
	last    time.Time
	running int
	work    float64 // seconds of execution since the last sample
	at      time.Time
	times   []time.Duration
}

// account adds up execution time until now. The caller holds mu.
func (s *sensor) account(now time.Time) {
	s.work += float64(s.running) * now.Sub(s.at).Seconds()
	s.at = now
}

func (s *sensor) start() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.account(now)
	s.running++
	return now
}

func (s *sensor) end(start time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.account(now)
	s.running--
	s.times = append(s.times, now.Sub(start))
}

func (s *sensor) sample() monitor.Sample {
	now := time.Now()
	out := monitor.Sample{At: now, Gap: now.Sub(s.last)}
	elapsed := out.Gap.Seconds()

	s.mu.Lock()
	s.account(now)
	slices.Sort(s.times)
	out.Service = monitor.Service{
		P50: at(s.times, 0.5), P90: at(s.times, 0.9), Count: uint64(len(s.times)),
		Throughput: float64(len(s.times)) / elapsed, Concurrency: s.work / elapsed,
	}
	for i, few := 0, min(len(s.times), len(out.Service.Times)); i < few; i++ {
		out.Service.Times[i] = s.times[i*len(s.times)/few]
	}
	s.times, s.work, s.last = s.times[:0], 0, now
	s.mu.Unlock()

	c := s.cpu
	c.mu.Lock()
	defer c.mu.Unlock()
	for r, since := range c.begun {
		c.used += now.Sub(since)
		c.begun[r] = now
	}
	slices.Sort(c.lags)
	out.Lag = monitor.Lag{
		P50: at(c.lags, 0.5), P90: at(c.lags, 0.9), P99: at(c.lags, 0.99), Max: at(c.lags, 1), Count: uint64(len(c.lags)),
	}
	for _, lag := range c.lags {
		out.Lag.Mean += lag / time.Duration(len(c.lags))
	}
	out.Utilization = monitor.Reading{Value: min(c.used.Seconds()/(elapsed*float64(c.cores)), 1), OK: true}
	out.Runnable = monitor.Reading{Value: float64(len(c.queue)) / float64(c.cores), OK: true}
	c.used, c.lags = 0, c.lags[:0]
	return out
}

// at returns a quantile of sorted times; 0 if there are none.
func at(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
