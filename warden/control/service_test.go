// SPDX-License-Identifier: Apache-2.0

// C11 to C13 against the modelled service.

package control_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden/control"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/monitor"
)

// crowd is a service of ten slots, each of which takes 40 ms, and four times as many users as it can serve.
func crowd() *model {
	m := newModel(1)
	m.slots, m.took, m.spread, m.offered = 10, 0.04, 0.2, 40
	return m
}

// begin is what rules first.
func begin(c *control.Controller) decision.ControlDecision { return c.Step(monitor.Sample{At: epoch}) }

func average(targets []int) float64 {
	sum := 0
	for _, target := range targets {
		sum += target
	}
	return float64(sum) / float64(len(targets))
}

func TestCutsWhatWaits(t *testing.T) {
	for _, start := range []int{4, 16, 64, 400} {
		c, m := mustNew(t, control.Config{Processors: 2, Initial: start}), crowd()
		targets, _ := m.drive(c, 1200, begin(c))
		for _, part := range [][]int{targets[100:400], targets[11000:]} {
			if mean := average(part); mean < 9 || mean > 18 {
				t.Errorf("C11: from %d: target %.1f for ten slots", start, mean)
			}
		}
	}
}

func TestWorkThatTakesLongerIsNoCrowd(t *testing.T) {
	c := mustNew(t, control.Config{Processors: 2})
	m := newModel(1)
	m.took, m.spread, m.offered = 0.04, 0.2, 60
	m.drive(c, 30, begin(c))
	m.took, m.offered = 0.2, 300
	targets, d := m.drive(c, 60, decision.ControlDecision{TargetConcurrency: 64})
	if mean := average(targets[300:]); mean < 270 {
		t.Errorf("C11: target %.1f, and 300 have room", mean)
	}
	if d.Expected < 150*time.Millisecond || d.Expected > 250*time.Millisecond {
		t.Errorf("C11: expects %v of work of 200 ms", d.Expected)
	}
}

// A trial is no reason to think that the work has changed: one in which it happens to take longer leaves the baseline as it was.
func TestATrialThatFailsKeepsTheBaseline(t *testing.T) {
	c, m := mustNew(t, control.Config{Processors: 2, Initial: 20, Max: 20}), newModel(1)
	m.took, m.spread, m.offered = 0.04, 0.2, 60 // all that the limit lets in has room
	_, d := m.drive(c, 0.1, begin(c))
	tried := func() bool { return strings.Contains(fmt.Sprint(d.Reasons), "service_trial") }
	for until, steps := true, 0; tried() != until || until; steps++ {
		if tried() && until {
			m.took, until = 0.08, false
		}
		if d = c.Step(m.sample(d.TargetConcurrency)); steps > 1000 {
			t.Fatalf("no trial began and ended: %v", d.Reasons)
		}
	}
	if d.TargetConcurrency != 20 || d.Expected < 35*time.Millisecond || d.Expected > 45*time.Millisecond {
		t.Errorf(
			"C11: after a trial that removed work the limit is %d, want 20, and %v are expected, want 40ms",
			d.TargetConcurrency, d.Expected,
		)
	}
}

func TestSlowsDownAndRecovers(t *testing.T) {
	c, m := mustNew(t, control.Config{Processors: 2}), crowd()
	_, d := m.drive(c, 30, begin(c))
	for _, took := range []float64{0.2, 0.04} {
		m.took, m.free = took, nil
		var targets []int
		targets, d = m.drive(c, 60, d)
		if mean := average(targets[300:]); mean < 8.5 || mean > 18 {
			t.Errorf("C11: work of %v s: target %.1f for ten slots", took, mean)
		}
	}
}

func TestBusyProcessorsAreNoCrowd(t *testing.T) {
	c, m := mustNew(t, control.Config{Processors: 2, Initial: 64}), crowd()
	d := begin(c)
	for range 300 {
		s := m.sample(d.TargetConcurrency)
		s.Utilization = value(0.99) // and no queue for them
		if d = c.Step(s); d.TargetConcurrency < 64 {
			t.Fatalf("C11: target %d: %v", d.TargetConcurrency, d.Reasons)
		}
	}
}

func TestOffWithoutService(t *testing.T) {
	c, now := mustNew(t, control.Config{Processors: 2}), clock{}
	d := c.Step(now.next(quiet()))
	if said := fmt.Sprint(d.Reasons); !strings.Contains(said, "service_not_fed") || d.Expected != 0 {
		t.Fatalf("C11: %v, expects %v", said, d.Expected)
	}
	if said := fmt.Sprint(c.Step(now.next(used(1))).Reasons); strings.Contains(said, "service_not_fed") {
		t.Fatal(said)
	}
}

func TestExpectedFadesWhenNothingRuns(t *testing.T) {
	c, m := mustNew(t, control.Config{Processors: 2}), newModel(1)
	m.took, m.offered = 0.2, 10
	_, d := m.drive(c, 10, begin(c))
	if d.Expected < 150*time.Millisecond {
		t.Fatalf("C11: expects %v of work of 200 ms", d.Expected)
	}
	for range 20 {
		d = c.Step(m.next(quiet()))
	}
	if d.Expected > 20*time.Millisecond {
		t.Fatalf("C11: expects %v two seconds after the last execution", d.Expected)
	}
}

// roomy is a service with room for everybody.
func roomy(seed uint64) (m *model, most float64) {
	m = newModel(seed)
	m.took = math.Exp(m.random.Float64()*math.Log(60e3)) / 1e3 // 1 ms to 60 s
	m.spread = []float64{0, 0.2, 0.8}[m.random.IntN(3)]
	return m, min(200, 5000*m.took)
}

// services are how many modelled services C12 and C13 are tried on; chance may spoil late of them, as it does in the swarm.
const services, late = 200, 6

func TestPropertyNoLatch(t *testing.T) {
	latched := 0
	for seed := range uint64(services) {
		m, most := roomy(seed)
		c := mustNew(t, control.Config{Processors: 8})
		d := begin(c)
		for range 3 { // other loads, and jams of processors
			m.offered = most * m.random.Float64()
			_, d = m.drive(c, 1+8*m.took*m.random.Float64(), d)
			for range m.random.IntN(20) {
				d = c.Step(m.next(jammed()))
			}
		}
		m.offered = most * m.random.Float64()
		after := 0.0
		for ; float64(d.TargetConcurrency) < 0.9*m.offered && after < 30*m.took+5; after += tick.Seconds() {
			d = c.Step(m.sample(d.TargetConcurrency))
		}
		switch {
		case after >= 30*m.took+5:
			t.Errorf(
				"C12: seed %d: target %d, and %.1f are offered, after %.1f s of work of %.3f s",
				seed, d.TargetConcurrency, m.offered, after, m.took,
			)
		case after > 5*m.took+2:
			latched++
		}
	}
	if latched > late {
		t.Errorf("C12: %d of %d targets took longer than five execution times and 2 s", latched, services)
	}
}

func TestPropertyNoHarm(t *testing.T) {
	harmed := 0
	for seed := range uint64(services) {
		m, most := roomy(seed)
		m.offered = most * m.random.Float64()
		m.patience = m.took * (1 + m.spread) * (1.05 + 3*m.random.Float64())
		c := mustNew(t, control.Config{Processors: 8})
		_, d := m.drive(c, 5*m.took+2, begin(c)) // a target moves ten times a second
		m.answers, m.late = 0, 0
		m.drive(c, 20*m.took+5, d)
		if float64(m.answers) < 0.99*float64(m.answers+m.late) {
			harmed++
		}
	}
	if harmed > late {
		t.Errorf("C13: %d of %d services with room for all answered less than 0.99 in time", harmed, services)
	}
}

// One slot, a hundred inside, and a baseline that knows better: nearly all of them wait.
func TestACutLeavesAFifth(t *testing.T) {
	c, m := mustNew(t, control.Config{Processors: 1, Initial: 100}), crowd()
	m.slots, m.offered = 1, 0.5
	_, before := m.drive(c, 20, begin(c))
	m.offered = 40
	cut := false
	for range 300 {
		s := m.sample(before.TargetConcurrency)
		d := c.Step(s)
		if d.TargetConcurrency < before.TargetConcurrency/2 {
			cut = true
			if low := math.Floor(0.2 * min(s.Service.Concurrency, 50)); float64(d.TargetConcurrency) < low {
				t.Fatalf(
					"C4: target from %d to %d while %.0f run",
					before.TargetConcurrency, d.TargetConcurrency, s.Service.Concurrency,
				)
			}
		}
		before = d
	}
	if !cut {
		t.Fatal("C4: there was no cut")
	}
}

// Work of 20 s: a trial that waited for its end would last for minutes.
func TestATrialEndsWhenNothingRuns(t *testing.T) {
	c, m := mustNew(t, control.Config{Processors: 1, Initial: 64}), crowd()
	m.slots, m.took = 4, 20
	m.offered = 2
	_, d := m.drive(c, 400, begin(c))
	m.offered = 40
	for steps := 0; !strings.Contains(fmt.Sprint(d.Reasons), "service_trial"); steps++ {
		if d = c.Step(m.sample(d.TargetConcurrency)); steps > 10_000 {
			t.Fatal("C9: there was no trial")
		}
	}
	if d.TargetConcurrency >= 64 {
		t.Fatalf("C9: target %d on trial", d.TargetConcurrency)
	}
	for range 160 {
		d = c.Step(m.next(quiet()))
	}
	if d.TargetConcurrency < 64 {
		t.Fatalf("C9: target %d after 16 s in which nothing ran: %v", d.TargetConcurrency, d.Reasons)
	}
}
