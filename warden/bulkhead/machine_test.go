// SPDX-License-Identifier: Apache-2.0

// A machine that drives a set and its model side by side in virtual time, and fails at the first difference,
// in words that begin with the number that it is about.

package bulkhead

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

// A move is an operation and two numbers that say which.
type move struct{ op, a, b int }

type machine struct {
	s        *Set
	m        *setModel
	calls    []*callRun
	admitted int // that held a slot after the last step
}

// callRun is a call at the set, beside the model's.
type callRun struct {
	is       *callModel
	cancel   context.CancelFunc
	leave    chan struct{}
	started  atomic.Bool
	returned atomic.Bool
	err      error // written before returned
}

// shapes are the sets that the machine drives. No call runs for long enough that its Timeout passes.
func shapes() []Config {
	return []Config{
		{Total: 10, Compartments: []CompartmentConfig{
			{Name: "bronze", Guaranteed: 1, Max: 5, Timeout: time.Hour},
			{Name: "gold", Guaranteed: 4, Lendable: 2, Max: 6, MaxQueue: 3, MaxWait: 50 * time.Millisecond,
				Criticality: decision.Critical},
			{Name: "silver", Guaranteed: 3, Lendable: 3, Max: 8, MaxQueue: 2, Timeout: time.Hour, Criticality: decision.High},
			{Name: "many", Guaranteed: 2, Max: 6, MaxQueue: 2, Criticality: decision.Background, Tenants: TenantsConfig{Max: 3, Keys: 3}},
		}},
		{Total: 6, Compartments: []CompartmentConfig{
			{Name: "a", Guaranteed: 3, Lendable: 2, Max: 6, MaxQueue: 3, Timeout: time.Hour},
			{Name: "b", Guaranteed: 2, Lendable: 2, Max: 6, MaxQueue: 3},
			{Name: "c", Max: 6, MaxQueue: 3},
		}},
		{Total: 4, Compartments: []CompartmentConfig{
			{Name: "t", Max: 4, MaxQueue: 2, MaxWait: 40 * time.Millisecond,
				Tenants: TenantsConfig{Max: 3, Keys: 4, Weight: func(key string) int {
					return 1 + int(key[0])%2
				}}},
			{Name: "u", Guaranteed: 2, Lendable: 1, Max: 3, MaxQueue: 2, Timeout: time.Hour, Tenants: TenantsConfig{Max: 3, Keys: 2}},
		}},
	}
}

func newMachine(cfg Config) *machine {
	s, err := New(cfg)
	if err != nil {
		panic(err)
	}
	return &machine{s: s, m: newSetModel(cfg)}
}

func (x *machine) submit(a, b int) {
	p := x.m.pools[a%len(x.m.pools)]
	key := string(rune('a' + b%5))
	ctx, cancel := context.WithCancel(context.Background())
	run := &callRun{cancel: cancel, leave: make(chan struct{})}
	x.calls = append(x.calls, run)
	c := x.s.Compartment(p.cfg.Name).Tenant(key)
	go func() {
		_, run.err = Do(ctx, c, func(context.Context) (int, error) {
			run.started.Store(true)
			<-run.leave
			return 0, nil
		})
		run.returned.Store(true)
	}()
	synctest.Wait()
	run.is = x.m.submit(p, key, c)
}

// some is one of the calls in this state, nil if there is none.
func (x *machine) some(a int, state callState) *callRun {
	in := slices.DeleteFunc(slices.Clone(x.calls), func(run *callRun) bool { return run.is.state != state })
	if len(in) == 0 {
		return nil
	}
	return in[a%len(in)]
}

func (x *machine) release(run *callRun) {
	close(run.leave)
	synctest.Wait()
	x.m.release(run.is)
}

func (x *machine) cancel(run *callRun) {
	run.cancel()
	synctest.Wait()
	x.m.cancel(run.is, string(decision.Canceled))
}

// resize makes up a plan; one in four is of a revision that has passed.
func (x *machine) resize(a, b int) string {
	rng := rand.New(rand.NewPCG(uint64(a), uint64(b)))
	p := x.s.Plan()
	p.Total = 1 + rng.IntN(12)
	left := p.Total
	for i := range p.Compartments {
		sh := &p.Compartments[i]
		sh.Guaranteed = rng.IntN(left + 1)
		if least := min(1, x.m.pools[i].cfg.Tenants.Max); rng.IntN(2) == 0 {
			sh.MaxQueue = least + rng.IntN(4)
		}
		switch {
		case sh.MaxQueue == 0:
			sh.MaxWait = 0
		case rng.IntN(2) == 0:
			sh.MaxWait = time.Duration(1+rng.IntN(4)) * time.Second
		}
		if rng.IntN(2) == 0 {
			sh.Timeout = time.Duration(rng.IntN(2)) * 1000 * time.Hour
		}
		if left -= sh.Guaranteed; sh.MaxQueue > 0 {
			sh.Lendable = rng.IntN(sh.Guaranteed + 1)
		} else {
			sh.Lendable = 0
		}
		low := max(1, sh.Guaranteed)
		sh.Max = low + rng.IntN(p.Total-low+1)
	}
	if stale := a%4 == 0; stale {
		p.Revision += uint64(b) - 16
	}
	want := p.Revision == x.m.revision
	rng.Shuffle(len(p.Compartments), func(i, j int) {
		p.Compartments[i], p.Compartments[j] = p.Compartments[j], p.Compartments[i]
	})
	revision, err := x.s.Resize(p)
	synctest.Wait()
	var stale *conflictError
	if !want {
		if !errors.As(err, &stale) || stale.current != x.m.revision {
			return fmt.Sprintf("B7: a plan of revision %d: %v", p.Revision, err)
		}
		return ""
	}
	x.m.revision++
	if err != nil || revision != x.m.revision {
		return fmt.Sprintf("B7: Resize(%+v): %d, %v", p, revision, err)
	}
	x.m.planned = p.Total
	for _, pool := range x.m.pools {
		pool.plan = p.Compartments[slices.IndexFunc(p.Compartments, func(sh Share) bool { return sh.Name == pool.cfg.Name })]
		pool.cfg.MaxQueue, pool.cfg.MaxWait, pool.cfg.Timeout = pool.plan.MaxQueue, pool.plan.MaxWait, pool.plan.Timeout
	}
	x.m.enforce()
	return ""
}

// setMode puts a compartment into a mode, by a plan that is otherwise as it was.
func (x *machine) setMode(a int, mode decision.Mode) string {
	p := x.s.Plan()
	i := a % len(p.Compartments)
	p.Compartments[i].Mode = mode
	if _, err := x.s.Resize(p); err != nil {
		return fmt.Sprintf("Resize(%+v): %v", p, err)
	}
	synctest.Wait()
	x.m.revision++
	x.m.pools[i].plan.Mode = mode
	x.m.enforce()
	return ""
}

// apply applies a decision; one in eight is too old.
func (x *machine) apply(a, b int) {
	d := decision.ControlDecision{Seq: x.m.seq + 1, TargetConcurrency: a % 14}
	if b%8 == 0 && x.m.seq > 1 {
		d.Seq = x.m.seq - 1
	}
	if b%4 == 1 {
		d.ValidFor = time.Duration(b) * 3 * time.Millisecond
		if b%8 == 5 {
			d.Stale = &decision.ControlDecision{TargetConcurrency: b % 6}
		}
	}
	x.s.Apply(d)
	synctest.Wait()
	if d.Seq < x.m.seq {
		return
	}
	x.m.seq, x.m.target, x.m.stale, x.m.staleAt = d.Seq, d.TargetConcurrency, -1, 0
	if d.ValidFor > 0 {
		x.m.staleAt = x.m.now + d.ValidFor
		if d.Stale != nil {
			x.m.stale = min(d.Stale.TargetConcurrency, d.TargetConcurrency)
		}
	}
	x.m.enforce()
}

func (x *machine) step(v move) string {
	sleep(time.Microsecond) // no two calls come in one instant, so none are late in one
	x.m.advance(time.Microsecond)
	switch v.op % 11 {
	case 0, 1, 2, 3:
		return x.checkSubmit(v)
	case 4, 5:
		if run := x.some(v.a, inside); run != nil {
			x.release(run)
		}
	case 6:
		if run := x.some(v.a, waits); run != nil {
			x.cancel(run)
		}
	case 7:
		d := time.Duration(v.a)*2*time.Millisecond + 100*time.Microsecond
		sleep(d)
		x.m.advance(d)
	case 8:
		if v.b%2 == 0 {
			return x.resize(v.a, v.b)
		}
	case 9:
		x.apply(v.a, v.b)
	case 10:
		return x.setMode(v.a, decision.Mode(v.b%3))
	}
	return ""
}

// checkSubmit is submit, with what B2 says about it, told from outside.
func (x *machine) checkSubmit(v move) string {
	before := x.s.Snapshot()
	i := v.a % len(before.Compartments)
	c := before.Compartments[i]
	owed := 0 // what would be in flight if everybody used what is kept
	for _, c := range before.Compartments {
		owed += max(c.InFlight, c.Effective.Guaranteed-c.Effective.Lendable)
	}
	x.submit(v.a, v.b)
	run := x.calls[len(x.calls)-1]
	if c.InFlight < c.Effective.Guaranteed-c.Effective.Lendable && c.Tenants == nil && owed <= before.EffectiveTotal &&
		!run.started.Load() {
		return fmt.Sprintf("B2: %q had %d in flight, keeps %d, and a call was not admitted at once", c.Name, c.InFlight,
			c.Effective.Guaranteed-c.Effective.Lendable)
	}
	return ""
}

// check compares the set with its model, and with what must hold whatever the model says.
func (x *machine) check() string {
	snap := x.s.Snapshot()
	held := snap.InFlight - beyond(snap)
	if held > x.admitted && held > snap.EffectiveTotal {
		return fmt.Sprintf("B1: %d slots held after an admission, %d in total", held, snap.EffectiveTotal)
	}
	x.admitted = held
	if snap.EffectiveTotal != x.m.total {
		return fmt.Sprintf("B11: a total of %d, want %d", snap.EffectiveTotal, x.m.total)
	}
	if snap.Total != x.m.planned || snap.Revision != x.m.revision {
		return fmt.Sprintf("B7: total %d of %d, revision %d; want %d, %d, %d", snap.EffectiveTotal, snap.Total, snap.Revision,
			x.m.total, x.m.planned, x.m.revision)
	}
	if failed := disagree(x.s); failed != "" {
		return "B5: " + failed
	}
	for i, run := range x.calls {
		state := waits
		switch {
		case run.returned.Load() && run.err == nil:
			state = over
		case run.returned.Load():
			state = rejected
		case run.started.Load():
			state = inside
		}
		if state != run.is.state {
			return fmt.Sprintf("%s: call %d in %q: state %d (%v), want %d (%s)", about(run.is, state), i, run.is.pool.cfg.Name, state,
				run.err, run.is.state, run.is.why)
		}
		if state == rejected && string(reasonOf(run.err)) != run.is.why {
			return fmt.Sprintf("B5: call %d in %q: %v, want %s", i, run.is.pool.cfg.Name, run.err, run.is.why)
		}
	}
	guaranteed := 0
	for i, p := range x.m.pools {
		c := snap.Compartments[i]
		got := fmt.Sprint(c.InFlight, c.Queued, c.Submitted, c.Admitted, c.Finished, c.Effective.Guaranteed, c.Effective.Lendable,
			c.Effective.Max,
			c.Borrowed, union(c.Rejected, c.Left))
		want := fmt.Sprint(p.held()+p.withoutSlot(), p.queued(), p.submitted, p.admitted, p.finished, p.now.Guaranteed, p.now.Lendable,
			p.now.Max,
			max(0, p.held()-p.now.Guaranteed), p.rejectedFor)
		if c.Effective.Guaranteed != p.now.Guaranteed || c.Effective.Lendable != p.now.Lendable || c.Effective.Max != p.now.Max {
			return fmt.Sprintf("B11: %q: %+v, want %+v", c.Name, c, p.now)
		}
		if c.WithoutSlot != p.withoutSlot() || c.Mode != p.plan.Mode {
			return fmt.Sprintf("B12: %q: %d beyond, %s; want %d, %s", c.Name, c.WithoutSlot, c.Mode, p.withoutSlot(), p.plan.Mode)
		}
		if fmt.Sprint(c.WouldReject) != fmt.Sprint(p.wouldBe) {
			return fmt.Sprintf("B13: %q: %v, want %v", c.Name, c.WouldReject, p.wouldBe)
		}
		if got != want {
			return fmt.Sprintf("B5: %q: %s, want %s", c.Name, got, want)
		}
		if guaranteed += c.Effective.Guaranteed; c.Tenants != nil &&
			fmt.Sprint(c.Tenants.Keys, c.Tenants.Evicted) != fmt.Sprint(len(p.known), p.evicted) {
			return fmt.Sprintf("B8: %q: %+v, want %d keys, %d evicted", c.Name, c.Tenants, len(p.known), p.evicted)
		}
	}
	if guaranteed > snap.EffectiveTotal {
		return fmt.Sprintf("B11: %d guaranteed of %d", guaranteed, snap.EffectiveTotal)
	}
	return ""
}

// beyond is how many calls run without a slot.
func beyond(snap Snapshot) (n int) {
	for _, c := range snap.Compartments {
		n += c.WithoutSlot
	}
	return n
}

// about is the number that speaks of who gets a slot, of a call that is in another state than its model.
func about(is *callModel, state callState) string {
	switch {
	case is.pool.cfg.Tenants.Max > 0:
		return "B8"
	case state == inside && is.pool.held() >= is.pool.now.Guaranteed, is.state == inside && is.pool.held() > is.pool.now.Guaranteed:
		return "B3" // borrowed, or not
	case state == inside || is.state == inside:
		return "B2"
	}
	return "B5"
}

func union(a, b map[string]uint64) map[string]uint64 {
	out := map[string]uint64{}
	for _, m := range []map[string]uint64{a, b} {
		for k, v := range m {
			out[k] += v
		}
	}
	return out
}

// disagree says which numbers of a set at rest do not add up.
func disagree(s *Set) string {
	sum := 0
	snap := s.Snapshot()
	lent, borrowed, guaranteed := 0, 0, 0
	for _, c := range snap.Compartments {
		sum += c.InFlight
		lent, borrowed, guaranteed = lent+c.Lent, borrowed+c.Borrowed, guaranteed+c.Effective.Guaranteed
		switch {
		case c.Submitted != c.Admitted+total(c.Rejected)+total(c.Left)+uint64(c.Queued):
			return fmt.Sprintf("submitted: %+v", c)
		case c.Admitted != c.Finished+uint64(c.InFlight):
			return fmt.Sprintf("admitted: %+v", c)
		case total(c.Outcomes) != c.Finished+uint64(c.Abandoned):
			return fmt.Sprintf("answered: %+v", c)
		}
	}
	switch {
	case sum != snap.InFlight:
		return fmt.Sprintf("in flight: %+v", snap)
	case snap.InFlight-beyond(snap) <= snap.EffectiveTotal && lent != max(0, borrowed-(snap.EffectiveTotal-guaranteed)):
		return fmt.Sprintf("lent %d, borrowed %d: %+v", lent, borrowed, snap)
	}
	return ""
}
