//go:build explore

// Every interleaving of a few calls on the real gate, judged by whether some order of the calls explains the answers.

package admission

import (
	"fmt"
	"iter"
	"strings"
	"testing"
)

// A call is one operation of a thread, with when it began and ended, in steps of the whole run.
type call struct {
	op         string // acquire, release, close, inflight, drain
	from, to   int
	ok         bool // acquire: admitted; release: true
	closed     bool // acquire: refused as Closed
	n          int  // inflight: the answer
	id         int  // acquire, release: the number of the admission, from 1
	unfinished bool
}

// A script is what one thread does, in terms of the driver's calls.
type script func(d *driver)

// driver runs threads as coroutines, one step at a time, and records their calls.
type driver struct {
	gate    *Gate
	current int
	yields  []func(func() bool) bool
	clock   int
	calls   []*call
	permits map[int]Permit
	ids     int
	lines   uint64
}

func (d *driver) step(blocked func() bool) {
	d.yields[d.current](blocked)
	d.clock++
}

func (d *driver) thread() uint64 { return uint64(d.current) % d.lines }

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

func (d *driver) acquire() int {
	c := d.call("acquire")
	p, err := d.gate.TryAcquire()
	d.end(c)
	if err != nil {
		c.closed = err.(*RejectedError).Reason == Closed
		return 0
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
	c.ok = d.permits[id].Release()
	d.end(c)
}

func (d *driver) do() {
	c := d.call("acquire")
	var r *call
	err := d.gate.Do(func() error {
		d.end(c)
		d.ids++
		c.ok, c.id = true, d.ids
		r = d.call("release")
		r.id, r.ok = c.id, true
		return nil
	})
	if err != nil {
		d.end(c)
		c.closed = err.(*RejectedError).Reason == Closed
		return
	}
	d.end(r)
}

func (d *driver) close() {
	c := d.call("close")
	d.gate.Close()
	d.end(c)
}

func (d *driver) inFlight() {
	c := d.call("inflight")
	c.n = d.gate.InFlight()
	d.end(c)
}

// drain registers with Drain's own steps and waits as a thread that is blocked until the channel is closed.
func (d *driver) drain() {
	c := d.call("drain")
	if empty, wait := d.gate.wait(); wait {
		d.step(func() bool {
			select {
			case <-empty:
				return false
			default:
				return true
			}
		})
	}
	d.end(c)
}

// explained looks for an order of the calls, each at an instant between its beginning and its end, that a counter could
// have answered with. A release that reports true decides first and gives the place back at a second instant of its own:
// a competitor may hear false in between.
func explained(calls []*call, limit int) bool {
	type state struct {
		inFlight int
		closed   bool
	}
	n := len(calls)
	doneAt := make([]int, n) // 0 not begun, 1 decided (a release that won), 2 over
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
					legal = !s.closed && s.inFlight < limit
					next.inFlight++
				case c.closed:
					legal = s.closed
				default:
					legal = !s.closed && s.inFlight == limit
				}
			case "release":
				switch {
				case c.ok && was == 0:
					legal, won = !decided[c.id], true
					decided[c.id], doneAt[i] = true, 1
				case c.ok:
					next.inFlight--
				default:
					legal = decided[c.id]
				}
			case "close":
				next.closed = true
			case "inflight":
				legal = c.n == s.inFlight
			case "drain":
				legal = s.inFlight == 0
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
	return search(state{})
}

// world is one thing to explore: a gate's shape and what its threads do.
type world struct {
	limit, lines, perLine int
	gathered              bool // start with all credits in the central word
	calm                  int  // releases until credits are spread again; 0: as many as it takes
	switches              int  // how often a thread may be preempted in one run; negative: as often as it can be
	setup                 func(d *driver)
	threads               []script
}

// run executes one schedule: choices[i] is which of the threads that could run took the i-th step; beyond its end,
// the running thread goes on as long as it can. It returns the whole schedule with the number of alternatives at each step.
func (w world) run(choices []int) (d *driver, taken, width []int, stuck bool) {
	g := newGate(Config{Limit: w.limit}, w.lines, w.perLine)
	d = &driver{gate: g, permits: map[int]Permit{}, lines: uint64(w.lines), yields: make([]func(func() bool) bool, len(w.threads))}
	if w.gathered {
		g.gather()
	}
	if w.calm > 0 {
		g.calmed = calmReleases - w.calm
	}
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
		defer stop()
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
	if stuck {
		return "deadlock"
	}
	if !explained(d.calls, w.limit) {
		return "no order of the calls explains the answers"
	}
	var admitted, rejected, released uint64
	for _, c := range d.calls {
		switch {
		case c.op == "acquire" && c.ok:
			admitted++
		case c.op == "acquire":
			rejected++
		case c.op == "release" && c.ok:
			released++
		}
	}
	s := d.gate.Stats()
	if s.Admitted != admitted || s.Rejected != rejected || s.Released != released || s.InFlight != int(admitted-released) {
		return fmt.Sprintf("Stats at rest: %+v; counted: admitted %d, rejected %d, released %d", s, admitted, rejected, released)
	}
	return ""
}

func (d *driver) history() string {
	var b strings.Builder
	for _, c := range d.calls {
		fmt.Fprintf(&b, "  [%d,%d] %s id=%d ok=%v closed=%v n=%d unfinished=%v\n", c.from, c.to, c.op, c.id, c.ok, c.closed, c.n, c.unfinished)
	}
	return b.String()
}

// TestExploreA1A3A5 covers acquiring and releasing: never above the limit, never a refusal without a reason, never a
// second release, in both modes of the gate and while it changes between them.
func TestExploreA1A3A5(t *testing.T) {
	cycle := func(d *driver) { d.release(d.acquire()) }
	twice := func(d *driver) { a, b := d.acquire(), d.acquire(); d.release(b); d.release(a) }
	one := func(d *driver) { d.acquire() }
	worlds := map[string]world{
		"two cycles, one credit in a slot":         {limit: 1, lines: 1, perLine: 1, switches: -1, threads: []script{cycle, one}},
		"two cycles, one credit, central":          {limit: 1, lines: 1, perLine: 1, gathered: true, switches: 4, threads: []script{cycle, cycle}},
		"three cycles, one credit in a slot":       {limit: 1, lines: 1, perLine: 1, switches: 2, threads: []script{cycle, cycle, cycle}},
		"three, two credits in two lines":          {limit: 2, lines: 2, perLine: 1, switches: 2, threads: []script{cycle, twice, cycle}},
		"a credit moves while another looks":       {limit: 2, lines: 2, perLine: 1, switches: 4, setup: one, threads: []script{cycle, cycle}},
		"three, two credits, one of them central":  {limit: 2, lines: 1, perLine: 1, switches: 2, threads: []script{cycle, twice, cycle}},
		"credits are spread while others acquire":  {limit: 2, lines: 2, perLine: 1, gathered: true, calm: 1, switches: 3, threads: []script{cycle, twice}},
		"the last credit is spread and taken":      {limit: 2, lines: 2, perLine: 1, gathered: true, calm: 1, switches: 3, threads: []script{cycle, func(d *driver) { d.acquire(); d.acquire(); d.acquire() }}},
		"spread and gathered again, three threads": {limit: 2, lines: 2, perLine: 1, gathered: true, calm: 1, switches: 2, threads: []script{cycle, twice, cycle}},
		"Do beside permits":                        {limit: 1, lines: 1, perLine: 1, switches: 3, threads: []script{(*driver).do, cycle}},
		"Do beside permits, central":               {limit: 1, lines: 1, perLine: 1, gathered: true, calm: 1, switches: 3, threads: []script{(*driver).do, cycle}},
		"two copies of one permit, slot": {limit: 1, lines: 1, perLine: 1, switches: 3, setup: one, threads: []script{
			func(d *driver) { d.release(1) }, func(d *driver) { d.release(1); d.acquire() }, one}},
		"two copies of one permit, central": {limit: 1, lines: 1, perLine: 1, gathered: true, switches: 3, setup: one, threads: []script{
			func(d *driver) { d.release(1) }, func(d *driver) { d.release(1); d.acquire() }, one}},
		"no names left": {limit: 1, lines: 1, perLine: 1, gathered: true, switches: 3, setup: nameless, threads: []script{cycle, cycle}},
		"two copies, no names left": {limit: 1, lines: 1, perLine: 1, gathered: true, switches: 3, setup: func(d *driver) { nameless(d); d.acquire() }, threads: []script{
			func(d *driver) { d.release(1); d.acquire() }, func(d *driver) { d.release(1) }}},
		"a stale copy after reuse": {limit: 1, lines: 1, perLine: 1, gathered: true, calm: 1, switches: 3, setup: one, threads: []script{
			func(d *driver) { d.release(1); d.release(d.acquire()) }, func(d *driver) { d.release(1) }}},
	}
	exploreAll(t, worlds)
}

// nameless leaves central admissions no identity but those of the pool.
func nameless(d *driver) {
	for i := range d.gate.lines {
		for j := range d.gate.lines[i].names {
			d.gate.lines[i].names[j].w.Add(identify)
		}
	}
}

// TestExploreA8 covers counting: InFlight is what it was at one instant of the call.
func TestExploreA8(t *testing.T) {
	cycle := func(d *driver) { d.release(d.acquire()) }
	exploreAll(t, map[string]world{
		"count while two cycle":  {limit: 2, lines: 2, perLine: 1, switches: 3, threads: []script{cycle, cycle, (*driver).inFlight}},
		"count while one cycles": {limit: 2, lines: 2, perLine: 1, switches: 3, threads: []script{cycle, (*driver).inFlight}},
		"count while a credit moves": {limit: 3, lines: 2, perLine: 1, switches: 3, setup: func(d *driver) { d.acquire() }, threads: []script{
			func(d *driver) { d.release(1) }, func(d *driver) { d.acquire(); d.acquire() }, (*driver).inFlight}},
	})
}

// TestExploreA10 covers Close and Drain: no admission after Close, no waiter forgotten or let go too early.
func TestExploreA10(t *testing.T) {
	cycle := func(d *driver) { d.release(d.acquire()) }
	one := func(d *driver) { d.acquire() }
	exploreAll(t, map[string]world{
		"close while one acquires":   {limit: 2, lines: 2, perLine: 1, switches: 4, threads: []script{cycle, (*driver).close}},
		"close, drain, look":         {limit: 2, lines: 2, perLine: 1, switches: 3, threads: []script{cycle, func(d *driver) { d.close(); d.drain(); d.inFlight() }}},
		"drain an open gate":         {limit: 1, lines: 1, perLine: 1, switches: 3, setup: one, threads: []script{func(d *driver) { d.release(1) }, (*driver).drain, cycle}},
		"two drains, two releases":   {limit: 2, lines: 2, perLine: 1, switches: 2, setup: func(d *driver) { d.acquire(); d.acquire() }, threads: []script{func(d *driver) { d.release(1); d.release(2) }, (*driver).drain, (*driver).drain}},
		"drain while others acquire": {limit: 1, lines: 1, perLine: 1, gathered: true, calm: 1, switches: 3, setup: one, threads: []script{func(d *driver) { d.release(1); d.release(d.acquire()) }, (*driver).drain}},
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
