// SPDX-License-Identifier: Apache-2.0

// Memory: tasks of any size beside anything else that a heap holds (C19).

package control_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden/control"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/monitor"
)

// A heap is a process whose tasks hold memory while they run, under the rules of Go's collector.
type heap struct {
	clock
	random *rand.Rand
	limit  float64 // bytes
	soft   bool    // the limit is GOMEMLIMIT
	gogc   float64 // as a share; infinite: off

	base, grows float64 // bytes beside tasks, and more of them a second
	each        float64 // bytes that a task holds
	churn       float64 // bytes that are allocated a second, and held by nobody
	took        float64 // seconds for which a task runs

	running, live, used float64
}

// sample lets a tick pass in which so many are to run, as far as the limit allows.
func (h *heap) sample(offered float64, target int) monitor.Sample {
	dt := tick.Seconds()
	if h.used == 0 { // the process has begun: with GOGC, there were collections then
		if h.used = h.base; !math.IsInf(h.gogc, 1) {
			h.live = h.base
		}
	}
	h.base += h.grows * dt
	ended := 0.0
	for range int(h.running) {
		if h.random.Float64() < dt/h.took {
			ended++
		}
	}
	before := h.running
	h.running -= ended
	started := max(0, min(offered, float64(target))-h.running)
	h.running += started
	s := quiet()
	s.Memory.Allocated = uint64(h.grows*dt + started*h.each + h.churn*dt)
	h.used += float64(s.Memory.Allocated)
	for range 20 {
		if h.used < h.goal() {
			break
		}
		h.live = h.base + h.running*h.each
		h.used = h.live
		s.Memory.Collections++
	}
	s.Memory.Live, s.Memory.Limit, s.Memory.Soft = uint64(h.live), uint64(h.limit), h.soft
	if !math.IsInf(h.gogc, 1) {
		s.Memory.Growth = h.gogc
	}
	s.Service = executed(time.Duration(h.took*float64(time.Second)), int(ended), (before+h.running)/2)
	s.Service.Running = int(h.running)
	return h.next(s)
}

// goal is the size at which the next collection ends.
func (h *heap) goal() float64 {
	goal := math.Inf(1)
	if !math.IsInf(h.gogc, 1) {
		goal = max(4e6, h.live*(1+h.gogc))
	}
	if h.soft {
		goal = min(goal, max(h.limit, 1.1*h.live))
	}
	return goal
}

// usable is how much live data there may be.
func (h *heap) usable() float64 {
	if h.soft {
		return h.limit
	}
	return 0.75 * h.limit / (1 + h.gogc)
}

// fits is how many tasks leave the collector the room that it needs.
func (h *heap) fits() float64 { return (0.72*h.usable() - h.base) / h.each }

func lowersForMemory(d decision.ControlDecision) bool {
	return strings.Contains(fmt.Sprint(d.Reasons), "memory: ")
}

func someHeap(t *rapid.T) *heap {
	h := &heap{
		random: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1)),
		limit:  math.Exp(rapid.Float64Range(math.Log(64e6), math.Log(64e9)).Draw(t, "limit")),
		soft:   rapid.Bool().Draw(t, "soft"), gogc: 1,
		took: rapid.Float64Range(0.2, 5).Draw(t, "took"),
	}
	h.churn = h.limit * rapid.SampledFrom([]float64{0, 0.01, 0.1, 1}).Draw(t, "churn")
	if h.soft && rapid.Bool().Draw(t, "GOGC=off") {
		h.gogc = math.Inf(1)
	}
	return h
}

// C19: whatever is offered, tasks that hold much are held to what fits, and not to less.
func TestPropertyMemoryFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := someHeap(t)
		h.base = h.usable() * rapid.Float64Range(0, 0.15).Draw(t, "beside")
		h.each = h.usable() * rapid.Float64Range(0.003, 0.06).Draw(t, "each")
		fits := h.fits()
		c := mustNew(t, control.Config{Processors: 1, Initial: int(2*fits) + 16})
		d := begin(c)
		for range 30 { // some are served before there are too many
			d = c.Step(h.sample(float64(h.random.IntN(int(fits/2)+2)), d.TargetConcurrency))
		}
		load := rapid.Float64Range(1.5, 10).Draw(t, "load")
		for i := range 600 {
			rising := min(1, float64(i+1)/50)
			d = c.Step(h.sample(math.Ceil(load*fits*rising), d.TargetConcurrency))
		}
		if last := float64(d.TargetConcurrency); last > 1.25*fits+1 || last < 0.75*fits-1 {
			t.Fatalf("C19: the limit is %v where %.1f fit: %v; %+v", last, fits, d.Reasons, *h)
		}
	})
}

// C19: a task that holds nothing does not pay for what the rest of the process holds, however much that is.
func TestPropertyMemoryThatIsNotTheTasks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := someHeap(t)
		h.gogc = 1 // without it, collections are too rare to tell both apart
		h.each = rapid.Float64Range(0, 20e3).Draw(t, "each")
		h.grows = h.usable() * 0.6 / rapid.Float64Range(20, 120).Draw(t, "seconds")
		mean := rapid.Float64Range(1, 12).Draw(t, "running")
		c := mustNew(t, control.Config{Processors: 1})
		d := begin(c)
		for range 1800 {
			if h.base >= 0.6*h.usable() {
				h.grows = 0
			}
			d = c.Step(h.sample(math.Round(mean*2*h.random.Float64()), d.TargetConcurrency))
			if lowersForMemory(d) {
				t.Fatalf("C19: %v, with %+v", d.Reasons, *h)
			}
		}
	})
}

// C19: where clearly less than half of the memory suffices, or none is limited, or none would start a collection, no task is held back.
func TestPropertyMemoryThatSuffices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := someHeap(t)
		most := 40.0
		h.base = h.usable() * rapid.Float64Range(0, 0.3).Draw(t, "beside")
		h.each = (0.4*h.usable() - h.base) / most * rapid.Float64Range(0, 1).Draw(t, "each")
		why := rapid.SampledFrom([]string{"half suffices", "no limit", "GOGC=off and no GOMEMLIMIT"}).Draw(t, "why")
		if why != "half suffices" {
			h.each *= 5
		}
		c := mustNew(t, control.Config{Processors: 1})
		d := begin(c)
		for range 300 {
			s := h.sample(math.Round(most*h.random.Float64()), d.TargetConcurrency)
			switch why {
			case "no limit":
				s.Memory.Limit = 0
			case "GOGC=off and no GOMEMLIMIT":
				s.Memory.Soft, s.Memory.Growth = false, 0
			}
			if d = c.Step(s); lowersForMemory(d) && d.TargetConcurrency < int(most) {
				t.Fatalf("C19: %v where %s; %+v", d.Reasons, why, *h)
			}
		}
	})
}

// C19: a leak leaves one task per processor, and what is owed to tasks.
func TestPropertyMemoryLeak(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := someHeap(t)
		h.each = h.usable() * rapid.Float64Range(0.0001, 0.3).Draw(t, "each")
		h.grows = h.usable() / rapid.Float64Range(10, 60).Draw(t, "seconds")
		processors := rapid.SampledFrom([]int{1, 2, 8}).Draw(t, "processors")
		c := mustNew(t, control.Config{Processors: processors})
		d := begin(c)
		for range 900 {
			if d = c.Step(h.sample(100, d.TargetConcurrency)); d.TargetConcurrency < processors {
				t.Fatalf("C19: the limit is %d for %d processors: %v; %+v", d.TargetConcurrency, processors, d.Reasons, *h)
			}
		}
	})
}

func TestMemoryReason(t *testing.T) {
	h := &heap{
		random: rand.New(rand.NewPCG(1, 1)), limit: 256 << 20, soft: true, gogc: 1, base: 2e6, each: 20e6, took: 2,
	}
	c := mustNew(t, control.Config{Processors: 1})
	d := begin(c)
	for i := range 100 {
		d = c.Step(h.sample(float64(i)/2, d.TargetConcurrency))
	}
	why := fmt.Sprint(d.Reasons)
	if ok, _ := regexp.MatchString(`memory: (19|2[0-4]) MB a task, [89] of [89] fit \(tighten\)`, why); !ok {
		t.Errorf("C19: %s", why)
	}
}

// C20: what runs elsewhere is judged as if the processors here were idle, whatever they say.
func TestPropertyRemote(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := configs(t)
		idle, odd := mustNew(t, cfg), mustNew(t, cfg)
		samples, _ := history(t)
		for i, s := range samples {
			s.Remote = true
			other := s
			s.Lag, s.Utilization, s.Runnable, s.Throttled, s.Share = monitor.Lag{}, value(0), value(0), monitor.Reading{}, monitor.Reading{}
			d, o := idle.Step(s), odd.Step(other)
			if diff := cmp.Diff(d, o, cmp.AllowUnexported(d.Reasons[0])); diff != "" || o.ShedProbability != 0 {
				t.Fatalf("C20: sample %d: %v is shed (-idle +busy)\n%s", i, o.ShedProbability, diff)
			}
		}
	})
}
