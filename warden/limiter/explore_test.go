//go:build explore

// Every interleaving of a few calls on the real limiter, judged by whether some order of the calls explains the answers.

package limiter

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
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

// explained looks for an order of the calls, each at an instant between its beginning and its end, that a counter with a
// target could have answered with. A release that reports true decides first and gives the place back at a second instant of
// its own. A task that waits is granted its place at one instant of its call; that it is not granted one while there is
// one, the run itself shows by getting stuck.
func (w world) explained(d *driver) bool {
	type state struct {
		running, target, seq int
		closed               bool
	}
	calls := d.calls
	doneAt := make([]int, len(calls)) // 0 not begun, 1 decided (a release that won), 2 over
	decided := map[int]bool{}
	var search func(s state) bool
	search = func(s state) bool {
		minEnd := int(^uint(0) >> 1)
		left := false
		for i, c := range calls {
			if doneAt[i] < 2 {
				left = true
				if !c.unfinished {
					minEnd = min(minEnd, c.to)
				}
			}
		}
		if !left {
			return true
		}
		for i, c := range calls {
			if doneAt[i] == 2 || c.from > minEnd {
				continue
			}
			next, was, won := s, doneAt[i], false
			doneAt[i] = 2
			legal := true
			switch c.op {
			case "acquire":
				switch {
				case c.ok:
					legal = !s.closed && s.running < s.target
					next.running++
				case c.why == Closed:
					legal = s.closed
				case c.why == Canceled:
				case c.try && w.queue > 0:
					legal = true // somebody may have been waiting: not to be seen from the calls
				default:
					legal = !s.closed && s.running >= s.target && (c.why == PressureHigh) == (s.target == 0)
				}
			case "release":
				switch {
				case c.ok && was == 0:
					legal, won = !decided[c.id], true
					decided[c.id], doneAt[i] = true, 1
				case c.ok:
					next.running--
				default:
					legal = decided[c.id]
				}
			case "apply":
				if c.seq >= s.seq {
					next.seq, next.target = c.seq, c.target
				}
			case "close":
				next.closed = true
			}
			if legal && search(next) {
				return true
			}
			doneAt[i] = was
			if won && legal {
				decided[c.id] = false
			}
		}
		return false
	}
	return search(state{target: w.target, seq: 1})
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

// judge says what is wrong with a finished run, or nothing.
func (w world) judge(d *driver, stuck bool) string {
	switch {
	case stuck:
		return fmt.Sprintf("stuck: %d run, target %d, %d queued, %d places free", running(d.l.state.v.Load()), target(d.l.state.v.Load()), d.l.queue.waiting, d.free)
	case d.over != "":
		return d.over
	case !w.owned && !w.explained(d):
		return "no order of the calls explains the answers"
	}
	var want Stats
	for _, c := range d.calls {
		switch {
		case c.op == "acquire":
			want.Submitted++
			switch {
			case c.ok:
				want.Running++
			case c.why == Canceled:
				want.Canceled++
			default:
				want.Rejected++
			}
		case c.op == "release" && c.ok:
			want.Running--
			want.Executed++
		}
	}
	s := d.l.Stats()
	want.Target, want.byReason = s.Target, s.byReason
	if s != want {
		return fmt.Sprintf("Stats at rest: %+v; counted: %+v", s, want)
	}
	if w.owned && d.free+s.Running != w.free {
		return fmt.Sprintf("%d of %d places are free, with %d running", d.free, w.free, s.Running)
	}
	return ""
}

func (d *driver) history() string {
	var b strings.Builder
	for _, c := range d.calls {
		fmt.Fprintf(&b, "  [%d,%d] %s id=%d try=%v ok=%v %s target=%d unfinished=%v\n", c.from, c.to, c.op, c.id, c.try, c.ok, c.why, c.target, c.unfinished)
	}
	return b.String()
}

// TestExploreQ1Q2Q6Q9 covers starting, waiting and ending: never above the target, nobody refused below it, nobody left
// waiting, nobody counted twice.
func TestExploreQ1Q2Q6Q9(t *testing.T) {
	cycle := (*driver).cycle
	try := func(d *driver) { d.release(d.try()) }
	hold := func(d *driver) { d.acquire() }
	exploreAll(t, map[string]world{
		"two without a queue":        {target: 1, switches: 6, threads: []script{try, try}},
		"three without a queue":      {target: 2, switches: 2, threads: []script{try, cycle, try}},
		"two, one place":             {target: 1, queue: 2, switches: 4, threads: []script{cycle, cycle}},
		"three, one place":           {target: 1, queue: 2, switches: 2, threads: []script{cycle, cycle, cycle}},
		"three, two places":          {target: 2, queue: 2, switches: 2, threads: []script{cycle, cycle, cycle}},
		"one waits, one may not":     {target: 1, queue: 1, switches: 2, threads: []script{cycle, try, cycle}},
		"twice each":                 {target: 1, queue: 2, switches: 3, threads: []script{func(d *driver) { d.cycle(); d.cycle() }, func(d *driver) { d.cycle(); d.release(d.try()) }}},
		"released by another thread": {target: 1, queue: 2, switches: 4, setup: hold, threads: []script{func(d *driver) { d.release(1) }, cycle}},
		"pooled seats":               {target: 1, queue: 2, noSeats: true, switches: 3, threads: []script{cycle, cycle}},
		"two copies of one permit": {target: 1, queue: 1, switches: 4, setup: hold, threads: []script{
			func(d *driver) { d.release(1) }, func(d *driver) { d.release(1); d.cycle() }}},
		"a stale copy after reuse": {target: 1, queue: 1, switches: 4, setup: hold, threads: []script{
			func(d *driver) { d.release(1); d.cycle() }, func(d *driver) { d.release(1) }}},
	})
}

// TestExploreQ1Q9_Apply covers decisions: a start is under one decision or the other, and a higher target wakes.
func TestExploreQ1Q9_Apply(t *testing.T) {
	cycle := (*driver).cycle
	try := func(d *driver) { d.release(d.try()) }
	hold := func(d *driver) { d.acquire() }
	exploreAll(t, map[string]world{
		"raised while two wait":    {target: 0, highest: 2, queue: 2, switches: 2, threads: []script{cycle, cycle, func(d *driver) { d.apply(2, 2) }}},
		"raised from nothing":      {target: 0, highest: 1, switches: 2, threads: []script{try, func(d *driver) { d.apply(2, 1) }, try}},
		"lowered while one starts": {target: 2, switches: 4, setup: hold, threads: []script{try, func(d *driver) { d.apply(2, 1); d.try() }}},
		"two decisions, two orders": {target: 1, highest: 2, queue: 2, switches: 2, threads: []script{
			func(d *driver) { d.apply(3, 1); d.cycle() }, func(d *driver) { d.apply(2, 2) }, cycle}},
		"lowered to nothing and raised": {target: 1, queue: 1, switches: 2, threads: []script{
			func(d *driver) { d.apply(2, 0); d.apply(3, 1) }, cycle, try}},
	})
}

// TestExploreQ12 covers a grant that meets the end of its context, and Close that meets either.
func TestExploreQ12(t *testing.T) {
	cycle := (*driver).cycle
	hold := func(d *driver) { d.acquire() }
	stop := func(d *driver) { d.step(nil); d.cancel() }
	lasting := func(d *driver) { d.release(d.ask(context.Background(), false)) }
	exploreAll(t, map[string]world{
		"canceled while granted":             {target: 1, queue: 1, switches: 3, setup: hold, threads: []script{cycle, stop, func(d *driver) { d.release(1) }}},
		"canceled, and another waits":        {target: 1, queue: 2, switches: 1, setup: hold, threads: []script{cycle, lasting, stop, func(d *driver) { d.release(1) }}},
		"canceled while others start":        {target: 1, queue: 1, switches: 2, threads: []script{cycle, stop, lasting}},
		"closed while granted":               {target: 1, queue: 1, switches: 3, setup: hold, threads: []script{cycle, (*driver).close, func(d *driver) { d.release(1) }}},
		"closed while one starts":            {target: 1, queue: 1, switches: 4, threads: []script{cycle, func(d *driver) { d.close(); d.try() }}},
		"evicted while granted and canceled": {target: 1, queue: 1, switches: 1, setup: hold, threads: []script{cycle, func(d *driver) { d.urgent(High) }, stop, func(d *driver) { d.release(1) }}},
	})
}

// TestExploreQ1Q9_Slots covers places that an owner grants: a refusal that meets a place coming free leaves nobody waiting.
func TestExploreQ1Q9_Slots(t *testing.T) {
	cycle := (*driver).cycle
	other := func(d *driver) {
		if d.borrow() {
			d.repay()
		}
	}
	stop := func(d *driver) { d.step(nil); d.cancel() }
	lasting := func(d *driver) { d.release(d.ask(context.Background(), false)) }
	exploreAll(t, map[string]world{
		"two, one place":                {target: 2, queue: 2, owned: true, free: 1, switches: 3, threads: []script{cycle, cycle}},
		"two, one place, target 1":      {target: 1, queue: 2, owned: true, free: 1, switches: 3, threads: []script{cycle, cycle}},
		"one, and another borrower":     {target: 1, queue: 1, owned: true, free: 1, switches: 5, threads: []script{cycle, other}},
		"two, and another borrower":     {target: 1, queue: 2, owned: true, free: 1, switches: 2, threads: []script{cycle, cycle, other}},
		"two, a borrower, room for all": {target: 3, queue: 2, owned: true, free: 1, switches: 3, threads: []script{cycle, cycle, other}},
		"two borrowers, target 2":       {target: 2, queue: 2, owned: true, free: 1, switches: 2, threads: []script{cycle, other, other}},
		"one cancels while Slots ask":   {target: 1, queue: 2, owned: true, free: 1, switches: 2, threads: []script{cycle, stop, lasting, other}},
		"a decision meets a borrower":   {target: 0, highest: 1, queue: 2, owned: true, free: 1, switches: 3, threads: []script{cycle, other, func(d *driver) { d.apply(2, 1) }}},
		"lowered while Slots are asked": {target: 1, queue: 1, owned: true, free: 1, switches: 3, threads: []script{cycle, other, func(d *driver) { d.apply(2, 0); d.apply(3, 1) }}},
		"closed while Slots are asked":  {target: 1, queue: 2, owned: true, free: 1, switches: 3, threads: []script{cycle, other, (*driver).close}},
		"one may not wait, one borrows": {target: 1, queue: 2, owned: true, free: 1, switches: 2, threads: []script{func(d *driver) { d.release(d.try()) }, cycle, other}},
	})
}

func exploreAll(t *testing.T, worlds map[string]world) {
	for name, w := range worlds {
		t.Run(name, func(t *testing.T) {
			if n := explore(t, w); n < 10 {
				t.Fatalf("only %d schedules: the threads did not meet", n)
			} else {
				t.Logf("%d schedules", n)
			}
		})
	}
}
