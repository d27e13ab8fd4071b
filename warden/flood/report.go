// SPDX-License-Identifier: Apache-2.0

// The results: of each load, what the clients saw, as JSON and as a table.

package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// report is the JSON; schema.json describes it. Times are in milliseconds, shares from 0 to 1.
type report struct {
	Schema   string   `json:"schema"`
	Command  string   `json:"command"`
	URL      string   `json:"url"`
	HTTP     string   `json:"http"`
	Capacity float64  `json:"capacity"`
	Measured bool     `json:"capacity_measured"`
	Runs     []result `json:"runs"`
}

// result is one load. All but Recovery, Late and NotSent is about requests that were due during the load itself.
type result struct {
	Load     float64        `json:"load"`
	Offered  float64        `json:"offered"` // per second
	Goodput  float64        `json:"goodput"` // served, of what could be: the offered, at most the capacity
	Hung     float64        `json:"hung"`    // share of clients that left without any answer
	Broken   float64        `json:"broken"`  // share of clients whose connection was refused or broke before an answer
	Shares   []share        `json:"priorities"`
	P50      float64        `json:"served_p50_ms"`
	P99      float64        `json:"served_p99_ms"`
	FirstNo  float64        `json:"first_no_ms"` // after the load's start; -1: nobody heard no
	NoP50    float64        `json:"no_p50_ms"`
	NoP99    float64        `json:"no_p99_ms"`
	Recovery float64        `json:"recovery_ms"` // after the load's end; -1: not while it was watched
	Statuses map[string]int `json:"statuses"`
	Late     float64        `json:"late_p99_ms"` // of the generator
	NotSent  int            `json:"not_sent"`
	Doubt    string         `json:"doubt,omitempty"`
}

// share is what the clients of one priority saw.
type share struct {
	Priority string  `json:"priority"`
	Due      int     `json:"due"`
	Served   float64 `json:"served"`
	Refused  float64 `json:"refused"`
	Hung     float64 `json:"hung"`
	Broken   float64 `json:"broken"`
	P99      float64 `json:"served_p99_ms"`
}

// counts are requests by how they ended.
type counts struct{ Due, Served, Refused, Hung, Broken int }

func (c *counts) add(o *outcome) {
	c.Due++
	switch o.ended() {
	case "served":
		c.Served++
	case "refused":
		c.Refused++
	case "hung", "not sent":
		c.Hung++
	case "broken":
		c.Broken++
	}
}

func ms(d time.Duration) float64 { return math.Round(float64(d)/float64(time.Microsecond)) / 1000 }

// quantile is that of times, which it sorts; 0 of none.
func quantile(times []time.Duration, q float64) float64 {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return ms(times[min(len(times)-1, int(q*float64(len(times))))])
}

// part is n of all; 0 of none.
func part(n, all int) float64 {
	if all == 0 {
		return 0
	}
	return float64(n) / float64(all)
}

// mostLate is the lateness of the generator at which a run is in doubt.
const mostLate = 20 // ms

// tally sums up one load.
func (p *plan) tally(load float64, all []outcome) result {
	r := result{Load: load, FirstNo: -1, Statuses: map[string]int{}}
	type sums struct {
		counts
		times []time.Duration // of those served
	}
	var sum sums
	by := map[string]*sums{}
	for _, priority := range priorities {
		by[priority] = &sums{}
	}
	var noes, late []time.Duration
	for i := range all {
		o := &all[i]
		late = append(late, o.sent-o.due)
		if o.notSent {
			r.NotSent++
		}
		if o.phase != step {
			continue
		}
		r.Statuses[strconv.Itoa(o.status)]++
		for _, s := range []*sums{by[o.route.priority], &sum} {
			if s.add(o); o.served() {
				s.times = append(s.times, o.done-o.due)
			}
		}
		if o.refused() {
			noes = append(noes, o.done-o.due)
			if at := ms(o.done - p.before); r.FirstNo < 0 || at < r.FirstNo {
				r.FirstNo = at
			}
		}
	}
	r.Offered = float64(sum.Due) / p.length.Seconds()
	if possible := min(float64(sum.Due), p.capacity*p.length.Seconds()); possible > 0 {
		r.Goodput = float64(sum.Served) / possible
	}
	r.Hung, r.Broken = part(sum.Hung, sum.Due), part(sum.Broken, sum.Due)
	r.P50, r.P99, r.NoP50, r.NoP99 = quantile(sum.times, .5), quantile(sum.times, .99), quantile(noes, .5), quantile(noes, .99)
	for _, priority := range priorities {
		if s := by[priority]; s.Due > 0 {
			r.Shares = append(r.Shares, share{priority, s.Due, part(s.Served, s.Due), part(s.Refused, s.Due), part(s.Hung, s.Due),
				part(s.Broken, s.Due), quantile(s.times, .99)})
		}
	}
	r.Recovery = p.recovery(all)
	var doubts []string
	if r.Late = quantile(late, .99); r.Late > mostLate {
		doubts = append(doubts, fmt.Sprintf("the generator was %.0f ms late: this machine is too busy", r.Late))
	}
	r.Doubt = strings.Join(append(doubts, p.unknown(all)...), "; ")
	return r
}

// unknown says which routes were never served, and always with the same status of the client's fault: they are asked for in a way that
// the service does not know, such as another method.
func (p *plan) unknown(all []outcome) (said []string) {
	statuses := map[*route]map[int]int{}
	for i := range p.routes {
		statuses[&p.routes[i]] = map[int]int{}
	}
	for i := range all {
		statuses[all[i].route][all[i].status]++
	}
	for i := range p.routes {
		r := &p.routes[i]
		for status, due := range statuses[r] {
			if len(statuses[r]) == 1 && due > 1 && status >= 400 && status < 500 && status != 429 {
				said = append(said, fmt.Sprintf("no %s %s was served, all had status %d", r.method, r.path, status))
			}
		}
	}
	return said
}

// recovery returns when, after the load's end, the clients of each later second were served as well as before it, or nearly all,
// in milliseconds; -1: not while it was watched.
func (p *plan) recovery(all []outcome) float64 {
	seconds := int(p.after / time.Second)
	was, is := counts{}, make([]counts, seconds+1)
	for i := range all {
		switch o := &all[i]; o.phase {
		case before:
			was.add(o)
		case after:
			is[int((o.due-p.before-p.length)/time.Second)].add(o)
		case step:
		}
	}
	want := .95
	if was.Due > 0 {
		want *= part(was.Served, was.Due)
	}
	recovered := -1.0
	for at := seconds - 1; at >= 0 && (is[at].Due == 0 || part(is[at].Served, is[at].Due) >= want); at-- {
		recovered = float64(at) * 1000
	}
	return recovered
}

// writeRequests writes a line for each request, in the order in which they were due.
func writeRequests(file string, all []outcome) error {
	f, err := os.Create(file) //nolint:gosec // the user named it
	if err != nil {
		return err
	}
	lines := [][]string{{"load", "phase", "route", "priority", "due_ms", "sent_ms", "done_ms", "status", "ended"}}
	for i := range all {
		o := &all[i]
		text := func(d time.Duration) string { return strconv.FormatFloat(ms(d), 'f', 3, 64) }
		lines = append(lines, []string{
			strconv.FormatFloat(o.load, 'g', -1, 64), o.phase.String(), o.route.name, o.route.priority,
			text(o.due), text(o.sent), text(o.done), strconv.Itoa(o.status), o.ended(),
		})
	}
	return errors.Join(csv.NewWriter(f).WriteAll(lines), f.Close())
}

// markdown is the table.
func (r *report) markdown() string {
	var b strings.Builder
	how := map[bool]string{false: "given", true: "measured"}[r.Measured]
	fmt.Fprintf(&b, "%s over %s, capacity %.0f/s (%s)\n\n", r.URL, r.HTTP, r.Capacity, how)
	b.WriteString("| load | offered/s | goodput | served, by priority | hung | broken | first no | a no, p50 / p99 | served, p50 / p99 | recovery |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|\n")
	var doubts strings.Builder
	for i := range r.Runs {
		run := &r.Runs[i]
		var shares []string
		for _, s := range run.Shares {
			shares = append(shares, fmt.Sprintf("%s %.3f", s.Priority, s.Served))
		}
		fmt.Fprintf(&b, "| %g× | %.0f | %.3f | %s | %.3f | %.3f | %s | %.0f / %.0f ms | %.0f / %.0f ms | %s |\n", run.Load, run.Offered, run.Goodput,
			strings.Join(shares, ", "), run.Hung, run.Broken, orNone(run.FirstNo, "nobody heard no"), run.NoP50, run.NoP99, run.P50, run.P99,
			orNone(run.Recovery, "not seen"))
		if run.Doubt != "" {
			fmt.Fprintf(&doubts, "\n%g×: %s\n", run.Load, run.Doubt)
		}
	}
	return b.String() + doubts.String()
}

func orNone(ms float64, none string) string {
	if ms < 0 {
		return none
	}
	return fmt.Sprintf("%.0f ms", ms)
}
