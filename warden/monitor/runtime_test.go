// SPDX-License-Identifier: Apache-2.0

// Samples of this very process: idle, saturated, from many goroutines.

package monitor_test

import (
	"runtime"
	"runtime/metrics"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden/monitor"
)

func mustNew(t testing.TB) *monitor.Sampler {
	t.Helper()
	s, err := monitor.New()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// saturate keeps more goroutines busy than there are processors until the test ends. They have scheduling points, so that
// others get their turn soon.
func saturate(t testing.TB) {
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 4 * runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for !stop.Load() {
				for i := range 10_000 {
					runtime.KeepAlive(i)
				}
				runtime.Gosched()
			}
		})
	}
	t.Cleanup(func() {
		stop.Store(true)
		wg.Wait()
	})
}

// TestRealReadings: a busy process reads busier than the same process idle, in everything that exists here.
func TestRealReadings(t *testing.T) {
	s := mustNew(t)
	r := s.Recorder()
	if first := s.Sample(); first.Gap != 0 {
		t.Errorf("M2: the gap before the first sample is %v", first.Gap)
	}
	<-time.After(50 * time.Millisecond)
	idle := s.Sample()
	if idle.Gap < 50*time.Millisecond {
		t.Errorf("M2: gap %v after 50 ms", idle.Gap)
	}

	saturate(t)
	span := r.Start("")
	s.Sample()
	var queued float64
	side := mustNew(t)
	for began := time.Now(); time.Since(began) < 200*time.Millisecond; runtime.Gosched() {
		queued = max(queued, side.Sample().Runnable.Value)
	}
	took := span.End()
	busy := s.Sample()

	if idle.Utilization.OK != unix || busy.Utilization.OK != unix {
		t.Errorf("M2: utilization exists: %v, %v; here it should: %v", idle.Utilization.OK, busy.Utilization.OK, unix)
	}
	if unix && busy.Utilization.Value <= idle.Utilization.Value {
		t.Errorf("M2: utilization %v busy, %v idle", busy.Utilization.Value, idle.Utilization.Value)
	}
	waited := func(l monitor.Lag) float64 { return float64(l.Count) * float64(l.P90) } // of many: one wait alone is chance
	if waited(busy.Lag) <= waited(idle.Lag) {
		t.Errorf("M2: lag %+v busy, %+v idle", busy.Lag, idle.Lag)
	}
	known := slices.ContainsFunc(metrics.All(), func(d metrics.Description) bool {
		return d.Name == "/sched/goroutines/runnable:goroutines"
	})
	if busy.Runnable.OK != known || known && queued == 0 {
		t.Errorf("M2: runnable %+v, at most %v; this Go knows it: %v", busy.Runnable, queued, known)
	}
	if v := busy.Service; v.Count != 1 || v.Concurrency < 0.5 || v.Concurrency > 1.5 || v.P50 < took*15/16 || v.P50 > took*17/16 {
		t.Errorf("M2: service %+v, of one execution that took %v of %v", v, took, busy.Gap)
	}
}

// unix is whether this system accounts for processor time in a way that is read here.
var unix = !slices.Contains([]string{"windows", "plan9", "js", "wasip1"}, runtime.GOOS)

// TestOneIntervalOneCaller: of callers at the same time, each gets a time of its own.
func TestOneIntervalOneCaller(t *testing.T) {
	const callers, each = 8, 50
	s := mustNew(t)
	first := s.Sample()
	samples := make(chan monitor.Sample, callers*each)
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range each {
				samples <- s.Sample()
			}
		})
	}
	wg.Wait()
	close(samples)
	var last time.Time
	var sum time.Duration
	for sample := range samples {
		sum += sample.Gap
		if sample.At.After(last) {
			last = sample.At
		}
	}
	if all := last.Sub(first.At); sum != all {
		t.Errorf("M3: the gaps add up to %v, in %v", sum, all)
	}
}
