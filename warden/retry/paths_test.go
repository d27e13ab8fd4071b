// SPDX-License-Identifier: Apache-2.0

// The throttle pays for overload only (H25), and each dependency for itself (R4, R1), in bounded memory.

package retry_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/retry"
)

// answer is the end of an attempt, as the model remembers it; throttled: the call was not sent.
type answer struct {
	slice     int64
	path      string
	outcome   retry.Outcome
	throttled bool
	forgiven  bool // with the failures
}

// mostFail reports whether, beside one path that fails, most of the others do, of those answered in the last minute.
func mostFail(all []answer, now int64) bool {
	last := map[string]retry.Outcome{}
	for _, a := range all {
		if !a.throttled && a.slice >= now-300 {
			last[a.path] = a.outcome
		}
	}
	for failing, o := range last {
		if o == retry.Accepted {
			continue
		}
		others, fail := 0, 0
		for path, o := range last {
			if path != failing {
				others++
				if o != retry.Accepted {
					fail++
				}
			}
		}
		return others == 0 || 2*fail > others
	}
	return false
}

// probability is that of the SRE book, over the last second, or as much of the last ten as has ten requests. Failures are
// requests while most paths fail, and so are the calls that were throttled for them.
func probability(all []answer, now int64) (of float64, counted bool) {
	counted = mostFail(all, now) && slices.ContainsFunc(all, func(a answer) bool {
		return a.slice >= now-50 && (a.outcome == retry.Failed || a.forgiven)
	})
	requests, accepted := 0.0, 0.0
	for back := int64(0); back <= 50 && (back <= 5 || requests < 10); back++ {
		for _, a := range all {
			if a.slice != now-back || (a.outcome == retry.Failed || a.forgiven) && !counted {
				continue
			}
			requests++
			if a.outcome == retry.Accepted {
				accepted++
			}
		}
	}
	if requests < 10 {
		return 0, counted
	}
	return min(0.8, max(0, (requests-2*accepted)/(requests+1))), counted
}

// A failure throttles nobody unless most other paths fail too, or there are none: beside a list of all answers.
func TestPropertyOnePathsFailuresThrottleNoOther(t *testing.T) {
	throttled, forgiven := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		type step struct {
			pause          time.Duration
			path           string
			calls, outcome int
		}
		script := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
			pauses := []time.Duration{
				0, 0, 10 * time.Millisecond, 300 * time.Millisecond, time.Second, 9 * time.Second, 70 * time.Second,
			}
			return step{
				rapid.SampledFrom(pauses).Draw(rt, "pause"),
				rapid.SampledFrom([]string{"/a", "/b", "/c", "/d"}).Draw(rt, "path"),
				rapid.IntRange(1, 15).Draw(rt, "calls"),
				rapid.SampledFrom([]int{1, 1, 2, 3, 3, 3}).Draw(rt, "outcome"),
			}
		}), 1, 40).Draw(rt, "script")
		drawn := rapid.Float64Range(0, 0.9).Draw(rt, "drawn")
		failure := ""
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			c := mustNew(t, retry.Config{Rand: func() float64 { return drawn }})
			var all []answer
			for i, s := range script {
				time.Sleep(s.pause)
				now := int64(time.Since(began) / (200 * time.Millisecond))
				for range s.calls {
					want, counted := probability(all, now)
					call, err := c.Begin(retry.Target{Dependency: "host", Path: s.path})
					if (err != nil) != (want > 0 && drawn < want) {
						failure = fmt.Sprintf("H25: step %d to %s: %v, but the probability is %.3f", i, s.path, err, want)
						return
					}
					if err != nil {
						throttled++
						all = append(all, answer{now, s.path, retry.Rejected, true, counted})
						continue
					}
					if !counted && slices.ContainsFunc(all, func(a answer) bool { return a.outcome == retry.Failed }) {
						forgiven++
					}
					call.Ended(decision.Normal, retry.Outcome(s.outcome))
					all = append(all, answer{now, s.path, retry.Outcome(s.outcome), false, false})
				}
			}
		})
		if failure != "" {
			rt.Fatal(failure)
		}
	})
	if throttled == 0 || forgiven == 0 {
		t.Errorf("%d calls throttled, %d not for a path's failures: the scripts show too little", throttled, forgiven)
	}
}

// One dependency's rejections and retries are its own.
func TestEachDependencyByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := mustNew(t, retry.Config{Rand: func() float64 { return 0 }})
		for range 100 {
			if call, err := c.Begin(retry.Target{Dependency: "down"}); err == nil {
				call.Retry(0, time.Time{})
				call.Ended(decision.Normal, retry.Rejected)
			}
		}
		_, err := c.Begin(retry.Target{Dependency: "down"})
		if !errors.Is(err, retry.ErrThrottled) {
			t.Errorf("R4: %v", err)
		}
		if want := `retry: throttled: of the last 100 requests of priority normal to "down", 0 were accepted; 80 % are not sent`; err.Error() != want {
			t.Errorf("R4: %q", err)
		}
		call, err := c.Begin(retry.Target{Dependency: "up"})
		if err != nil {
			t.Errorf("R4: %v", err)
		}
		if _, ok := call.Retry(0, time.Time{}); !ok {
			t.Error("R1: its one retry was another dependency's")
		}
	})
}

// Hostile names: 100,000 dependencies, every priority, long names. Those beyond the bound count together; a minute later there is
// room.
func TestDependenciesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := mustNew(t, retry.Config{MinRetries: -1, Rand: func() float64 { return 0 }})
		heap := func() uint64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		before := heap()
		for i := range 100_000 {
			host := strconv.Itoa(i)
			if i%5000 == 0 {
				host += string(make([]byte, 1<<20))
			}
			if call, err := c.Begin(retry.Target{
				Dependency: host, Path: host, Priority: decision.Priority(i % 256),
			}); err == nil {
				call.Ended(decision.Priority(i%256), retry.Accepted)
			}
		}
		if grown := int64(heap()) - int64(before); grown > 8<<20 {
			t.Errorf("H25: %d bytes for 100,000 dependencies", grown)
		}
		begin := func(host string) error {
			call, err := c.Begin(retry.Target{Dependency: host})
			if err == nil {
				call.Ended(decision.Normal, retry.Rejected)
			}
			return err
		}
		for range 20_000 {
			_ = begin("one more")
		}
		if err := begin("yet another"); !errors.Is(err, retry.ErrThrottled) {
			t.Errorf("H25: those beyond the bound do not count together: %v", err)
		}
		time.Sleep(2 * time.Minute)
		for range 30 {
			_ = begin("one more")
		}
		if err := begin("yet another"); err != nil {
			t.Errorf("H25: no room after two minutes: %v", err)
		}
		runtime.KeepAlive(c)
	})
}
