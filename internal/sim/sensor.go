// SPDX-License-Identifier: Apache-2.0

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
	left    uint64        // executions that their client ended, since the last sample
	lost    time.Duration // what those took
	kinds   map[Kind]*kindSensor
}

// kindSensor knows what runs of a kind, and what ended lately.
type kindSensor struct {
	name    string
	running []time.Duration // since when, oldest first
	took    []time.Duration // the last 64
	at      time.Duration   // of the last end
	long    int
}

// of returns what is known of a kind. Kinds that are alike are one.
func (s *sensor) of(k *Kind) *kindSensor {
	if s.kinds == nil {
		s.kinds = map[Kind]*kindSensor{}
	}
	alike := *k
	alike.Of, alike.Tenant = 0, ""
	if s.kinds[alike] == nil {
		s.kinds[alike] = &kindSensor{name: strconv.Itoa(len(s.kinds))}
	}
	return s.kinds[alike]
}

func (k *kindSensor) end(took, now time.Duration) {
	k.took, k.at = append(k.took, took), now
	if len(k.took) > 64 {
		k.took = append(k.took[:0], k.took[1:]...)
	}
}

// long counts what has run for long, by the rule of monitor's Service.Long.
func (s *sensor) long(now time.Duration) (all int) {
	for _, k := range s.kinds {
		before := k.long
		if k.long = 0; len(k.running) == 0 || now-k.running[0] < time.Second {
			continue
		}
		p90 := func(times []time.Duration) time.Duration {
			return quantile(slices.Sorted(slices.Values(times)), 0.9)
		}
		half := len(k.took) / 2
		bar := max(time.Second, 8*p90(k.took))
		for k.long < len(k.running) && now-k.running[k.long] >= bar {
			k.long++
		}
		if float64(p90(k.took[half:])) > 1.5*float64(p90(k.took[:half])) && now-k.at < bar {
			k.long = min(k.long, before)
		}
		all += k.long
	}
	return all
}

// needs returns what each kind takes at least, by the rule of monitor's Service.Needs.
func (s *sensor) needs() map[string]time.Duration {
	out := map[string]time.Duration{}
	for _, k := range s.kinds {
		if len(k.took) == 64 {
			out[k.name] = slices.Min(k.took)
		}
	}
	return out
}

func (s *sensor) account(now time.Duration) {
	s.work += time.Duration(s.running) * (now - s.mark)
	s.mark = now
}

func (s *sensor) start(kind *Kind, now time.Duration) {
	s.account(now)
	s.running++
	k := s.of(kind)
	k.running = append(k.running, now)
}

// end ends an execution, or abandons it.
func (s *sensor) end(kind *Kind, began, now time.Duration, left bool) {
	s.account(now)
	s.running--
	if left {
		s.left++
		s.lost += now - began
	} else {
		s.times = append(s.times, now-began)
	}
	k := s.of(kind)
	i, _ := slices.BinarySearch(k.running, began)
	k.running = slices.Delete(k.running, i, i+1)
	if !left {
		k.end(now-began, now)
	}
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
	out.Service.Running, out.Service.Long, out.Service.Abandoned = m.running, m.long(now), m.left
	out.Service.AbandonedTime = m.lost
	out.Service.Needs = m.needs()
	for i, d := range s.e.deps {
		if d.places > 0 {
			out.Pools = append(out.Pools, monitor.PoolReading{
				Name: strconv.Itoa(i), PoolStats: monitor.PoolStats{InUse: d.taken, Max: d.places,
					Waiting: monitor.Reading{Value: float64(len(d.queue)), OK: true}},
			})
		}
	}
	few := min(len(m.times), len(out.Service.Times))
	for i := range few {
		out.Service.Times[i] = m.times[i*len(m.times)/few]
	}
	m.times, m.left, m.lost, m.work, m.last = m.times[:0], 0, 0, 0, now

	s.account(now)
	slices.Sort(s.lags)
	out.Lag = monitor.Lag{
		P50: quantile(s.lags, 0.5), P90: quantile(s.lags, 0.9), P99: quantile(s.lags, 0.99), Count: uint64(len(s.lags)),
	}
	out.Processors = float64(s.allowed)
	out.Utilization = monitor.Reading{Value: min(s.spent.Seconds()/(elapsed*float64(s.allowed)), 1), OK: true}
	out.Runnable = monitor.Reading{Value: float64(len(s.ready)) / float64(s.allowed), OK: true}
	if s.heap != nil {
		out.Memory = s.heap.sample()
	}
	out.Share = s.share.add(s.spent, s.stolen, out.Gap)
	s.e.result.Computed += s.spent
	s.spent, s.stolen, s.lags = 0, 0, s.lags[:0]
	return out
}

// share is the processor time that a process got, of what it wanted, in the last whole second.
type share struct {
	used, stolen, since time.Duration
	last                monitor.Reading
}

func (s *share) add(used, stolen, elapsed time.Duration) monitor.Reading {
	s.used, s.stolen, s.since = s.used+used, s.stolen+stolen, s.since+elapsed
	if s.since < time.Second {
		return s.last
	}
	wanted := s.used + s.stolen
	if s.last = (monitor.Reading{}); wanted > s.since/100 {
		s.last = monitor.Reading{Value: s.used.Seconds() / wanted.Seconds(), OK: true}
	}
	s.used, s.stolen, s.since = 0, 0, 0
	return s.last
}

// quantile of sorted times; 0 if there are none.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
