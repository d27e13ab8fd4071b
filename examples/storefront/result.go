// The results of an act, as a table, and the verdict: claims about the results that must hold for the demo to count.
package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// figures count the requests of one route in one phase. Latency is the time from the intended start of a request to its
// outcome, rejections included.
type figures struct { //nolint:recvcheck // record alone changes them
	sent int
	by   map[outcome]int
	took []time.Duration
	ends [fates][]time.Duration // the same latencies, by what became of the client
}

// A fate is what became of a client.
type fate int

const (
	served fate = iota
	no          // an answer that says why not
	left        // neither: the client gave up, or the connection broke
	fates
)

func (o outcome) fate() fate {
	switch o {
	case "", cached:
		return served
	case late, other:
		return left
	}
	return no
}

// A result has the figures of one act, by phase and route.
type result [][routes]figures

func (f *figures) record(o outcome, took time.Duration) {
	if f.by == nil {
		f.by = map[outcome]int{}
	}
	f.sent++
	f.by[o]++
	f.took = append(f.took, took)
	f.ends[o.fate()] = append(f.ends[o.fate()], took)
}

// share is the share of requests with one of these outcomes; 0 without requests.
func (f figures) share(these ...outcome) float64 {
	n := 0
	for _, o := range these {
		n += f.by[o]
	}
	return float64(n) / float64(max(1, f.sent))
}

// success is the share of requests that got a full answer in time.
func (f figures) success() float64 { return f.share("", cached) }

// quantile is a latency that the share q of the requests did not exceed.
func (f figures) quantile(q float64) time.Duration {
	return quantile(f.took, q)
}

// quantile is a latency that the share q of these did not exceed; 0 if there are none.
func quantile(took []time.Duration, q float64) time.Duration {
	if len(took) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(took))[max(0, int(math.Ceil(q*float64(len(took))))-1)]
}

// cut formats a share with three digits, cut and not rounded: 1.000 means all.
func cut(x float64) string { return fmt.Sprintf("%.3f", math.Floor(x*1000+1e-9)/1000) }

// print writes a line for each phase and route.
func (res result) print(w io.Writer, phases []phase) {
	fmt.Fprintf(w, "%-10s %-9s %5s %7s %7s %7s  %s\n", "phase", "route", "sent", "success", "p50 ms", "p99 ms",
		"all others, by reason")
	for p, of := range res {
		for r, f := range of {
			line := fmt.Sprintf("%-10s %-9s %5d %7s %7.1f %7.1f%s", phases[p].name, route(r), f.sent, cut(f.success()),
				f.quantile(.5).Seconds()*1000, f.quantile(.99).Seconds()*1000, f.reasons())
			fmt.Fprintln(w, strings.TrimRight(line, " "))
		}
	}
}

// compared tells what became of the clients of all routes in the rush of the sale, without a warden and with it.
func compared(patience time.Duration, alone, under [routes]figures) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nWhat became of the clients in the rush, who stay for %v:\n%-19s %5s %7s %7s %7s %8s %7s %7s  %s\n", patience,
		"", "sent",
		"served", "p50 ms", "p99 ms", "told no", "p50 ms", "p99 ms", "left without a word")
	for _, row := range []struct {
		name string
		of   [routes]figures
	}{{"compartments alone", alone}, {"with a warden", under}} {
		all, sent := ends(row.of)
		fmt.Fprintf(&b, "%-19s %5d", row.name, sent)
		for _, end := range []fate{served, no} {
			fmt.Fprintf(&b, " %*d %7s %7s", 7+int(end), len(all[end]), inMs(all[end], .5), inMs(all[end], .99))
		}
		fmt.Fprintf(&b, "  %d\n", len(all[left]))
	}
	return b.String()
}

// ends has the latencies of all routes by what became of the client, and how many requests were sent.
func ends(of [routes]figures) (all [fates][]time.Duration, sent int) {
	for _, f := range of {
		sent += f.sent
		for i := range all {
			all[i] = append(all[i], f.ends[i]...)
		}
	}
	return all, sent
}

// inMs is a quantile in milliseconds, for a table.
func inMs(took []time.Duration, q float64) string {
	if len(took) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", quantile(took, q).Seconds()*1000)
}

const legend = `
success: share of the sent requests with a full answer in time; 1.000 = all. p50, p99: from the moment a request was due to its
end, errors and rejections included. Why the other requests had no full answer:
  late             the client gave up before the answer came
  pool_timeout     no database connection became free in time
  timeout_running  the query exceeded its compartment's Timeout and was canceled
  timeout_queued   rejected: no slot of its compartment became free in time
  queue_overflow   rejected: its compartment's queue was full
  breaker_open     rejected: the circuit breaker had seen too many failures
  any other word   rejected by the warden before any work was done, to shed load
  cached           (a success) answered with an older list of products

Checks (ok or FAIL; measured values in brackets):
`

// A verdict is a list of claims, each with ok or FAIL.
type verdict struct {
	text  strings.Builder
	fails int
}

func (v *verdict) claim(holds bool, format string, args ...any) {
	mark := "ok  "
	if !holds {
		mark = "FAIL"
		v.fails++
	}
	fmt.Fprintf(&v.text, "%s %s\n", mark, fmt.Sprintf(format, args...))
}

// The thresholds of the verdict, as shares of the requests of one route in one phase.
const (
	lost   = 0.5  // checkout is down if less than this succeeds
	kept   = 0.99 // a route is unaffected if at least this succeeds
	silent = 0.1  // nearly everybody gets an answer if at most this leaves without one, of all routes
)

// keeps claims that the worst of these routes is unaffected. A route without requests counts as failed.
func (v *verdict) keeps(of [routes]figures, when string, these ...route) {
	worst := slices.MinFunc(these, func(a, b route) int {
		return int(math.Copysign(1, of[a].success()-of[b].success()))
	})
	v.claim(of[worst].success() >= kept, "%s: at least %.2f of %s succeed (lowest: %s %s)",
		when, kept, strings.ReplaceAll(strings.Trim(fmt.Sprint(these), "[]"), " ", ", "), worst, cut(of[worst].success()))
}

// isDown claims that a route fails, mostly for this reason.
func (v *verdict) isDown(f figures, when string, why outcome) {
	failed := 1 - f.success()
	v.claim(f.sent > 0 && f.success() < lost && 2*f.share(why) > failed,
		"%s: less than %.2f of checkout succeeds (%s; %s: %s of all)",
		when, lost, cut(f.success()), why, cut(f.share(why)))
}

// judge makes the verdict from the results of the four acts. It also checks the cause of the outages: all routes work before
// the slow query is deployed, and failures are mostly pool timeouts there, late answers in the sale.
func judge(pool, apart, alone, under result) *verdict {
	v := &verdict{}
	bystanders := []route{checkout, products, admin}
	v.keeps(pool[0], "one pool, healthy", bystanders...)
	v.isDown(pool[1][checkout], "one pool, slow report", "pool_timeout")

	v.keeps(apart[0], "compartments, healthy", bystanders...)
	v.keeps(apart[1], "compartments, slow report", bystanders...)
	full, open := apart[1][analytics].share("queue_overflow", "timeout_queued"), apart[1][analytics].share("breaker_open")
	v.claim(full+open >= 0.5 && full >= 0.1*(full+open),
		"compartments, slow report: at least 0.50 of analytics are rejected, a tenth of them for want of a slot (%s; breaker %s)",
		cut(full), cut(open))
	v.keeps(apart[2], "compartments, slow products too", bystanders...)
	instead := apart[2][products].share(cached)
	v.claim(instead >= 0.1, "compartments, slow products too: products answers from its cache instead (%s)", cut(instead))

	v.isDown(alone[1][checkout], "sale, compartments alone", late)
	v.keeps(under[0], "sale with a warden, healthy", checkout)
	v.keeps(under[1], "sale with a warden, rush", checkout)
	page := under[1][products].success()
	v.claim(page > 0 && page < 1, "sale with a warden, rush: some of products succeed, but not all (%s)", cut(page))
	all, sent := ends(under[1])
	v.claim(float64(len(all[left])) <= silent*float64(sent),
		"sale with a warden, rush: at most %.2f of all leave without a word (%d of %d)", silent, len(all[left]), sent)
	return v
}
