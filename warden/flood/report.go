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
	Schema    string   `json:"schema"`
	Command   string   `json:"command"`
	URL       string   `json:"url"`
	HTTP      string   `json:"http"`
	KeepAlive bool     `json:"keep_alive"`
	Capacity  float64  `json:"capacity"`
	Measured  bool     `json:"capacity_measured"`
	Runs      []result `json:"runs"`
}

// result is one load. All but Recovery, Late, NotSent and Timeline is about requests that were due during the load itself.
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
	Attempts float64        `json:"attempts"`    // per request
	Statuses map[string]int `json:"statuses"`
	Late     float64        `json:"late_p99_ms"` // of the generator
	NotSent  int            `json:"not_sent"`
	Doubt    string         `json:"doubt,omitempty"`
	Timeline []second       `json:"timeline"`
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

// second is a second of the run, by when requests were due. Critical requests are counted in all numbers as well.
type second struct {
	At             int    `json:"at"` // seconds since the start
	Phase          string `json:"phase"`
	Due            int    `json:"due"`
	Served         int    `json:"served"`
	Refused        int    `json:"refused"`
	Hung           int    `json:"hung"`
	Broken         int    `json:"broken"`
	CriticalDue    int    `json:"critical_due"`
	CriticalServed int    `json:"critical_served"`
}

func newReport(p *plan) *report {
	protocol := "HTTP/1.1"
	if p.http2 {
		protocol = "HTTP/2"
	}
	return &report{Schema: "github.com/stopbank/stopbank/flood/schema.json", URL: p.url.String(), HTTP: protocol, KeepAlive: !p.noKeepAlive}
}

func ms(d time.Duration) float64 { return math.Round(float64(d)/float64(time.Microsecond)) / 1000 }

// quantile is that of sorted times; 0 of none.
func quantile(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return ms(sorted[min(len(sorted)-1, int(q*float64(len(sorted))))])
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
	var times, noes, late []time.Duration
	type counts struct {
		due, served, refused, hung, broken int
		times                              []time.Duration
	}
	var sum counts
	by := map[string]*counts{}
	attempts := 0
	for i := range all {
		o := &all[i]
		late = append(late, o.sent-o.due)
		if o.notSent {
			r.NotSent++
		}
		if o.phase != step {
			continue
		}
		c := by[o.route.priority]
		if c == nil {
			c = &counts{}
			by[o.route.priority] = c
		}
		attempts += o.attempts
		r.Statuses[strconv.Itoa(o.status)]++
		for _, c := range []*counts{c, &sum} {
			c.due++
			switch {
			case o.served():
				c.served++
				c.times = append(c.times, o.done-o.due)
			case o.refused():
				c.refused++
			case o.hung:
				c.hung++
			case o.broken:
				c.broken++
			}
		}
		if o.served() {
			times = append(times, o.done-o.due)
		} else if o.refused() {
			noes = append(noes, o.done-o.due)
			if at := ms(o.done - p.before); r.FirstNo < 0 || at < r.FirstNo {
				r.FirstNo = at
			}
		}
	}
	slices.Sort(times)
	slices.Sort(noes)
	slices.Sort(late)
	r.Offered = float64(sum.due) / p.length.Seconds()
	if possible := min(float64(sum.due), p.capacity*p.length.Seconds()); possible > 0 {
		r.Goodput = float64(sum.served) / possible
	}
	r.Hung, r.Broken, r.Attempts = part(sum.hung, sum.due), part(sum.broken, sum.due), part(attempts, sum.due)
	r.P50, r.P99, r.NoP50, r.NoP99 = quantile(times, .5), quantile(times, .99), quantile(noes, .5), quantile(noes, .99)
	for _, priority := range priorities {
		if c := by[priority]; c != nil {
			slices.Sort(c.times)
			r.Shares = append(r.Shares, share{priority, c.due, part(c.served, c.due), part(c.refused, c.due), part(c.hung, c.due),
				part(c.broken, c.due), quantile(c.times, .99)})
		}
	}
	r.Recovery, r.Timeline = p.recovery(all), timeline(p, all)
	var doubts []string
	if r.Late = quantile(late, .99); r.Late > mostLate {
		doubts = append(doubts, fmt.Sprintf("the generator was %.0f ms late: this machine is too busy", r.Late))
	}
	r.Doubt = strings.Join(append(doubts, refused(all)...), "; ")
	return r
}

// refused says which routes were never served, and always with the same status of the client's fault: they are asked for in a way that
// the service does not know, such as another method.
func refused(all []outcome) (said []string) {
	type seen struct{ due, status int }
	by := map[*route]*seen{}
	var order []*route
	for i := range all {
		o := &all[i]
		s := by[o.route]
		if s == nil {
			s = &seen{status: o.status}
			by[o.route], order = s, append(order, o.route)
		}
		s.due++
		if o.status != s.status {
			s.status = 0
		}
	}
	for _, of := range order {
		if s := by[of]; s.due > 1 && s.status >= 400 && s.status < 500 && s.status != 429 {
			said = append(said, fmt.Sprintf("no %s %s was served, all had status %d", of.method, of.path, s.status))
		}
	}
	return said
}

// recovery returns when, after the load's end, the clients of each later second were served as well as before it, or nearly all,
// in milliseconds; -1: not while it was watched.
func (p *plan) recovery(all []outcome) float64 {
	seconds := int(p.after / time.Second)
	due, served := make([]int, seconds+1), make([]int, seconds+1)
	dueBefore, servedBefore := 0, 0
	end := p.before + p.length
	for i := range all {
		o := &all[i]
		switch o.phase {
		case before:
			if dueBefore++; o.served() {
				servedBefore++
			}
		case after:
			at := int((o.due - end) / time.Second)
			if due[at]++; o.served() {
				served[at]++
			}
		case step:
		}
	}
	want := .95
	if dueBefore > 0 {
		want *= part(servedBefore, dueBefore)
	}
	recovered := -1.0
	for at := seconds - 1; at >= 0; at-- {
		if due[at] > 0 && part(served[at], due[at]) < want {
			break
		}
		recovered = float64(at) * 1000
	}
	return recovered
}

func timeline(p *plan, all []outcome) []second {
	line := make([]second, int((p.before+p.length+p.after+time.Second-1)/time.Second))
	for at := range line {
		line[at].At = at
		ph := step
		switch begins := time.Duration(at) * time.Second; {
		case begins < p.before:
			ph = before
		case begins >= p.before+p.length:
			ph = after
		}
		line[at].Phase = ph.String()
	}
	for i := range all {
		o := &all[i]
		s := &line[int(o.due/time.Second)]
		s.Due++
		critical := o.route.priority == "critical"
		if critical {
			s.CriticalDue++
		}
		switch {
		case o.served():
			if s.Served++; critical {
				s.CriticalServed++
			}
		case o.refused():
			s.Refused++
		case o.hung:
			s.Hung++
		case o.broken:
			s.Broken++
		}
	}
	return line
}

// writeRequests writes a line for each request, in the order in which they were due.
func writeRequests(file string, all []outcome) error {
	f, err := os.Create(file) //nolint:gosec // the user named it
	if err != nil {
		return err
	}
	lines := [][]string{{"load", "phase", "route", "priority", "due_ms", "sent_ms", "done_ms", "status", "attempts", "ended"}}
	for i := range all {
		o := &all[i]
		text := func(d time.Duration) string { return strconv.FormatFloat(ms(d), 'f', 3, 64) }
		lines = append(lines, []string{
			strconv.FormatFloat(o.load, 'g', -1, 64), o.phase.String(), o.route.name, o.route.priority,
			text(o.due), text(o.sent), text(o.done), strconv.Itoa(o.status), strconv.Itoa(o.attempts), o.ended(),
		})
	}
	return errors.Join(csv.NewWriter(f).WriteAll(lines), f.Close())
}

// markdown is the table.
func (r *report) markdown() string {
	var b strings.Builder
	how := "given"
	if r.Measured {
		how = "measured"
	}
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
