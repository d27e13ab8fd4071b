// C11 against a small model: servers behind the service, a queue in front of them, and users who do not stop.

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
	"pgregory.net/rapid"
)

// model is a dependency as one number per tick: tasks that run, and their execution time, which follows with a delay of itself.
type model struct {
	servers float64 // 0: room for all
	base    float64 // seconds at a server
	demand  float64 // tasks that want to run at once, if they took base
	now     float64 // the execution time of what ends now
	clock
}

// sample lets a tick pass under this target.
func (m *model) sample(target int) monitor.Sample {
	if m.now == 0 {
		m.now = m.base
	}
	arriving := m.demand / m.base // per second
	n := min(float64(target), arriving*m.now)
	execution := m.base
	if m.servers > 0 {
		n = min(n, float64(target))
		execution = max(m.base, m.base*float64(n)/m.servers)
		if arriving > m.servers/m.base {
			n = float64(target) // the queue grows until the target stops it
			execution = max(m.base, m.base*n/m.servers)
		}
	}
	m.now += (execution - m.now) * min(1, tick.Seconds()/m.now)
	throughput := n / m.now
	d := time.Duration(m.now * float64(time.Second))
	s := quiet()
	s.Service = monitor.Service{P50: d, P90: d, Count: uint64(max(1, throughput*tick.Seconds())), Throughput: throughput, Concurrency: n}
	return m.next(s)
}

// drive steps c for so many seconds and returns the targets at each second.
func (m *model) drive(c *control.Controller, seconds int) (targets []int, last decision.ControlDecision) {
	last = decision.ControlDecision{TargetConcurrency: 16}
	for i := range seconds * 10 {
		last = c.Step(m.sample(last.TargetConcurrency))
		if i%10 == 9 {
			targets = append(targets, last.TargetConcurrency)
		}
	}
	return targets, last
}

func within(t *testing.T, what string, targets []int, low, high int) {
	t.Helper()
	for i, target := range targets {
		if target < low || target > high {
			t.Errorf("%s: target %d in second %d, want %d to %d: %v", what, target, i, low, high, targets)
			return
		}
	}
}

func TestC11_Falls(t *testing.T) {
	for _, start := range []int{16, 64, 400} {
		c := mustNew(t, control.Config{Processors: 2, Initial: start})
		m := &model{servers: 10, base: 0.04, demand: 5}
		m.drive(c, 5)
		m.demand = 40
		targets, _ := m.drive(c, 30)
		within(t, fmt.Sprintf("from %d", start), targets[15:], 7, 16)
	}
}

func TestC11_NoDriftInALongOverload(t *testing.T) {
	c := mustNew(t, control.Config{Processors: 2})
	m := &model{servers: 10, base: 0.04, demand: 5}
	m.drive(c, 5)
	m.demand = 40
	targets, _ := m.drive(c, 3600)
	within(t, "an hour", targets[10:], 7, 16)
}

func TestC11_LearnedInAnOverload(t *testing.T) {
	// Nothing was ever quick while anybody looked: the first baseline is three times what it should be.
	c := mustNew(t, control.Config{Processors: 2, Initial: 32})
	m := &model{servers: 10, base: 0.04, demand: 40, now: 0.128}
	targets, _ := m.drive(c, 180)
	within(t, "after fifteen seconds", targets[15:], 7, 16)
}

func TestC11_StartsInAnOverload(t *testing.T) {
	// The first baseline is that of a crowd, and is put to the test within seconds.
	c := mustNew(t, control.Config{Processors: 2, Initial: 16})
	m := &model{servers: 10, base: 0.04, demand: 40}
	targets, _ := m.drive(c, 14)
	within(t, "after four seconds", targets[4:], 7, 15)
}

func TestC11_SlowsDownAndRecovers(t *testing.T) {
	c := mustNew(t, control.Config{Processors: 2})
	m := &model{servers: 10, base: 0.04, demand: 40}
	m.drive(c, 30)
	m.base, m.demand = 0.2, 200
	targets, _ := m.drive(c, 60)
	within(t, "five times slower", targets[10:], 6, 16)
	m.base, m.demand = 0.04, 40
	targets, _ = m.drive(c, 60)
	within(t, "quick again", targets[25:], 7, 16)
}

func TestC11_AnotherMixIsNoOverload(t *testing.T) {
	c := mustNew(t, control.Config{Processors: 2})
	m := &model{base: 0.04, demand: 60}
	targets, _ := m.drive(c, 30)
	within(t, "before", targets[15:], 60, 120)
	m.base, m.demand = 0.2, 300 // there is room for all: what takes longer is the work
	targets, d := m.drive(c, 60)
	within(t, "slower work", targets[30:], 300, 600)
	if d.Expected < 150*time.Millisecond || d.Expected > 250*time.Millisecond {
		t.Errorf("expects %v", d.Expected)
	}
}

func TestC11_OffWithoutService(t *testing.T) {
	c, now := mustNew(t, control.Config{Processors: 2}), clock{}
	d := c.Step(now.next(quiet()))
	if said := fmt.Sprint(d.Reasons); !strings.Contains(said, "service_not_fed") || d.Expected != 0 {
		t.Fatalf("%v, expects %v", said, d.Expected)
	}
	if said := fmt.Sprint(c.Step(now.next(used(1))).Reasons); strings.Contains(said, "service_not_fed") {
		t.Fatal(said)
	}
}

func TestC11_Steady(t *testing.T) {
	c := mustNew(t, control.Config{Processors: 2})
	m := &model{servers: 10, base: 0.04, demand: 5}
	m.drive(c, 5)
	m.demand = 40
	m.drive(c, 20)
	var sum, squares, idle float64
	const n = 3000
	last := decision.ControlDecision{TargetConcurrency: 10}
	for range n {
		last = c.Step(m.sample(last.TargetConcurrency))
		x := float64(last.TargetConcurrency)
		sum, squares = sum+x, squares+x*x
		if x < 10 {
			idle += (10 - x) / 10 / n
		}
	}
	mean := sum / n
	variation := math.Sqrt(squares/n-mean*mean) / mean
	if mean < 10 || mean > 13 || variation > 0.15 || idle > 0.02 {
		t.Fatalf("ten servers: target %.1f on average, variation %.2f, servers idle for %.3f of the time", mean, variation, idle)
	}
}

func TestC11_QuickDown(t *testing.T) {
	c := mustNew(t, control.Config{Processors: 2, Initial: 1024})
	m := &model{servers: 10, base: 0.04, demand: 5}
	m.drive(c, 5)
	m.demand = 40
	targets, _ := m.drive(c, 20)
	within(t, "a thousand, unused", targets[3:5], 7, 400)
	within(t, "a thousand to ten", targets[12:], 7, 16)
}

func TestC11_TrialsEnd(t *testing.T) {
	onTrial := func(d decision.ControlDecision) bool { return strings.Contains(fmt.Sprint(d.Reasons), "service_trial") }
	start := func() (*control.Controller, *model) {
		c := mustNew(t, control.Config{Processors: 2})
		m := &model{servers: 10, base: 0.04, demand: 5}
		_, d := m.drive(c, 5)
		m.demand = 40
		for range 100 {
			if d = c.Step(m.sample(d.TargetConcurrency)); onTrial(d) {
				return c, m
			}
		}
		t.Fatal("no trial")
		return nil, nil
	}
	// Nothing ends any more: after ten seconds a trial teaches nothing.
	c, m := start()
	stuck := quiet()
	stuck.Service.Concurrency = 100
	trials := 0
	for range 200 {
		if onTrial(c.Step(m.next(stuck))) {
			trials++
		}
	}
	if trials < 50 || trials > 150 {
		t.Errorf("%d of 200 steps on trial although nothing ends", trials)
	}
	// Nobody comes any more: there is nothing to try.
	c, m = start()
	for range 10 {
		if d := c.Step(m.next(quiet())); !onTrial(d) {
			return
		}
	}
	t.Error("on trial a second after the last request")
}

func TestC11_ExpectedFadesWhenNothingRuns(t *testing.T) {
	c := mustNew(t, control.Config{Processors: 2})
	m := &model{base: 0.2, demand: 10}
	_, d := m.drive(c, 10)
	if d.Expected < 150*time.Millisecond {
		t.Fatalf("expects %v of work of 200 ms", d.Expected)
	}
	for range 20 {
		d = c.Step(m.next(quiet()))
	}
	if d.Expected > 20*time.Millisecond {
		t.Fatalf("expects %v two seconds after the last execution", d.Expected)
	}
}

// The property of law_test.go, from states that a service with a queue behind it leads to: trials among them.
func TestPropertyC2C11_MonotoneOnTrial(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		one, other := mustNew(t, control.Config{Processors: 2}), mustNew(t, control.Config{Processors: 2})
		m := &model{base: rapid.Float64Range(0.001, 0.3).Draw(t, "base"), demand: rapid.Float64Range(0, 100).Draw(t, "demand")}
		m.servers = rapid.SampledFrom([]float64{0, 3, 10, 50}).Draw(t, "servers")
		target := 16
		for range rapid.IntRange(0, 3).Draw(t, "changes") {
			for range rapid.IntRange(0, 60).Draw(t, "ticks") {
				s := m.sample(target)
				target = one.Step(s).TargetConcurrency
				other.Step(s)
			}
			m.base *= rapid.SampledFrom([]float64{0.2, 1, 3, 5}).Draw(t, "slower")
			m.demand = rapid.Float64Range(0, 300).Draw(t, "demand")
		}
		s := m.sample(target)
		w := s
		w.Service.P50 = time.Duration(float64(s.Service.P50) * rapid.Float64Range(1, 5).Draw(t, "p50"))
		w.Service.P90 = time.Duration(float64(s.Service.P90) * rapid.Float64Range(1, 5).Draw(t, "p90"))
		better, bad := one.Step(s), other.Step(w)
		if bad.TargetConcurrency > better.TargetConcurrency || bad.ShedProbability < better.ShedProbability {
			t.Fatalf("target %d for %+v, %d for %+v; %v %v", better.TargetConcurrency, s, bad.TargetConcurrency, w, better.Reasons, bad.Reasons)
		}
	})
}

func TestC11_BusyProcessorsAreNoKnee(t *testing.T) {
	c := mustNew(t, control.Config{Processors: 2})
	m := &model{base: 0.004, demand: 2}
	m.drive(c, 5)
	for i := range 100 {
		s := quiet()
		s.Utilization, s.Runnable = value(0.9), value(1)
		s.Service = monitor.Service{P50: 32 * time.Millisecond, P90: 40 * time.Millisecond, Count: 50, Throughput: 500, Concurrency: 16}
		// A second to learn that the processors are busy, and another to give back what was taken.
		if d := c.Step(m.next(s)); i > 20 && d.TargetConcurrency < 14 {
			t.Fatalf("target %d: %v", d.TargetConcurrency, d.Reasons)
		}
	}
}
