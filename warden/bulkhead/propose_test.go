// SPDX-License-Identifier: Apache-2.0

// What is proposed, and from whom it is taken: B15.

package bulkhead

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden/decision"
)

// A minute is what a test saw in one window.
type minute struct {
	held, calls, lacked map[string]int // the most at once; in all
	total               int            // the most of all at once
}

// A crowd drives a set, and remembers what it saw.
type crowd struct {
	t    *testing.T
	s    *Set
	out  map[string][]Permit
	past []minute // the last one is now
	told []Event
}

func (c *crowd) begin() {
	m := minute{map[string]int{}, map[string]int{}, map[string]int{}, 0}
	c.past = append(c.past, m)
	c.see()
}

func (c *crowd) see() {
	m, total := &c.past[len(c.past)-1], 0
	for name, out := range c.out {
		m.held[name] = max(m.held[name], len(out))
		total += len(out)
	}
	m.total = max(m.total, total)
}

// call asks for a slot, and keeps it.
func (c *crowd) call(name string) {
	m := &c.past[len(c.past)-1]
	m.calls[name]++
	_, p, err := c.s.Compartment(name).Acquire(c.t.Context())
	if err != nil {
		m.lacked[name]++
		return
	}
	c.out[name] = append(c.out[name], p)
	c.see()
}

func (c *crowd) release(name string) {
	if out := c.out[name]; len(out) > 0 {
		out[0].Release(nil)
		c.out[name] = out[1:]
	}
}

// wrong says what is wrong with a proposal after the window that ends now; nil is a proposal of nothing.
func (c *crowd) wrong(p *Proposal) string {
	plan, n := c.s.Plan(), len(c.past)
	if p == nil {
		return ""
	}
	if n < 2 {
		return "proposed after one window"
	}
	now, before := c.past[n-1], c.past[n-2]
	if p.Plan.Total != plan.Total || p.Plan.Revision != plan.Revision || len(p.Reasons) == 0 {
		return fmt.Sprintf("the proposal %+v is not made from %+v", p, plan)
	}
	moved, most := 0, decision.Priority(-128)
	for i, to := range p.Plan.Compartments {
		if more := to.Guaranteed - plan.Compartments[i].Guaranteed; more > 0 {
			moved += more
			most = max(most, c.s.pools[i].config.Criticality)
			for _, m := range []minute{now, before} {
				if 20*m.lacked[to.Name] <= m.calls[to.Name] {
					return fmt.Sprintf("%s gets %d more, and %d of its %d calls lacked a slot", to.Name, more, m.lacked[to.Name],
						m.calls[to.Name])
				}
			}
		}
	}
	if idle := plan.Total - max(now.total, before.total); moved > idle || moved == 0 {
		return fmt.Sprintf("%d slots move, %d were idle all the time", moved, idle)
	}
	for i, to := range p.Plan.Compartments {
		used := max(now.held[to.Name], before.held[to.Name])
		if from := plan.Compartments[i].Guaranteed; to.Guaranteed < from &&
			(to.Guaranteed < max(1, used) || c.s.pools[i].config.Criticality > most) {
			return fmt.Sprintf("%s used %d of %d and is left %d, at criticality %d; the others have %d", to.Name, used, from,
				to.Guaranteed, c.s.pools[i].config.Criticality, most)
		}
	}
	return ""
}

// Compartments of any plan under any load: what is proposed is valid, and takes from nobody what was in use.
func TestPropertyProposals(t *testing.T) {
	proposals := 0
	rapid.Check(t, func(rt *rapid.T) {
		total := rapid.IntRange(2, 16).Draw(rt, "total")
		cfg, left := Config{Total: total}, total
		for i := range rapid.IntRange(1, 4).Draw(rt, "compartments") {
			g := rapid.IntRange(0, left).Draw(rt, "guaranteed")
			left -= g
			cfg.Compartments = append(cfg.Compartments, CompartmentConfig{
				Name: fmt.Sprint("c", i), Guaranteed: g, Max: rapid.IntRange(max(1, g), total).Draw(rt, "max"),
				Criticality: rapid.SampledFrom([]decision.Priority{decision.Background, decision.Normal, decision.Critical}).Draw(rt,
					"criticality"),
			})
		}
		seed := rapid.Uint64().Draw(rt, "seed")
		wrong := ""
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test
			c := &crowd{t: t, out: map[string][]Permit{}}
			cfg.Observer = observerFunc(func(e Event) { c.told = append(c.told, e) })
			c.s = mustNew(t, cfg)
			weight := make([]int, len(cfg.Compartments))
			for i := range weight {
				weight[i] = r.IntN(12)
			}
			for n := 0; n < 8 && wrong == ""; n++ {
				c.begin()
				for range 59 {
					time.Sleep(time.Second)
					for i, w := range weight {
						name := cfg.Compartments[i].Name
						for range 2 {
							if r.IntN(12) < w {
								c.call(name)
							}
							if r.IntN(12) < 5 {
								c.release(name)
							}
						}
					}
				}
				time.Sleep(time.Second)
				p := c.s.Snapshot().Proposal
				if wrong = c.wrong(p); p != nil && wrong == "" {
					proposals++
					if r.IntN(3) == 0 {
						if _, err := c.s.Resize(p.Plan); err != nil || c.s.Snapshot().Proposal != nil {
							wrong = fmt.Sprintf("%v; then %+v", err, c.s.Snapshot().Proposal)
						}
						c.past = nil
					}
				}
			}
			for _, out := range c.out {
				for _, p := range out {
					p.Release(nil)
				}
			}
		})
		if wrong != "" {
			rt.Fatal("B15: " + wrong)
		}
	})
	if t.Logf("%d proposals", proposals); proposals < 10 {
		t.Errorf("B15: %d proposals in all histories", proposals)
	}
}

// work takes almost a second.
func work(c *Compartment) {
	_, _ = Do(context.Background(), c, func(context.Context) (int, error) { time.Sleep(900 * time.Millisecond); return 0, nil })
}

// Two slots of ten, and nobody uses the others: after two minutes of rejections the plan is proposed that ends them. It is told
// once, and lasts until it is applied.
func TestAProposalEndsTheLack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []Event
		s := mustNew(t, Config{Total: 10, Observer: observerFunc(func(e Event) {
			if e.Kind == Proposed {
				told = append(told, e)
			}
		}), Compartments: []CompartmentConfig{
			{Name: "api", Guaranteed: 2, Criticality: decision.High},
			{Name: "batch", Guaranteed: 4, Lendable: 2, MaxQueue: 1},
			{Name: "admin", Guaranteed: 4, Criticality: decision.Critical},
		}})
		load := func(d time.Duration) (rejected uint64) { // six calls at any time
			before := s.Compartment("api").Snapshot().Rejected["queue_overflow"]
			for until := time.Now().Add(d); time.Now().Before(until); time.Sleep(time.Second) {
				for range 6 {
					go func() { work(s.Compartment("api")) }()
				}
				synctest.Wait()
			}
			return s.Compartment("api").Snapshot().Rejected["queue_overflow"] - before
		}
		load(90 * time.Second)
		if p := s.Snapshot().Proposal; p != nil {
			t.Errorf("B15: proposed after one window: %+v", p)
		}
		load(200 * time.Second)
		p := s.Snapshot().Proposal
		if p == nil {
			t.Fatal("B15: nothing is proposed")
		}
		want := []Share{{Name: "api", Guaranteed: 5, Max: 5}, {Name: "batch", Guaranteed: 1, Lendable: 1, Max: 4, MaxQueue: 1},
			{Name: "admin", Guaranteed: 4, Max: 4}}
		if !slices.Equal(p.Plan.Compartments, want) || len(told) != 1 || told[0].Proposal.Plan.Revision != 1 || told[0].Revision != 1 ||
			!strings.HasPrefix(p.Reasons[0], `"api" rejected `) ||
			p.Reasons[1] != `"batch" used at most 0 of its 4 guaranteed slots: 3 fewer` {
			t.Errorf("B15: %+v, told %d times", p, len(told))
		}
		if s.Plan().Revision != 1 {
			t.Error("B15: it was applied by itself")
		}
		if _, err := s.Resize(p.Plan); err != nil {
			t.Fatal(err)
		}
		if rejected := load(100 * time.Second); rejected > 110 {
			t.Errorf("B15: %d of 600 calls are still rejected", rejected)
		}
	})
}

// Under a decision that withholds slots nobody knows what the plan lacks.
func TestNothingIsProposedUnderALowerLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mustNew(t, Config{Total: 10, Compartments: []CompartmentConfig{{Name: "api", Guaranteed: 2},
			{Name: "batch", Guaranteed: 8}}})
		for i := range 600 {
			if i%50 == 0 {
				s.Apply(decision.ControlDecision{Seq: uint64(i + 1), TargetConcurrency: 9})
			}
			for range 6 {
				go func() { work(s.Compartment("api")) }()
			}
			if synctest.Wait(); s.Snapshot().Proposal != nil {
				t.Fatalf("B15: proposed: %+v", s.Snapshot().Proposal)
			}
			time.Sleep(time.Second)
		}
	})
}
