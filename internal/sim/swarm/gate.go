// Gates in front of the service: none, the real limiter under a control law, or failsafe-go's adaptive limiter.

package swarm

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
)

// gate answers attempts through engine.start or engine.refuse, immediately or later.
type gate interface {
	open(e *engine)
	ask(a *attempt)
	release(a *attempt) // ends a started attempt
	leave(a *attempt)   // cancels its context
	tick()
	close()
}

// pass is a gate's data of an attempt.
type pass struct {
	permit limiter.Permit
	ctx    *leaving
	slot   adaptivelimiter.Permit
}

// unlimited starts every attempt.
type unlimited struct{ e *engine }

func (g *unlimited) open(e *engine)   { g.e = e }
func (g *unlimited) ask(a *attempt)   { g.e.start(a) }
func (g *unlimited) release(*attempt) {}
func (g *unlimited) leave(*attempt)   {}
func (g *unlimited) tick()            {}
func (g *unlimited) close()           {}

// failsafe is failsafe-go's adaptive limiter with its defaults; it rejects attempts above the limit.
type failsafe struct {
	e     *engine
	clock clock
	l     adaptivelimiter.AdaptiveLimiter[any]
}

func (g *failsafe) open(e *engine) {
	g.e, g.clock, g.l = e, clock{time.Now()}, adaptivelimiter.NewWithDefaults[any]()
}

func (g *failsafe) ask(a *attempt) {
	g.clock.follow(g.e.now)
	p, ok := g.l.TryAcquirePermit()
	if !ok {
		g.e.refuse(a, g.e.now)
		return
	}
	a.pass.slot = p
	g.e.start(a)
}

func (g *failsafe) release(a *attempt) {
	g.clock.follow(g.e.now)
	a.pass.slot.Record()
}

func (g *failsafe) leave(*attempt) {}
func (g *failsafe) tick()          { g.e.result.note(g.e, g.l.Limit(), nil, nil, 0) }
func (g *failsafe) close()         {}

// clock is the bubble's clock.
type clock struct{ start time.Time }

// follow advances the bubble's clock to the engine's.
func (c clock) follow(now time.Duration) {
	if d := now - time.Since(c.start); d > 0 {
		time.Sleep(d)
	}
}

// limited is the real limiter under a control law.
//
// An attempt that finds a free slot and an empty queue calls the limiter from the engine's goroutine. Every other attempt is a
// goroutine until it is answered. Before and after each call of the limiter, the engine waits until all of them block, and it
// processes their answers in order of the attempts. Therefore no result depends on the order in which the Go scheduler runs them.
type limited struct {
	e        *engine
	clock    clock
	law      Law
	cfg      limiter.Config
	l        *limiter.Limiter
	waiting  int
	constant bool
	rules    decision.ControlDecision

	mu      sync.Mutex // guards settled
	settled []settlement
	apart   []settlement // the previous settled, for reuse
}

// settlement is the limiter's answer to an attempt.
type settlement struct {
	of     *attempt
	at     time.Duration
	permit limiter.Permit
	err    error
}

// under returns the gate of a control law.
func under(w *World, m Maker) (*limited, error) {
	law, cfg, err := m(w)
	if err != nil {
		return nil, err
	}
	g := &limited{law: law, cfg: cfg, clock: clock{time.Now()}}
	_, g.constant = law.(Constant)
	g.rules = law.Step(sampleAt(g.clock.start))
	g.cfg.Initial, g.cfg.Rand = g.rules, rand.New(rand.NewPCG(w.Seed, 5)).Float64
	g.l, err = limiter.New(g.cfg)
	return g, err
}

func (g *limited) open(e *engine) { g.e = e }

// settle processes the answers to queued attempts, with the bubble's clock at the engine's time.
func (g *limited) settle() {
	for g.waiting > 0 {
		synctest.Wait()
		g.mu.Lock()
		got := g.settled
		g.settled, g.apart = g.apart[:0], nil
		g.mu.Unlock()
		slices.SortFunc(got, func(a, b settlement) int { return cmp.Compare(a.of.number, b.of.number) })
		for _, s := range got {
			g.waiting--
			g.answer(s)
		}
		clear(got)
		g.apart = got
		if len(got) == 0 {
			return
		}
	}
}

func (g *limited) answer(s settlement) {
	if s.err != nil {
		g.e.refuse(s.of, s.at)
		return
	}
	s.of.pass.permit = s.permit
	g.e.start(s.of)
}

// meet advances the limiter's clock to the engine's and processes the answers that became due.
func (g *limited) meet() {
	g.clock.follow(g.e.now)
	g.settle()
}

func (g *limited) ask(a *attempt) {
	g.meet()
	task := limiter.Task{Priority: a.priority}
	ctx := context.Background()
	switch g.e.w.Knows {
	case "told":
		task.Deadline = g.clock.start.Add(a.due)
	case "cancel":
		a.pass.ctx = &leaving{done: make(chan struct{})}
		if a.left {
			a.pass.ctx.leave()
		}
		ctx = a.pass.ctx
	}
	if s := g.l.Stats(); g.waiting == 0 && s.Running < s.Target {
		permit, err := g.l.Acquire(ctx, task)
		g.answer(settlement{a, g.e.now, permit, err})
		return
	}
	g.waiting++
	go func() {
		permit, err := g.l.Acquire(ctx, task)
		at := time.Since(g.clock.start)
		g.mu.Lock()
		g.settled = append(g.settled, settlement{a, at, permit, err})
		g.mu.Unlock()
	}()
	g.settle()
}

func (g *limited) release(a *attempt) {
	g.meet()
	a.pass.permit.Release()
	g.settle()
}

func (g *limited) leave(a *attempt) {
	if a.pass.ctx == nil {
		return // not submitted yet
	}
	g.meet()
	a.pass.ctx.leave()
	g.settle()
}

func (g *limited) tick() {
	if g.waiting > 0 {
		g.meet() // a rejection must reach the engine before its user retries
	}
	if g.constant && !g.e.result.trace {
		return
	}
	g.meet()
	s := g.e.sample(g.clock.start)
	ruled := g.rules
	g.rules = g.law.Step(s)
	g.l.Apply(g.rules)
	g.e.result.note(g.e, ruled.TargetConcurrency, &s, &g.rules, g.waiting)
	g.settle()
}

func (g *limited) close() {
	g.e.result.stats, g.e.result.queued = g.l.Stats(), g.waiting
	g.l.Close()
	synctest.Wait()
}

// leaving is a context that can only be canceled.
type leaving struct {
	mu   sync.Mutex // guards err
	err  error
	done chan struct{}
}

func (c *leaving) Deadline() (time.Time, bool) { return time.Time{}, false }
func (c *leaving) Done() <-chan struct{}       { return c.done }
func (c *leaving) Value(any) any               { return nil }

func (c *leaving) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *leaving) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = context.Canceled
		close(c.done)
	}
}
