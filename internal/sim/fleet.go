// SPDX-License-Identifier: Apache-2.0

// Fleets: servers behind a load balancer and users who retry, pushed over by a trigger. Who comes back by themselves?

package sim

import (
	"fmt"
	"math"
	"strings"
	"time"
)

func wardens() Guard {
	g := Ours
	g.Name = "warden"
	return g
}

func once() Retry      { return Retry{Name: "no retries", Attempts: 1} }
func immediate() Retry { return Retry{Name: "3 attempts at once", Attempts: 3} }
func backoff() Retry {
	return Retry{Name: "3 attempts, backoff", Attempts: 3, Backoff: 0.1, Full: true}
}

// clients are the compared clients. The last one has 1000 processes with 1.4 requests per second each at a load of 0.7.
func clients() []Retry {
	finagle := backoff()
	finagle.Name, finagle.Budget = "backoff, Finagle's budget", 0.2
	return []Retry{
		once(), immediate(), backoff(), finagle,
		{Name: "`retry.Caller` in 20 processes", Callers: 20},
		{Name: "`retry.Caller` in 1000 processes", Callers: 1000},
	}
}

// fleet is a fleet at this load; its first spell is the trigger.
func fleet(servers, places int, k Kind, load float64) *World {
	w := &World{
		Seed: 1, Kinds: []Kind{k}, Servers: servers, Cores: 2, Places: places, Shape: "steady", Length: 20,
		Spells: []Spell{{From: 4, Until: 7}}, Retry: immediate(), Network: 0.0005, Entry: 0.0001,
	}
	w.Peak = load * w.capacity(0)
	return w
}

// cpuFleet is a CPU-bound fleet; ioFleet waits for a shared dependency.
func cpuFleet(n int, load float64) *World { return fleet(n, 0, work(20*ms, 0), load) }
func ioFleet(n int, load float64) *World  { return fleet(n, 5*n, work(1*ms, 40*ms), load) }

// The triggers. The load step hits a CPU-bound fleet; the others hit a fleet with a shared dependency.
func step(w *World, load float64) *World {
	w.Name, w.Spells[0].Rate = fmt.Sprintf("load %.3g, %g for 3 s", w.Load(), load), load*w.capacity(0)
	return w
}

func slow(w *World) *World {
	w.Name, w.Spells[0].Slow = "load 0.7, dependency 5 times slower for 3 s", 5
	return w
}

func moment(w *World) *World {
	step(w, 4).Name, w.Spells[0].Until = "load 0.7, 4 for 0.2 s", 4.2
	return w
}

func down(w *World) *World {
	w.Name, w.Spells[0].Down, w.Spells[0].Until, w.Length = "everything is refused for 20 s", true, 24, 32
	return w
}

const size = 20

// Fleets are the fleets whose users make three immediate attempts.
func Fleets() []*World {
	return []*World{step(cpuFleet(size, 0.7), 2), slow(ioFleet(size, 0.7)), moment(cpuFleet(size, 0.7))}
}

// under returns the guards that a fleet is compared under.
func under(w *World) []Guard {
	right := 2 * w.Cores
	if w.Places > 0 {
		right = 2 * w.Places / w.Servers
	}
	return []Guard{
		Open, Pool("bound", right, 0), Pool("bound ten times as high", 10*right, 0), Pool("bound, queue of 1024", right, 1024),
		wardens(),
	}
}

// hops is a chain of three services at twice the capacity of the last one. The first two have a quarter more capacity than the
// load needs.
func hops(patience float64, propagate bool) *World {
	w := cpuFleet(4, 2)
	front := w.Kinds[0].Service / 2.5
	w.Front, w.Propagate, w.Inner, w.Kinds[0].Patience, w.Retry = []float64{front, front}, propagate, 1, patience, once()
	return w
}

// stretch is a part of a fleet's run: requests by arrival time, attempts by their own time.
type stretch struct {
	Tally
	attempts, throttled int
}

func (s *stretch) amplification() float64 { return float64(s.attempts) / max(float64(s.Offered), 1) }

// during adds up the part in [from, until).
func (r *Result) during(from, until float64) *stretch {
	var s stretch
	inside := func(at time.Duration) bool { return at.Seconds() >= from && at.Seconds() < until }
	for i := range r.users {
		if u := &r.users[i]; inside(u.at) {
			s.count(u)
			s.throttled += one(u.attempts == 0)
		}
	}
	for _, at := range r.tries {
		s.attempts += one(inside(at))
	}
	return &s
}

// warm is excluded at the start of the run; last is the length of its final part; window is the precision of a recovery.
const warm, last, window = 2.0, 4.0, 0.5

func (r *Result) trigger() *Spell  { return &r.World.Spells[0] }
func (r *Result) before() *stretch { return r.during(warm, r.trigger().From) }
func (r *Result) amid() *stretch   { return r.during(r.trigger().From, r.trigger().Until) }
func (r *Result) after() *stretch  { return r.during(r.World.Length-last, r.World.Length) }

// refused is the last ten seconds of the trigger.
func (r *Result) refused() *stretch { return r.during(r.trigger().Until-10, r.trigger().Until) }

// Recovery is the time from the end of the trigger until goodput is back: of the requests from then on, at least 95 % as many
// are answered as before the trigger. False: not within the run.
func (r *Result) Recovery() (float64, bool) {
	enough, at := 0.95*r.before().Share(), r.World.Length
	for at > 0 && r.during(at-window, at).Share() >= enough {
		at -= window
	}
	return max(at, r.trigger().Until) - r.trigger().Until, at < r.World.Length
}

// FinalLoad is the rate of all attempts in the final part, relative to the capacity. Below 1, a backlog shrinks.
func (r *Result) FinalLoad() float64 {
	return float64(r.after().attempts) / (last * r.World.capacity(0))
}

// Metastable reports whether the fleet stays down long after the trigger and cannot recover by itself: in the final part less
// than half of the requests are answered, and attempts exceed the capacity.
func (r *Result) Metastable() bool {
	return r.after().Share() < 0.5*r.before().Share() && r.FinalLoad() > 1
}

// Wasted is the fraction of executions at a hop whose user had left.
func (r *Result) Wasted(hop int) float64 {
	return float64(r.hops[hop].wasted) / max(float64(r.hops[hop].all), 1)
}

func (r *Result) back() string {
	if d, ok := r.Recovery(); ok {
		return fmt.Sprintf("%.1f s", d)
	}
	if r.Metastable() {
		return "**never**"
	}
	return "not yet"
}

// FleetTable is the Markdown table of runs.
func FleetTable(runs ...*Result) string {
	var b strings.Builder
	b.WriteString("| what happens | servers | before | during | critical | in the end | back after | load in the end | wasted |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range runs {
		amid := r.amid()
		fmt.Fprintf(&b, "| %s | %s | %.3f | %.3f | %.3f | %.3f | %s | %.2f | %.0f %% |\n",
			r.World.Name, r.Guard, r.before().Share(), amid.Share(), amid.CriticalShare(), r.after().Share(), r.back(),
			r.FinalLoad(), math.Round(100*r.Wasted(len(r.hops)-1)))
	}
	return b.String()
}

// GuardTable is the Markdown table of recovery times: one row per fleet, one column per guard.
func GuardTable(rows [][]*Result) string {
	var b strings.Builder
	b.WriteString("| what happens |")
	for _, r := range rows[0] {
		fmt.Fprintf(&b, " %s |", r.Guard)
	}
	b.WriteString("\n|" + strings.Repeat("---|", len(rows[0])+1) + "\n")
	for _, row := range rows {
		fmt.Fprintf(&b, "| %s |", row[0].World.Name)
		for _, r := range row {
			fmt.Fprintf(&b, " %s |", r.back())
		}
		b.WriteString("\n")
	}
	return b.String()
}

// ClientTable is the Markdown table of clients, one row each: recovery after a load step without and with wardens and after a slow
// dependency without, and attempts at servers that reject everything.
func ClientTable(rows [][]*Result) string {
	var b strings.Builder
	b.WriteString("| clients | step; nothing guards | step; wardens | slow dependency; nothing guards | " +
		"attempts per request if all is refused |\n|---|---|---|---|---|\n")
	for _, row := range rows {
		fmt.Fprintf(&b, "| %s |", row[0].World.Retry.Name)
		last := len(row) - 1
		for _, r := range row[:last] {
			fmt.Fprintf(&b, " %s |", r.back())
		}
		fmt.Fprintf(&b, " %.2f |\n", row[last].refused().amplification())
	}
	return b.String()
}

// HopTable is the Markdown table of call chains.
func HopTable(runs ...*Result) string {
	var b strings.Builder
	b.WriteString("| users wait | calls carry | answered | critical | wasted at hop 1 | at hop 2 | at hop 3 |\n|---|---|---|---|---|---|---|\n")
	for _, r := range runs {
		carry := "nothing"
		if r.World.Propagate {
			carry = "deadline and criticality"
		}
		s := r.during(warm, r.World.Length)
		fmt.Fprintf(&b, "| %g ms | %s | %.3f | %.3f |", 1000*r.World.Kinds[0].Patience, carry, s.Share(), s.CriticalShare())
		for hop := range r.hops {
			fmt.Fprintf(&b, " %.1f %% |", 100*r.Wasted(hop))
		}
		b.WriteString("\n")
	}
	return b.String()
}
