// The report: a table of both phases, the path of one rejected request, and the verdict.
package main

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"
)

// figures are the totals of a journal.
type figures struct {
	sent, answered [routes]int
	paid           int            // executions of payments
	spans          map[string]int // attempts that a service worked on
	arrivals       map[string]int // attempts that reached a service
	delays         []time.Duration
}

// count adds up the requests after the warm-up.
func (sc scenario) count(j *journal) figures {
	f := figures{spans: map[string]int{}, arrivals: map[string]int{}}
	for _, tr := range j.traces {
		if tr.at < sc.warm {
			continue
		}
		f.sent[tr.route]++
		f.delays = append(f.delays, tr.delay)
		if tr.answered() {
			f.answered[tr.route]++
		}
		f.paid += tr.paid
		for _, v := range tr.spans {
			f.spans[v.service]++
		}
		for s, n := range tr.arrivals {
			f.arrivals[s] += n
		}
	}
	slices.Sort(f.delays)
	return f
}

// answered reports whether the user got a response in time.
func (tr trace) answered() bool {
	return len(tr.outcomes) == 1 && tr.outcomes[0].status == http.StatusOK
}

func (f figures) all() (n int) {
	for _, a := range f.answered {
		n += a
	}
	return n
}

// share is the share of a route's requests that were answered in time.
func (f figures) share(r route) float64 { return ratio(f.answered[r], f.sent[r]) }

// goodput is the number of answered requests relative to the capacity of payments.
func (f figures) goodput(sc scenario) float64 {
	return float64(f.all()) / (sc.capacity() * (sc.lasts - sc.warm).Seconds())
}

// wasted is the share of payments' executions whose user had left or was answered by another execution.
func (f figures) wasted() float64 { return ratio(f.paid-f.all(), f.paid) }

// attempts is the number of calls of a service per request that the calling service worked on.
func (f figures) attempts(from, to string) float64 { return ratio(f.arrivals[to], f.spans[from]) }

// delay is the p99 delay of the load generator, which measures the load of the machine itself.
func (f figures) delay() time.Duration { return f.delays[len(f.delays)*99/100] }

func ratio(n, of int) float64 { return float64(n) / float64(max(of, 1)) }

// Targets of the second phase. They cannot be reached on a machine that delays requests by a tenth of the users' patience;
// the report says so.
const (
	leastCritical = 0.97
	leastGoodput  = 0.75
	mostWasted    = 0.01
	mostAttempts  = 1.1 // retry.Config.Ratio
)

// report prints everything and reports whether the second phase reached its targets and the first one did not.
func (sc scenario) report(out io.Writer, before, after *journal) bool {
	a, b := sc.count(before), sc.count(after)
	row := func(name string, value func(figures) float64) {
		fmt.Fprintf(out, "%-50s %17.3f %17.3f\n", name, value(a), value(b))
	}
	fmt.Fprintf(out, "\n%-50s %17s %17s\n%-50s %17s %17s\n", "", "three attempts,", "propagation and", "", "no propagation",
		"retry budget")
	for r := range routes {
		row(fmt.Sprintf("%v (%v): answered in time", r, r.priority()), func(f figures) float64 { return f.share(r) })
	}
	row("goodput: answered requests / payments' capacity", func(f figures) float64 { return f.goodput(sc) })
	row("payments' wasted work", figures.wasted)
	row("calls of orders per request of gateway", func(f figures) float64 { return f.attempts("gateway", "orders") })
	row("calls of payments per request of orders", func(f figures) float64 { return f.attempts("orders", "payments") })

	fmt.Fprintf(out, "%-50s %14d ms %14d ms\n", "delay of the load generator itself (p99)", a.delay().Milliseconds(),
		b.delay().Milliseconds())

	explained := printRejected(out, after)
	fmt.Fprintln(out)
	holds := true
	claim := func(is bool, format string, args ...any) {
		mark := "ok  "
		if !is {
			mark, holds = "FAIL", false
		}
		fmt.Fprintf(out, "%s %s\n", mark, fmt.Sprintf(format, args...))
	}
	claim(a.share(checkout) < leastCritical, "no propagation: less than %.2f of checkouts are answered (%.3f)", leastCritical,
		a.share(checkout))
	claim(b.share(checkout) >= leastCritical, "propagation: at least %.2f of checkouts are answered (%.3f)", leastCritical,
		b.share(checkout))
	claim(b.goodput(sc) >= leastGoodput, "propagation: goodput is at least %.2f of the capacity (%.3f)", leastGoodput, b.goodput(sc))
	claim(b.wasted() <= mostWasted, "propagation: at most %.2f of payments' work is wasted (%.3f)", mostWasted, b.wasted())
	worst := max(b.attempts("gateway", "orders"), b.attempts("orders", "payments"))
	claim(worst <= mostAttempts, "propagation: at most %.1f calls per request (%.3f)", mostAttempts, worst)
	claim(explained, "propagation: all logs of a rejected request have the same reason and decision number")
	if holds {
		fmt.Fprintln(out, "VERDICT: holds. Critical requests are answered end to end, and payments works only for users who still wait.")
	} else {
		fmt.Fprintln(out, "VERDICT: does not hold, see FAIL above.")
	}
	if delay := b.delay(); !holds && delay > sc.patience/10 {
		fmt.Fprintf(out, "This machine delayed requests by %v, of the %v that users wait: try again when it is less busy.\n",
			delay.Round(time.Millisecond), sc.patience)
	}
	return holds
}

// printRejected prints the path of a request that was rejected as deep in the chain as any. It reports whether all logs have
// the reason and the decision that the user received.
func printRejected(out io.Writer, j *journal) bool {
	id := -1
	for i, tr := range j.traces {
		if tr.explained() && (id < 0 || len(tr.rejections) > len(j.traces[id].rejections)) {
			id = i
		}
	}
	if id < 0 {
		return false
	}
	tr := j.traces[id]
	fmt.Fprintf(out, "\nRequest %d, %v, was rejected. The logs, from the inside out:\n", id, tr.route)
	for _, line := range tr.rejections {
		fmt.Fprintf(out, "  %-9s %s\n", line.service+":", line.text)
	}
	o := tr.outcomes[0]
	fmt.Fprintf(out, "  %-9s receives %d %s, decision %d\n", "user:", o.status, o.reason, o.decision)
	return true
}

// explained reports whether one service logged a rejection, and every service in front of it logged that it forwarded the same
// reason and decision. Equal numbers alone prove nothing: each warden counts its own decisions.
func (tr trace) explained() bool {
	if len(tr.outcomes) != 1 || tr.outcomes[0].decision == 0 || len(tr.rejections) != len(tr.arrivals) {
		return false
	}
	for i, line := range tr.rejections {
		forwarded := line.status != 0
		if line.decision != tr.outcomes[0].decision || line.reason != tr.outcomes[0].reason || forwarded != (i > 0) {
			return false
		}
	}
	return true
}
