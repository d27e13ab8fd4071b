// SPDX-License-Identifier: Apache-2.0

// What a warden remembers of itself: how much, in which order, and what is in it.

package warden

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden/control"
	"github.com/stopbank/stopbank/warden/monitor"
)

// samples are given out one after the other; the last one again and again, later each time.
type samples []monitor.Sample

func (s *samples) Sample() monitor.Sample {
	next := (*s)[0]
	if len(*s) > 1 {
		*s = (*s)[1:]
	}
	next.At = time.Now()
	return next
}

func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(parts)
		cfg := p.config()
		cfg.History = 5
		w := mustNew(t, cfg)
		if got := w.History(nil, 0); len(got) != 0 {
			t.Fatalf("before the first turn: %v", got)
		}
		seqs := func(since uint64) (out []uint64) {
			for _, r := range w.History(nil, since) {
				out = append(out, r.Decision.Seq)
			}
			return out
		}
		for turn := range 12 {
			time.Sleep(100 * time.Millisecond)
			use(t, w)
			var want []uint64
			for n := max(1, turn-3); n <= turn+1; n++ {
				want = append(want, uint64(n))
			}
			if got := seqs(0); !slices.Equal(got, want) {
				t.Fatalf("after %d turns: %v, want %v", turn+1, got, want)
			}
		}
		if got := seqs(10); !slices.Equal(got, []uint64{11, 12}) {
			t.Fatalf("since 10: %v", got)
		}
		if got := seqs(12); got != nil {
			t.Fatalf("since the last: %v", got)
		}
		all := w.History(make([]Reading, 1, 2), 0)
		if len(all) != 6 || all[0].Decision.Seq != 0 {
			t.Fatalf("appended to one: %d readings", len(all))
		}
		// The turn comes before the task that drives it, so the last reading does not know that one yet.
		last := all[5]
		if last.Limiter.Executed != 11 || last.Limiter.Target != 10 || last.Pressure.OK || last.Levels != nil {
			t.Fatalf("the last reading is %+v", last)
		}
		if l := w.Latest(); l.Decision.Seq != 12 || l.Limiter != last.Limiter {
			t.Fatalf("Latest is %+v", l)
		}
	})
}

// TestHistoryPressure: our own controller reports its pressure and levels.
func TestHistoryPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := must(control.New(control.Config{Processors: 4}))(t)
		jam := monitor.Sample{
			Utilization: monitor.Reading{Value: 1, OK: true},
			Lag:         monitor.Lag{P50: time.Second, P90: time.Second, Count: 1e6},
		}
		for _, w := range []*Warden{
			mustNew(t, Config{Sampler: &samples{jam}}),
			mustNew(t, Config{Sampler: &samples{jam}, Controller: c}),
		} {
			for range 20 {
				time.Sleep(100 * time.Millisecond)
				use(t, w)
			}
			last := w.Latest()
			if !last.Pressure.OK || last.Pressure.Value < 0.99 || last.Pressure.Value > 1 {
				t.Fatalf("pressure %+v", last.Pressure)
			}
			want := map[string]float64{"utilization": 0.45, "lag_p90_seconds": 1, "lag_p50_seconds": 1}
			if len(last.Levels) != len(want) {
				t.Fatalf("levels %v", last.Levels)
			}
			for signal, level := range last.Levels {
				if level < want[signal]-0.01 || level > want[signal] {
					t.Errorf("the level of %s is %v, want %v", signal, level, want[signal])
				}
			}
		}
	})
}

func TestHistoryBadInput(t *testing.T) {
	for _, n := range []int{-1, longestHistory + 1} {
		if w, err := New(Config{History: n}); w != nil || err == nil || err.(*InvalidError).Field != "Config.History" {
			t.Errorf("History %d: %v", n, err)
		}
	}
}

// stuck hangs in its first sample, until it is let go.
type stuck struct{ entered, release chan struct{} }

func (s stuck) Sample() monitor.Sample {
	close(s.entered)
	<-s.release
	return monitor.Sample{At: time.Now()}
}

// TestLookingDoesNotWait: while a part of the warden hangs, tasks run, and whoever looks is told what there is. If it
// waited, the test would not end.
func TestLookingDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stuck{make(chan struct{}), make(chan struct{})}
		w := mustNew(t, Config{Sampler: s, Controller: new(parts)})
		time.Sleep(100 * time.Millisecond)
		taken := make(chan struct{})
		go func() { defer close(taken); w.SampleIfDue() }()
		<-s.entered
		time.Sleep(time.Minute)
		use(t, w)
		if n, l, h := w.Stats().Samples, w.Latest(), w.History(nil, 0); n != 1 || l.Decision.Seq != 0 || len(h) != 0 {
			t.Errorf("%d samples, the last reading %+v, %d kept; want 1 sample and nothing else", n, l, len(h))
		}
		close(s.release)
		<-taken
		if l := w.Latest(); l.Decision.Seq != 1 {
			t.Errorf("afterwards the last reading is %+v", l)
		}
	})
}

// TestGaugePanics: a controller whose Pressure panics is counted, and what it decided is kept.
func TestGaugePanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := mustNew(t, Config{Sampler: &samples{{}}, Controller: brokenGauge{new(parts)}})
		time.Sleep(100 * time.Millisecond)
		use(t, w)
		if l, h := w.Latest(), w.History(nil, 0); w.Stats().Panics != 1 || l.Decision.Seq != 1 || l.Limiter.Target != 10 ||
			l.Pressure.OK || len(h) != 1 {
			t.Errorf("%d panics, the last reading %+v, %d kept", w.Stats().Panics, l, len(h))
		}
	})
}

type brokenGauge struct{ *parts }

func (brokenGauge) Pressure(monitor.Sample) (float64, map[string]float64) { panic("broken") }
