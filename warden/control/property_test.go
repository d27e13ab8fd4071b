// SPDX-License-Identifier: Apache-2.0

// How fast the law moves (C3), and what execution times may do to the target (C11), for services that nobody chose.

package control_test

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden/control"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/monitor"
)

// A jam takes the target down, or shedding up, in fewer samples than calm takes to bring it back, whatever is in the way and
// however long that lasts.
func TestPropertyFasterDownThanUp(t *testing.T) {
	jammed, tried := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		cfg := control.Config{
			Processors: rapid.SampledFrom([]int{1, 2, 8, 32}).Draw(t, "processors"),
			Initial:    rapid.IntRange(200, 4000).Draw(t, "initial"),
		}
		jam := monitor.Sample{
			Utilization: value(1), Runnable: value(rapid.Float64Range(5, 60).Draw(t, "runnable")),
			Lag: monitor.Lag{
				P50: time.Duration(rapid.IntRange(30, 300).Draw(t, "p50")) * time.Millisecond,
				P90: time.Duration(rapid.IntRange(60, 900).Draw(t, "p90")) * time.Millisecond, Count: 100,
			},
		}
		if rapid.Bool().Draw(t, "throttled") {
			jam.Throttled = value(rapid.Float64Range(0.3, 1).Draw(t, "share"))
		}
		c, now := mustNew(t, cfg), clock{}
		first := c.Step(now.next(quiet()))
		const never = 1000 // a jam may be too mild to go as far
		steps := func(s monitor.Sample, until func(d decision.ControlDecision) bool) (n int) {
			for n = 1; n < never && !until(c.Step(now.next(s))); n++ {
			}
			return n
		}
		tried++
		if rapid.Bool().Draw(t, "target") {
			low := first.TargetConcurrency / rapid.IntRange(4, 12).Draw(t, "down to")
			down := steps(jam, func(d decision.ControlDecision) bool { return d.TargetConcurrency <= low })
			up := steps(quiet(), func(d decision.ControlDecision) bool { return d.TargetConcurrency >= first.TargetConcurrency })
			if down == never {
				return
			}
			if jammed++; down >= up {
				t.Fatalf("C3: target from %d to %d in %d samples, back in %d", first.TargetConcurrency, low, down, up)
			}
			return
		}
		most := rapid.Float64Range(0.3, 0.9).Draw(t, "shed")
		steps(jam, func(d decision.ControlDecision) bool { return d.ShedProbability > 0 }) // the target comes first
		up := steps(jam, func(d decision.ControlDecision) bool { return d.ShedProbability >= most })
		down := steps(quiet(), func(d decision.ControlDecision) bool { return d.ShedProbability <= 0 })
		if up == never {
			return
		}
		if jammed++; up >= down {
			t.Fatalf("C3: shed %.2f in %d samples, nothing again after %d", most, up, down)
		}
	})
	if jammed == 0 {
		t.Errorf("C3: only %d of %d jams were any", jammed, tried)
	}
}

// No execution time cuts the target while processors are busy, nor while none has been completed. What was never told of
// executions says so and expects nothing, and what is told of none any more expects less with each sample.
func TestPropertyNoCutWithoutGrounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := control.Config{
			Processors: rapid.SampledFrom([]int{1, 2, 8}).Draw(t, "processors"),
			Initial:    rapid.IntRange(1, 300).Draw(t, "initial"),
		}
		c, m := mustNew(t, cfg), newModel(rapid.Uint64().Draw(t, "seed"))
		m.slots = rapid.IntRange(0, 20).Draw(t, "slots")
		m.took = rapid.SampledFrom([]float64{0.002, 0.04, 0.3}).Draw(t, "took")
		m.spread, m.offered = rapid.Float64Range(0, 0.8).Draw(t, "spread"), rapid.Float64Range(1, 80).Draw(t, "offered")
		steps := rapid.IntRange(10, 150).Draw(t, "steps")
		before := begin(c)
		why := rapid.SampledFrom([]string{"busy processors", "nothing completed", "not told"}).Draw(t, "why")
		for range steps {
			s := m.sample(before.TargetConcurrency)
			switch why {
			case "busy processors":
				s.Utilization = value(0.99)
			case "nothing completed":
				s.Service = monitor.Service{Concurrency: s.Service.Concurrency}
			case "not told":
				s.Service = monitor.Service{}
			}
			d := c.Step(s)
			if d.TargetConcurrency < before.TargetConcurrency {
				t.Fatalf("C11: target from %d to %d beside %s: %v", before.TargetConcurrency, d.TargetConcurrency, why, d.Reasons)
			}
			if why != "busy processors" && d.Expected != 0 {
				t.Fatalf("C11: expects %v, and no execution was told", d.Expected)
			}
			if why == "not told" && !strings.Contains(fmt.Sprint(d.Reasons), "service_not_fed") {
				t.Fatalf("C11: does not say that it is not fed: %v", d.Reasons)
			}
			before = d
		}
		for range 40 {
			d := c.Step(m.next(quiet()))
			if d.Expected > before.Expected || d.Expected > 0 && d.Expected == before.Expected {
				t.Fatalf("C11: expects %v after %v, and nothing runs", d.Expected, before.Expected)
			}
			before = d
		}
	})
}

// A cut is kept if it took waiting away, and undone if it took work away: so a target comes to what has room and stays there.
// Chance may move it by a half for a while.
func TestPropertyCutsAreJudgedByWhatCompletes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, m := mustNew(t, control.Config{Processors: 2, Initial: rapid.IntRange(4, 400).Draw(t, "initial")}), crowd()
		m.took = rapid.SampledFrom([]float64{0.02, 0.04, 0.1}).Draw(t, "took")
		longer := rapid.SampledFrom([]float64{3, 5}).Draw(t, "longer")
		if rapid.Bool().Draw(t, "room") {
			// There is room for everybody: work that takes longer and is more is no reason to have less of it.
			m.slots, m.offered = 0, 40
			_, d := m.drive(c, 30, begin(c))
			m.took, m.offered = m.took*longer, 40*longer
			targets, _ := m.drive(c, 60, d)
			if mean := average(targets[300:]); mean < 0.85*m.offered {
				t.Fatalf("C11: target %.1f, and %.0f have room", mean, m.offered)
			}
			return
		}
		targets, d := m.drive(c, 60, begin(c))
		if mean := average(targets[300:]); mean < 7 || mean > 22 {
			t.Fatalf("C11: target %.1f for ten slots", mean)
		}
		m.took, m.free = m.took*longer, nil
		targets, _ = m.drive(c, 60, d)
		if mean := average(targets[300:]); mean < 7 || mean > 22 {
			t.Fatalf("C11: target %.1f for ten slots of slower work", mean)
		}
	})
}

// What a sample says of the processors is as good as a setting. Beside a setting it is nothing, nor where work runs elsewhere.
func TestPropertyProcessorsOfTheSample(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.SampledFrom([]float64{0.1, 1, 2, 3.5, 8, 32, 64, 1e300}).Draw(t, "number")
		initial := rapid.IntRange(1, 400).Draw(t, "initial")
		with := func(processors int) *control.Controller {
			return mustNew(t, control.Config{Max: 1 << 24, Initial: initial, Processors: processors})
		}
		remote := rapid.Bool().Draw(t, "remote")
		equal := int(math.Ceil(min(number, 1<<24)))
		if remote {
			equal = runtime.GOMAXPROCS(0)
		}
		reads, told, other, plain := with(0), with(equal), with(5), with(5)
		m := newModel(rapid.Uint64().Draw(t, "seed"))
		d := decision.ControlDecision{TargetConcurrency: initial}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			s := m.sample(d.TargetConcurrency)
			if rapid.Bool().Draw(t, "jammed") {
				s = m.next(jammed())
			}
			s.Remote, s.Processors = remote, number
			d = reads.Step(s)
			beside := other.Step(s)
			s.Processors = 0
			same := cmp.AllowUnexported(decision.Reason{})
			if diff := cmp.Diff(told.Step(s), d, same); diff != "" {
				t.Fatalf("C25: told %d and reading %v (remote %t) differ: %s", equal, number, remote, diff)
			}
			if diff := cmp.Diff(plain.Step(s), beside, same); diff != "" {
				t.Fatalf("C25: told 5, and it goes by the %v of a sample: %s", number, diff)
			}
		}
	})
}
