// The report: a table of both phases, the way of one rejected request, and the verdict.
package main

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"
)

// figures are what a journal comes to.
type figures struct {
	sent, answered [routes]int
	paid           int            // executions of payments
	visits         map[string]int // requests that a service worked on
	arrivals       map[string]int // attempts that reached it
	late           []time.Duration
}

// count counts the requests that came when the services had warmed up.
func (sc scenario) count(book *journal) figures {
	f := figures{visits: map[string]int{}, arrivals: map[string]int{}}
	for _, p := range book.pages {
		if p.at < sc.warm {
			continue
		}
		f.sent[p.route]++
		f.late = append(f.late, p.late)
		if p.answered() {
			f.answered[p.route]++
		}
		f.paid += p.paid
		for _, v := range p.visits {
			f.visits[v.service]++
		}
		for s, n := range p.arrivals {
			f.arrivals[s] += n
		}
	}
	slices.Sort(f.late)
	return f
}

// answered: the user has what he came for, in time.
func (p page) answered() bool { return len(p.outcomes) == 1 && p.outcomes[0].status == http.StatusOK }

func (f figures) all() (n int) {
	for _, a := range f.answered {
		n += a
	}
	return n
}

// share is the part of a route's users who were answered in time.
func (f figures) share(r route) float64 { return part(f.answered[r], f.sent[r]) }

// ofCapacity is the part of what payments can do that users had something of.
func (f figures) ofCapacity(sc scenario) float64 {
	return float64(f.all()) / (sc.capacity() * (sc.lasts - sc.warm).Seconds())
}

// wasted is the part of payments' executions whose user had left when the answer came, or had another one.
func (f figures) wasted() float64 { return part(f.paid-f.all(), f.paid) }

// attempts is how often a service was called for each request that the one in front of it worked on.
func (f figures) attempts(from, to string) float64 { return part(f.arrivals[to], f.visits[from]) }

// lateness is how late the 99th of 100 requests were sent: what the machine itself makes everybody wait, time and again.
func (f figures) lateness() time.Duration { return f.late[len(f.late)*99/100] }

func part(n, of int) float64 { return float64(n) / float64(max(of, 1)) }

// Targets of the second phase. A machine that is late by a tenth of the users' patience misses them by itself, and the report then says
// so.
const (
	leastCritical = 0.97
	leastCapacity = 0.75
	mostWasted    = 0.01
	mostAttempts  = 1.1 // retry.Config.Ratio
)

// report prints all of it and says whether the second phase reached its targets, and the first one missed them.
func (sc scenario) report(out io.Writer, before, after *journal) bool {
	a, b := sc.count(before), sc.count(after)
	row := func(name string, value func(figures) float64) {
		fmt.Fprintf(out, "%-50s %17.3f %17.3f\n", name, value(a), value(b))
	}
	fmt.Fprintf(out, "\n%-50s %17s %17s\n%-50s %17s %17s\n", "", "three attempts,", "deadline and", "", "nothing carried", "priority carried")
	for r := range routes {
		row(fmt.Sprintf("%v (%v): answered in time", r, r.priority()), func(f figures) float64 { return f.share(r) })
	}
	row("answered in time, of what payments can do", func(f figures) float64 { return f.ofCapacity(sc) })
	row("payments' work that nobody waited for", figures.wasted)
	row("attempts at orders for each call", func(f figures) float64 { return f.attempts("gateway", "orders") })
	row("attempts at payments for each call", func(f figures) float64 { return f.attempts("orders", "payments") })

	fmt.Fprintf(out, "%-50s %14d ms %14d ms\n", "the machine itself was late by (p99)", a.lateness().Milliseconds(), b.lateness().Milliseconds())

	told := follows(out, after)
	fmt.Fprintln(out)
	holds := true
	claim := func(is bool, format string, args ...any) {
		mark := "ok  "
		if !is {
			mark, holds = "FAIL", false
		}
		fmt.Fprintf(out, "%s %s\n", mark, fmt.Sprintf(format, args...))
	}
	claim(a.share(checkout) < leastCritical, "nothing carried: less than %.2f of checkouts are answered (%.3f)", leastCritical, a.share(checkout))
	claim(b.share(checkout) >= leastCritical, "carried: at least %.2f of checkouts are answered (%.3f)", leastCritical, b.share(checkout))
	claim(b.ofCapacity(sc) >= leastCapacity, "carried: at least %.2f of the capacity is answered (%.3f)", leastCapacity, b.ofCapacity(sc))
	claim(b.wasted() <= mostWasted, "carried: at most %.2f of payments' work is for nobody (%.3f)", mostWasted, b.wasted())
	worst := max(b.attempts("gateway", "orders"), b.attempts("orders", "payments"))
	claim(worst <= mostAttempts, "carried: at most %.1f attempts for each call (%.3f)", mostAttempts, worst)
	claim(told, "carried: a rejection has the same decision number in all logs")
	if holds {
		fmt.Fprintln(out, "VERDICT: holds. What matters is answered end to end, and payments works for those who still wait.")
	} else {
		fmt.Fprintln(out, "VERDICT: does not hold, see FAIL above.")
	}
	if late := b.lateness(); !holds && late > sc.patience/10 {
		fmt.Fprintf(out, "The machine was late by %v itself, of the %v that users wait: try again when it has less to do.\n", late.Round(time.Millisecond), sc.patience)
	}
	return holds
}

// follows prints the way of one request that was rejected as far inside as any, and reports whether every log names the reason and
// the decision that its user was told.
func follows(out io.Writer, book *journal) bool {
	id := -1
	for i, p := range book.pages {
		if p.explained() && (id < 0 || len(p.rejections) > len(book.pages[id].rejections)) {
			id = i
		}
	}
	if id < 0 {
		return false
	}
	p := book.pages[id]
	fmt.Fprintf(out, "\nRequest %d, %v, in the logs of those who saw it, from the inside out:\n", id, p.route)
	for _, line := range p.rejections {
		fmt.Fprintf(out, "  %-9s %s\n", line.service+":", line.text)
	}
	o := p.outcomes[0]
	fmt.Fprintf(out, "  %-9s told %d %s, decision %d\n", "user:", o.status, o.reason, o.decision)
	return true
}

// explained: the user was rejected by one service, which has a line about it, and every service in front of that one has a line that it
// passed this rejection on. Numbers alone do not say so: each warden counts its own decisions.
func (p page) explained() bool {
	if len(p.outcomes) != 1 || p.outcomes[0].decision == 0 || len(p.rejections) != len(p.arrivals) {
		return false
	}
	for i, line := range p.rejections {
		passedOn := line.status != 0
		if line.decision != p.outcomes[0].decision || line.reason != p.outcomes[0].reason || passedOn != (i > 0) {
			return false
		}
	}
	return true
}
