// The sensor: the readings that a monitor would take of the modelled process.

package sim

import (
	"slices"
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
func (v *server) sample() monitor.Sample {
	s, now := &v.sensor, v.e.now
	out := monitor.Sample{At: v.e.bubble.start.Add(now), Gap: now - s.last}
	elapsed := out.Gap.Seconds()
	s.account(now)
	slices.Sort(s.times)
	out.Service = monitor.Service{
		P50: quantile(s.times, 0.5), P90: quantile(s.times, 0.9), Count: uint64(len(s.times)),
		Throughput: float64(len(s.times)) / elapsed, Concurrency: s.work.Seconds() / elapsed,
	}
	few := min(len(s.times), len(out.Service.Times))
	for i := range few {
		out.Service.Times[i] = s.times[i*len(s.times)/few]
	}
	s.times, s.work, s.last = s.times[:0], 0, now

	v.account(now)
	slices.Sort(v.lags)
	out.Lag = monitor.Lag{
		P50: quantile(v.lags, 0.5), P90: quantile(v.lags, 0.9), P99: quantile(v.lags, 0.99), Max: quantile(v.lags, 1), Count: uint64(len(v.lags)),
	}
	for _, lag := range v.lags {
		out.Lag.Mean += lag / time.Duration(len(v.lags))
	}
	out.Utilization = monitor.Reading{Value: min(v.spent.Seconds()/(elapsed*float64(v.cores)), 1), OK: true}
	out.Runnable = monitor.Reading{Value: float64(len(v.ready)) / float64(v.cores), OK: true}
	v.e.result.Computed += v.spent
	v.spent, v.lags = 0, v.lags[:0]
	return out
}

// quantile of sorted times; 0 if there are none.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
