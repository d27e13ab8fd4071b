// SPDX-License-Identifier: Apache-2.0

// The recorder against one that keeps every execution, and under real contention.

package monitor

import (
	"math"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// TestRanges: every duration lies in the range that it is counted in, and ranges are no wider than promised.
func TestRanges(t *testing.T) {
	for i := range ranges {
		low, high := begin(i), begin(i+1)
		if rangeOf(low) != i || rangeOf(high-1) != i {
			t.Fatalf("M1: range %d is %v to %v, and they are counted in %d and %d", i, low, high, rangeOf(low), rangeOf(high-1))
		}
		if width := high - low; width > 1<<fineBits && width > low>>groupBits {
			t.Fatalf("M1: range %d, from %v, is %v wide", i, low, width)
		}
	}
	if rangeOf(math.MaxInt64) != ranges-1 {
		t.Error("M1: the longest is not in the last range")
	}
	if end := begin(ranges); end < 36*time.Minute || end > 37*time.Minute {
		t.Errorf("M1: ranges end at %v", end)
	}
}

// TestPropertyServiceAgainstEveryExecution: count and throughput are exact, concurrency is the area under the curve,
// percentiles lie in the range of the value that they stand for.
func TestPropertyServiceAgainstEveryExecution(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		inBubble(t, rt, func() {
			r := newRecorder()
			type running struct {
				Span
				began  time.Time
				parked time.Time // zero: it works
				held   bool      // it has asked to be parked once
			}
			var spans []running
			parked := func() (n int) {
				for _, s := range spans {
					if !s.parked.IsZero() {
						n++
					}
				}
				return n
			}
			working := 0    // executions that have to ask twice
			var over []Span // have ended
			var took []time.Duration
			var abandoned uint64
			var lost time.Duration // what was abandoned took
			var area float64       // nanoseconds of execution since last
			last := time.Now()
			end := func() (running, bool) {
				if len(spans) == 0 {
					return running{}, false
				}
				i := rapid.IntRange(0, len(spans)-1).Draw(rt, "which")
				s := spans[i]
				spans = slices.Delete(spans, i, i+1)
				over = append(over, s.Span)
				return s, true
			}
			pass := func(d time.Duration) {
				area += float64(len(spans)-parked()) * float64(d)
				time.Sleep(d)
			}
			rt.Repeat(map[string]func(*rapid.T){
				"start":   func(*rapid.T) { spans = append(spans, running{Span: r.Start(""), began: time.Now()}) },
				"moment":  func(t *rapid.T) { pass(time.Duration(rapid.Int64Range(1, 1e5).Draw(t, "ns"))) },
				"while":   func(t *rapid.T) { pass(time.Duration(rapid.Int64Range(1e5, 1e10).Draw(t, "ns"))) },
				"an hour": func(*rapid.T) { pass(time.Hour) },
				"end": func(t *rapid.T) {
					if s, ok := end(); ok {
						d, want := s.End(), time.Since(s.began)
						if !s.parked.IsZero() {
							want = s.parked.Sub(s.began)
						}
						if d != want {
							t.Fatalf("M3: took %v, not %v", d, want)
						}
						took = append(took, d)
					}
				},
				"park": func(t *rapid.T) {
					for i := range 8 * len(spans) {
						s := &spans[i%len(spans)]
						want := working == 0 || s.held || !s.parked.IsZero()
						if s.Park() != want {
							t.Fatalf("M13: Park() = %t, %d more work", !want, working)
						}
						if !want {
							s.held = true
						} else if s.parked.IsZero() {
							s.parked, working = time.Now(), max(0, working-1)
						}
					}
				},
				"worked": func(t *rapid.T) {
					if len(spans) > 0 {
						spans[rapid.IntRange(0, len(spans)-1).Draw(t, "which")].Worked()
						working = 16
					}
				},
				"end again": func(t *rapid.T) {
					for _, s := range over {
						if s.Worked(); s.Park() {
							t.Fatal("M13: parked after its end")
						}
						if d := s.End(); d != 0 {
							t.Fatalf("M3: ended again after %v", d)
						}
						s.Discard()
						s.Abandon()
					}
				},
				"discard": func(*rapid.T) {
					if s, ok := end(); ok {
						s.Discard()
					}
				},
				"abandon": func(*rapid.T) {
					if s, ok := end(); ok {
						s.Abandon()
						abandoned++
						if s.parked.IsZero() {
							s.parked = time.Now()
						}
						lost += s.parked.Sub(s.began)
					}
				},
				"take": func(t *rapid.T) {
					now := time.Now()
					got := r.take(now)
					if now.Equal(last) { // nothing is taken, nothing is lost
						if !reflect.DeepEqual(got, Service{}) {
							t.Fatalf("M3: took %+v without time", got)
						}
						return
					}
					mustBeSound(t, Sample{Service: got})
					elapsed := float64(now.Sub(last))
					if got.Parked != parked() {
						t.Fatalf("M13: %d are parked, want %d", got.Parked, parked())
					}
					if mean := area / elapsed; math.Abs(got.Concurrency-mean) > 1e-9*(1+mean) || got.Running != len(spans) {
						t.Fatalf("M3: concurrency %v, %d run, want %v, %d", got.Concurrency, got.Running, mean, len(spans))
					}
					if got.Abandoned != abandoned || got.AbandonedTime != lost {
						t.Fatalf("M9: %+v, and %d were abandoned after %v", got, abandoned, lost)
					}
					if got.Count != uint64(len(took)) ||
						math.Abs(got.Throughput-float64(len(took))/(elapsed/1e9)) > 1e-6*got.Throughput {
						t.Fatalf("M3: %+v of %d executions in %v", got, len(took), now.Sub(last))
					}
					if slices.Sort(took); len(took) > 0 {
						for q, p := range map[float64]time.Duration{0.5: got.P50, 0.9: got.P90} {
							i := rangeOf(took[int(math.Ceil(q*float64(len(took))-1e-9))-1])
							if p < begin(i) || p > begin(i+1) {
								t.Fatalf("M3: p%v is %v, want %v to %v", 100*q, p, begin(i), begin(i+1))
							}
						}
					}
					took, abandoned, lost, area, last = nil, 0, 0, 0, now
				},
			})
		})
	})
}

// TestConcurrencyIsTheAreaUnderTheCurve: what runs counts until now, and what has ended until its end.
func TestConcurrencyIsTheAreaUnderTheCurve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		r.Start("")
		s := r.Start("")
		time.Sleep(time.Second)
		s.End()
		time.Sleep(time.Second)
		if got := r.take(time.Now()).Concurrency; got != 1.5 {
			t.Errorf("M3: concurrency %v, want 1.5", got)
		}
	})
}

// TestServiceHasNoThreshold: slower by a power of two is slower by that at every scale.
func TestServiceHasNoThreshold(t *testing.T) {
	run := func(took time.Duration) (out Service) {
		synctest.Test(t, func(*testing.T) {
			r := newRecorder()
			for range 10 {
				s := r.Start("")
				time.Sleep(took)
				s.End()
			}
			out = r.take(time.Now())
		})
		return out
	}
	base := run(1 << 14)
	for k := 1; k < 1<<20; k *= 16 {
		got := run(time.Duration(k) << 14)
		near := func(a, b time.Duration) bool { return (a*time.Duration(k) - b).Abs() <= time.Duration(2*k) } // a was rounded
		if !near(base.P50, got.P50) || !near(base.P90, got.P90) || got.Count != 10 ||
			got.Concurrency != 1 || math.Abs(got.Throughput*float64(k)-base.Throughput) > 1e-6*base.Throughput {
			t.Errorf("M1: %d times slower: %+v, from %+v", k, got, base)
		}
	}
}

// TestNoExecutionIsLost: many goroutines record while another takes.
func TestNoExecutionIsLost(t *testing.T) {
	const writers, each = 8, 5000
	s := must(New())(t)
	r := s.Recorder()
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				switch sp := r.Start(""); {
				case i%10 == 9:
					sp.Discard()
				case w%2 == 0: // ended by another goroutine
					done := make(chan struct{})
					go func() { defer close(done); sp.End() }()
					<-done
				default:
					sp.End()
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { defer close(done); wg.Wait() }()
	var count uint64
	take := func() Service {
		out := s.Sample()
		mustBeSound(t, out)
		count += out.Service.Count
		return out.Service
	}
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
		default:
			take()
		}
	}
	take()
	if want := uint64(writers * each * 9 / 10); count != want {
		t.Errorf("M3: %d of %d executions were counted", count, want)
	}
	if out := take(); out.Concurrency != 0 {
		t.Errorf("M3: nothing runs: %+v", out)
	}
}

// inBubble runs fn in a bubble and fails or panics, if fn does, outside of it, where rapid waits for it. Rapid tells failures by
// their line: a check that failed must not look like draws that ran out while rapid tries a shorter case.
func inBubble(t *testing.T, rt *rapid.T, fn func()) {
	var failed any
	synctest.Test(t, func(*testing.T) {
		defer func() { failed = recover() }()
		fn()
	})
	if rt.Failed() {
		rt.FailNow()
	}
	if failed != nil {
		panic(failed)
	}
}

func TestNotFed(t *testing.T) {
	s := must(New())(t)
	if got := s.Sample().Service; !reflect.DeepEqual(got, Service{}) {
		t.Errorf("M2: service %+v without executions", got)
	}
	for _, r := range []*Recorder{nil, {}} {
		sp := r.Start("")
		sp.Discard()
		if took := sp.End(); took != 0 {
			t.Errorf("M2: a recorder that is none measured %v", took)
		}
	}
}

// must is for what cannot fail here: x := must(f())(t).
func must[T any](v T, err error) func(fataler) T {
	return func(t fataler) T {
		t.Helper()
		noError(t, err)
		return v
	}
}

func noError(t fataler, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type fataler interface {
	Helper()
	Fatal(args ...any)
}
