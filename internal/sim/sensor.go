// The sensor: the readings that a monitor would take of the modelled process.

package sim

import (
	"slices"
	"strconv"
	"time"

	"github.com/stopbank/stopbank/warden/monitor"
)

// sensor times executions, like warden's facade.
type sensor struct {
	running int
	work    time.Duration // execution time since the last sample
	mark    time.Duration // work is counted until then
	last    time.Duration // time of the last sample
	times   []time.Duration
}

func (s *sensor) account(now time.Duration) {
	s.work += time.Duration(s.running) * (now - s.mark)
	s.mark = now
}

func (s *sensor) start(now time.Duration) {
	s.account(now)
	s.running++
}

func (s *sensor) end(began, now time.Duration) {
	s.account(now)
	s.running--
	s.times = append(s.times, now-began)
}

// sample returns the readings since the last sample.
func (s *server) sample() monitor.Sample {
	m, now := &s.sensor, s.e.now
	out := monitor.Sample{At: s.e.bubble.start.Add(now), Gap: now - m.last}
	elapsed := out.Gap.Seconds()
	m.account(now)
	slices.Sort(m.times)
	out.Service = monitor.Service{
		P50: quantile(m.times, 0.5), P90: quantile(m.times, 0.9), Count: uint64(len(m.times)),
		Throughput: float64(len(m.times)) / elapsed, Concurrency: m.work.Seconds() / elapsed,
	}
	out.Service.Running = m.running
	for i, d := range s.e.deps {
		if d.places > 0 {
			out.Pools = append(out.Pools, monitor.PoolReading{
				Name: strconv.Itoa(i), PoolStats: monitor.PoolStats{InUse: d.taken, Max: d.places, Waiting: monitor.Reading{Value: float64(len(d.queue)), OK: true}},
			})
		}
	}
	few := min(len(m.times), len(out.Service.Times))
	for i := range few {
		out.Service.Times[i] = m.times[i*len(m.times)/few]
	}
	m.times, m.work, m.last = m.times[:0], 0, now

	s.account(now)
	slices.Sort(s.lags)
	out.Lag = monitor.Lag{
		P50: quantile(s.lags, 0.5), P90: quantile(s.lags, 0.9), P99: quantile(s.lags, 0.99), Max: quantile(s.lags, 1), Count: uint64(len(s.lags)),
	}
	for _, lag := range s.lags {
		out.Lag.Mean += lag / time.Duration(len(s.lags))
	}
	out.Utilization = monitor.Reading{Value: min(s.spent.Seconds()/(elapsed*float64(s.allowed)), 1), OK: true}
	out.Runnable = monitor.Reading{Value: float64(len(s.ready)) / float64(s.allowed), OK: true}
	s.e.result.Computed += s.spent
	s.spent, s.lags = 0, s.lags[:0]
	return out
}

// quantile of sorted times; 0 if there are none.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
