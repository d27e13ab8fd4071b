//go:build explore

// Every interleaving of a few calls on the real limiter: threads that take turns step by step, in every order.

package limiter

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

// A call is one operation of a thread, with when it began and ended, in steps of the whole run.
type call struct {
	op         string // acquire, release, apply, close, take, give
	from, to   int
	ok         bool // acquire: granted; release: true; take: granted
	why        Reason
	id         int // acquire, release: the number of the grant, from 1
	target     int // apply
	seq        int
	try        bool
	unfinished bool
}

// A script is what one thread does, in terms of the driver's calls.
type script func(d *driver)

// driver runs threads as coroutines, one step at a time, and records their calls.
type driver struct {
	l       *Limiter
	current int
	yields  []func(func() bool) bool
	clock   int
	calls   []*call
	permits map[int]Permit
	ids     int
	free    int // places of the owner, if there is one
	asked   int // calls of TryTake that have been answered
	excused int // last step at which a Wake had no reason to ask: nobody waited, or the target had no room
	over    string
	target  int // the highest that any decision of the world has
	ctx     context.Context
	cancel  context.CancelFunc
	holds   int // permits held, counted from outside
}

func (d *driver) step(blocked func() bool) {
	d.yields[d.current](blocked)
	d.clock++
	if w := d.l.state.v.Load(); w&queued == 0 || !hasRoom(w) {
		d.excused = d.clock
	}
}

func (d *driver) call(op string) *call {
	d.clock++
	c := &call{op: op, from: d.clock, unfinished: true}
	d.calls = append(d.calls, c)
	return c
}

func (d *driver) end(c *call) {
	d.clock++
	c.to, c.unfinished = d.clock, false
}

func (d *driver) acquire() int      { return d.ask(d.ctx, false) }
func (d *driver) try() int          { return d.ask(d.ctx, true) }
func (d *driver) cycle()            { d.release(d.acquire()) }
func (d *driver) urgent(p Priority) { d.release(d.askTask(d.ctx, false, Task{Priority: p})) }

func (d *driver) ask(ctx context.Context, try bool) int { return d.askTask(ctx, try, Task{}) }

func (d *driver) askTask(ctx context.Context, try bool, t Task) int {
	c := d.call("acquire")
	c.try = try
	var p Permit
	var err error
	if try {
		p, err = d.l.TryAcquire(t)
	} else {
		p, err = d.l.Acquire(ctx, t)
	}
	d.end(c)
	var r *Rejection
	if errors.As(err, &r) {
		c.why = r.Reason
		return 0
	}
	if d.holds++; d.holds > d.target {
		d.over = fmt.Sprintf("%d hold a place at once", d.holds)
	}
	if e := p.Explain(); e.InFlight > e.Decision.TargetConcurrency {
		d.over = fmt.Sprintf("started as number %d under a decision for %d", e.InFlight, e.Decision.TargetConcurrency)
	}
	d.ids++
	c.ok, c.id = true, d.ids
	d.permits[c.id] = p
	return c.id
}

func (d *driver) release(id int) {
	if id == 0 {
		return
	}
	c := d.call("release")
	c.id = id
	d.holds--
	if c.ok = d.permits[id].Release(); !c.ok {
		d.holds++
	}
	d.end(c)
}

func (d *driver) apply(seq, target int) {
	c := d.call("apply")
	c.seq, c.target = seq, target
	d.l.Apply(decision.ControlDecision{Seq: uint64(seq), TargetConcurrency: target})
	d.end(c)
}

func (d *driver) close() {
	c := d.call("close")
	d.l.Close()
	d.end(c)
}

// TryTake and Give make the driver an owner of places; borrow and repay are somebody else who uses them.
func (d *driver) TryTake() bool {
	d.step(nil)
	d.asked++
	return d.take()
}

func (d *driver) take() bool {
	if d.free == 0 {
		return false
	}
	d.free--
	return true
}

func (d *driver) Give() {
	d.step(nil)
	d.free++
}

func (d *driver) borrow() bool { d.step(nil); return d.take() }

// repay offers the place to the limiter before anybody else: if it does not want it, it must have been asked.
func (d *driver) repay() {
	d.Give()
	from, asked := d.clock, d.asked
	d.l.Wake()
	if d.asked == asked && d.excused < from {
		d.over = "somebody waits, and was passed over: Wake has returned without asking"
	}
}

// world is one thing to explore: a limiter's shape and what its threads do.
type world struct {
	target, queue int
	highest       int  // of all targets; 0: target
	owned         bool // places come from the driver, which has free
	free          int
	noSeats       bool // permits get pooled seats
	switches      int  // how often a thread may be preempted in one run; negative: as often as it can be
	setup         func(d *driver)
	threads       []script
}

// run executes one schedule: choices[i] is which of the threads that could run took the i-th step; beyond its end,
// the running thread goes on as long as it can. It returns the whole schedule with the number of alternatives at each step.
func (w world) run(choices []int) (d *driver, taken, width []int, stuck bool) {
	d = &driver{permits: map[int]Permit{}, free: w.free, target: max(w.target, w.highest), yields: make([]func(func() bool) bool, len(w.threads)+1)}
	cfg := Config{MaxQueue: w.queue, StandAfter: time.Hour, Initial: decision.ControlDecision{Seq: 1, TargetConcurrency: w.target}}
	if w.owned {
		cfg.Slots = d
	}
	l, err := New(cfg)
	if err != nil {
		panic(err)
	}
	d.l = l
	d.ctx, d.cancel = context.WithCancel(context.Background())
	defer d.cancel()
	if w.noSeats {
		for i := range l.seats {
			l.seats[i].number.v.Store(1)
		}
	}
	d.current = len(w.threads)
	d.yields[d.current] = func(func() bool) bool { return true }
	if w.setup != nil {
		w.setup(d)
	}
	type thread struct {
		next    func() (func() bool, bool)
		blocked func() bool
		done    bool
	}
	ts := make([]*thread, len(w.threads))
	for i, body := range w.threads {
		next, stop := iter.Pull(func(yield func(func() bool) bool) {
			d.yields[i] = yield
			body(d)
		})
		_ = stop // a stuck run is reported, and its threads are left where they are
		ts[i] = &thread{next: next}
	}
	explorer = d
	defer func() { explorer = nil }()

	last, switches := -1, 0
	for {
		// Those that can run: the one that ran last first, so that choice 0 is no preemption.
		var can []int
		left := false
		for k := range ts {
			i := (max(last, 0) + k) % len(ts)
			t := ts[i]
			if t.done {
				continue
			}
			left = true
			if t.blocked == nil || !t.blocked() {
				can = append(can, i)
			}
		}
		if len(can) == 0 {
			return d, taken, width, left
		}
		if last >= 0 && can[0] == last && w.switches >= 0 && switches >= w.switches {
			can = can[:1]
		}
		choice := 0
		if n := len(taken); n < len(choices) {
			choice = choices[n]
		}
		if last >= 0 && can[0] == last && choice != 0 {
			switches++
		}
		taken, width = append(taken, choice), append(width, len(can))
		last = can[choice]
		d.current = last
		blocked, more := ts[last].next()
		ts[last].blocked, ts[last].done = blocked, !more
	}
}

// explore runs every schedule of w and returns how many there were.
func explore(t *testing.T, w world) int {
	t.Helper()
	runs := 0
	for choices := []int{}; ; {
		d, taken, width, stuck := w.run(choices)
		runs++
		if why := w.judge(d, stuck); why != "" {
			t.Fatalf("after %d runs, schedule %v: %s\n%s", runs, taken, why, d.history())
		}
		i := len(taken) - 1
		for ; i >= 0 && taken[i]+1 == width[i]; i-- {
		}
		if i < 0 {
			return runs
		}
		choices = append(append(choices[:0], taken[:i]...), taken[i]+1)
	}
}
