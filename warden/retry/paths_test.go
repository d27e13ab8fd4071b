// SPDX-License-Identifier: Apache-2.0

// The throttle pays for overload only (H25), and each dependency for itself (R4, R1), in bounded memory.

package retry_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
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

// mostFail reports whether, beside one path that fails, most of the others that were answered in the last ten seconds and have worked in
// the last minute do, and most of the accepted answers were theirs, each of which weighs half after ten seconds; or there are none,
// and one fails.
func mostFail(all []answer, now int64) bool {
	type history struct {
		last   answer
		worked int64
		weight float64
	}
	paths := map[string]history{}
	for _, a := range all {
		if a.throttled {
			continue
		}
		h := paths[a.path]
		if h.last = a; a.outcome == retry.Accepted {
			h.worked, h.weight = a.slice, h.weight+math.Exp2(float64(a.slice-now)/50)
		}
		paths[a.path] = h
	}
	one, others, failing, whole, lost := false, -1, -1, 0.0, 0.0 // one fails; others beside one that fails
	for _, h := range paths {
		fails := h.last.outcome != retry.Accepted
		one = one || fails && h.last.slice >= now-300
		if h.weight == 0 || h.worked < now-300 || h.last.slice < now-50 {
			continue
		}
		if others, whole = others+1, whole+h.weight; fails {
			failing, lost = failing+1, lost+h.weight
		}
	}
	if others <= 0 {
		return one && failing == others
	}
	return 2*failing > others && lost/whole > 0.5+1e-9
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

// A stranger chooses which paths are called, 200 of them a second, and whether they fail; others call three paths that work, 100 times
// a second. Names are no votes: only what was accepted before it failed counts.
func TestAStrangersPathsThrottleNobody(t *testing.T) {
	for name, c := range map[string]struct {
		paths int
		fails func(n int) bool
	}{
		"one path": {1, func(int) bool { return true }}, "40 paths": {40, func(int) bool { return true }},
		"1,000 paths":                    {1000, func(int) bool { return true }},
		"40 paths that work at first":    {40, func(n int) bool { return n >= 40 }},
		"40 paths that work every third": {40, func(n int) bool { return n%3 > 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				seed := rand.Uint64()
				random := rand.New(rand.NewPCG(seed, 1))
				c1 := mustNew(t, retry.Config{Rand: random.Float64})
				throttled := 0
				for n := range 6000 { // 20 s
					path, outcome := fmt.Sprintf("/good/%c", 'a'+n%3), retry.Accepted
					if n%3 > 0 {
						if path = fmt.Sprintf("/profile/%d", n/3*2%c.paths+n%3-1); c.fails(n / 3 * 2) {
							outcome = retry.Failed
						}
					}
					call, err := c1.Begin(retry.Target{Dependency: "host", Path: path})
					switch {
					case err == nil:
						call.Ended(decision.Normal, outcome)
					case n%3 == 0:
						throttled++
					}
					time.Sleep(time.Second / 300)
				}
				if throttled > 0 {
					t.Errorf("H25: %d of 2000 calls of others are throttled (seed %d)", throttled, seed)
				}
			})
		})
	}
}

// ends sends one call, and reports whether the throttle let it.
func ends(c *retry.Caller, path string, o retry.Outcome) bool {
	call, err := c.Begin(retry.Target{Dependency: "host", Path: path})
	if err == nil {
		call.Ended(decision.Normal, o)
	}
	return err == nil
}

// A stranger's many names work for six seconds, half as often as what others call, and then fail three times as often: he has no
// majority of what was accepted, however many paths the others have.
func TestNamesThatWorkedAtFirstThrottleNobody(t *testing.T) {
	for _, paths := range []int{1, 10, 100, 3000} {
		synctest.Test(t, func(t *testing.T) {
			seed := rand.Uint64()
			c := mustNew(t, retry.Config{Rand: rand.New(rand.NewPCG(seed, 1)).Float64})
			sent := 0
			for n := range 2600 {
				if n < 600 {
					if n%2 == 0 {
						ends(c, fmt.Sprint("/evil/", n/10%31), retry.Accepted)
					}
				} else {
					for i := range 3 {
						ends(c, fmt.Sprint("/evil/", (3*n+i)%31), retry.Failed)
					}
				}
				if ends(c, fmt.Sprint("/good/", n%paths), retry.Accepted) && n >= 600 {
					sent++
				}
				time.Sleep(10 * time.Millisecond)
			}
			if sent < 2000 {
				t.Errorf("H25: of %d paths, %d of 2000 calls of others are sent (seed %d)", paths, sent, seed)
			}
		})
	}
}

// Names that a stranger has had answered now and then do not keep the throttle from a host that fails wholly.
func TestNamesThatWorkedDisarmNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seed := rand.Uint64()
		c := mustNew(t, retry.Config{Rand: rand.New(rand.NewPCG(seed, 1)).Float64})
		for n := range 3000 { // 30 s
			if ends(c, fmt.Sprint("/good/", n%8), retry.Accepted); n%5 == 0 {
				ends(c, fmt.Sprint("/evil/", n/5%20), retry.Accepted)
			}
			time.Sleep(10 * time.Millisecond)
		}
		sent := 0
		for n := range 2000 {
			if ends(c, fmt.Sprint("/good/", n%8), retry.Failed) && n >= 1000 { // after ten seconds
				sent++
			}
			time.Sleep(10 * time.Millisecond)
		}
		if sent > 300 {
			t.Errorf("H25: %d of 1000 calls are sent to a host that fails wholly (seed %d)", sent, seed)
		}
	})
}

// A path that most call does not throttle the others when it breaks, though it had most of what was accepted.
func TestABrokenPathThrottlesNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := mustNew(t, retry.Config{Rand: func() float64 { return 0 }})
		for n := range 3000 {
			path, outcome := fmt.Sprintf("/other/%d", n%3), retry.Accepted
			if n%10 > 0 {
				if path = "/search"; n > 1000 {
					outcome = retry.Failed
				}
			}
			call, err := c.Begin(retry.Target{Dependency: "host", Path: path})
			if err != nil {
				t.Fatalf("H25: call %d, %s: %v", n, path, err)
			}
			call.Ended(decision.Normal, outcome)
			time.Sleep(10 * time.Millisecond)
		}
	})
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
		for range 60_000 { // more than the others of the class were accepted
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
