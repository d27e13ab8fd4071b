// SPDX-License-Identifier: Apache-2.0

// Guards of a server: none, the real limiter under a control law, or failsafe-go's adaptive limiter.

package sim

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
)

// Guard decides which attempts start on a server, by a gate for each.
type Guard struct {
	Name string
	make func(s *server) (gate, error)
}

// gate answers attempts through engine.start or engine.refuse, immediately or later.
type gate interface {
	ask(a *attempt)
	release(a *attempt) // ends a started attempt
	leave(a *attempt)   // cancels its context
	tick()
	close()
}

// pass is a gate's data of an attempt.
type pass struct {
	permit limiter.Permit
	cancel context.CancelFunc
	slot   adaptivelimiter.Permit
}

// Open starts every attempt.
var Open = Guard{"nothing", func(s *server) (gate, error) { return &unlimited{s.e}, nil }}

type unlimited struct{ e *engine }

func (g *unlimited) ask(a *attempt)   { g.e.start(a) }
func (g *unlimited) release(*attempt) {}
func (g *unlimited) leave(*attempt)   {}
func (g *unlimited) tick()            {}
func (g *unlimited) close()           {}

// Failsafe is failsafe-go's adaptive limiter with its defaults; it rejects attempts above the limit.
var Failsafe = Guard{"failsafe-go", func(s *server) (gate, error) {
	return &failsafe{unlimited{s.e}, s, adaptivelimiter.NewWithDefaults[any]()}, nil
}}

type failsafe struct {
	unlimited
	s *server
	l adaptivelimiter.AdaptiveLimiter[any]
}

func (g *failsafe) ask(a *attempt) {
	g.e.bubble.follow(g.e.now)
	var ok bool
	if a.pass.slot, ok = g.l.TryAcquirePermit(); ok {
		g.e.start(a)
	} else {
		g.e.refuse(a, g.e.now, nil)
	}
}

func (g *failsafe) release(a *attempt) {
	g.e.bubble.follow(g.e.now)
	a.pass.slot.Record()
}

func (g *failsafe) tick() {
	g.e.result.note(g.s, g.l.Limit(), monitor.Sample{}, decision.ControlDecision{}, 0)
}

// bubble is the synctest bubble that the limiters live in. Its clock follows the engine's whenever a limiter reads it.
type bubble struct {
	start   time.Time
	waiting int // attempts that limiters have not answered

	mu      sync.Mutex // guards settled
	settled []settlement
}

// settlement is a limiter's answer to an attempt.
type settlement struct {
	of     *attempt
	by     *limited
	at     time.Duration
	permit limiter.Permit
	err    error
}

func (b *bubble) follow(now time.Duration) {
	if d := now - time.Since(b.start); d > 0 {
		time.Sleep(d)
	}
}

// settle processes the answers to queued attempts, with the bubble's clock at the engine's time.
func (b *bubble) settle() {
	for b.waiting > 0 {
		synctest.Wait()
		b.mu.Lock()
		got := b.settled
		b.settled = nil
		b.mu.Unlock()
		slices.SortFunc(got, func(a, b settlement) int { return cmp.Compare(a.of.number, b.of.number) })
		for _, s := range got {
			b.waiting--
			s.by.waiting--
			s.by.answer(s)
		}
		if len(got) == 0 {
			return
		}
	}
}

// meet advances the limiters' clock to the engine's and processes the answers that became due.
func (b *bubble) meet(now time.Duration) {
	b.follow(now)
	b.settle()
}

// Under returns the guard of a control law.
func Under(name string, m Maker) Guard {
	return Guard{name, func(s *server) (gate, error) { return newLimited(s, m, false) }}
}

// limited is the real limiter under a control law.
//
// An attempt that finds a free slot and an empty queue calls the limiter from the engine's goroutine. Every other attempt is a
// goroutine until it is answered. Before and after each call of a limiter, the engine waits until all of them block, and it
// processes their answers in order of the attempts. Therefore no result depends on the order in which the Go scheduler runs them.
type limited struct {
	s       *server
	law     Law
	l       *limiter.Limiter
	waiting int
	deaf    bool // it is told neither deadlines nor priorities; otherwise priorities, and what Kind.Knows says of patience
	rules   decision.ControlDecision
}

func newLimited(s *server, m Maker, deaf bool) (*limited, error) {
	law, cfg, err := m(s.e.w)
	if err != nil {
		return nil, err
	}
	first := monitor.Sample{At: s.e.bubble.start, Processors: float64(s.e.w.Cores)}
	g := &limited{s: s, law: law, deaf: deaf, rules: law.Step(first)}
	cfg.Initial, cfg.Rand = g.rules, rand.New(rand.NewPCG(s.e.w.Seed, uint64(5+100*s.index))).Float64
	g.l, err = limiter.New(cfg)
	return g, err
}

func (g *limited) answer(s settlement) {
	if s.err != nil {
		g.s.e.refuse(s.of, s.at, s.err)
		return
	}
	s.of.pass.permit = s.permit
	g.s.e.start(s.of)
}

func (g *limited) ask(a *attempt) {
	e := g.s.e
	e.bubble.meet(e.now)
	task := limiter.Task{Name: g.s.sensor.of(a.kind).name, Tenant: a.kind.Tenant, Priority: a.priority}
	ctx := context.Background()
	if g.deaf {
		task = limiter.Task{}
	} else if a.kind.Knows == "told" {
		task.Deadline = e.bubble.start.Add(a.due)
	}
	if !g.deaf && a.kind.Knows == "cancel" {
		if ctx, a.pass.cancel = context.WithCancel(ctx); a.over {
			a.pass.cancel()
		}
	}
	if s := g.l.Stats(); g.waiting == 0 && s.Running < s.Target {
		permit, err := g.l.Acquire(ctx, task)
		g.answer(settlement{a, g, e.now, permit, err})
		return
	}
	g.waiting++
	e.bubble.waiting++
	go func() {
		permit, err := g.l.Acquire(ctx, task)
		b := &e.bubble
		at := time.Since(b.start)
		b.mu.Lock()
		b.settled = append(b.settled, settlement{a, g, at, permit, err})
		b.mu.Unlock()
	}()
	e.bubble.settle()
}

func (g *limited) release(a *attempt) {
	g.s.e.bubble.meet(g.s.e.now)
	a.pass.permit.Release()
	g.s.e.bubble.settle()
}

func (g *limited) leave(a *attempt) {
	if a.pass.cancel == nil {
		return // not submitted yet
	}
	g.s.e.bubble.meet(g.s.e.now)
	a.pass.cancel()
	g.s.e.bubble.settle()
}

func (g *limited) tick() {
	e := g.s.e
	if g.waiting > 0 {
		e.bubble.meet(e.now) // a rejection must reach the engine before its user retries
	}
	if _, constant := g.law.(Constant); constant && !e.result.trace {
		return
	}
	e.bubble.meet(e.now)
	s := g.s.sample()
	target := g.rules.TargetConcurrency
	g.rules = g.law.Step(s)
	g.l.Apply(g.rules)
	e.result.note(g.s, target, s, g.rules, g.waiting)
	e.bubble.settle()
}

func (g *limited) close() {
	r, s := g.s.e.result, g.l.Stats()
	r.stats.Submitted += s.Submitted
	r.stats.Executed += s.Executed
	r.stats.Running += s.Running
	r.stats.Queued += s.Queued
	r.stats.Rejected += s.Rejected
	r.stats.WouldReject += s.WouldReject
	r.queued += g.waiting
	g.l.Close()
	synctest.Wait()
}
