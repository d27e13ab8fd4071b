// Outcomes and latencies of the requests, counted by phase and route.
package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// An outcome is the result of one request, as its client sees it.
type outcome struct {
	ok     bool   // status 200 before the client's deadline
	cached string // the reason of a fallback response
	reason string // of a failure: the server's, or one of the two below
	err    error  // an unexpected error
}

// Reasons that the client finds itself.
const (
	late      = "late"  // the client's deadline passed
	otherwise = "other" // an unexpected error
)

func unforeseen(err error) outcome { return outcome{reason: otherwise, err: err} }

// figures are the counts and latencies of one route in one phase. Latency is the time from the intended start of a request
// to its outcome, rejections included.
type figures struct {
	sent, succeeded int
	cached          map[string]int // responses of a fallback, by reason; they count as succeeded
	failed          map[string]int // by reason
	p50, p99        time.Duration
}

// success is the share of requests that succeeded; 0 without requests.
func (f figures) success() float64 { return f.share(f.succeeded) }

func (f figures) share(n int) float64 {
	if f.sent == 0 {
		return 0
	}
	return float64(n) / float64(f.sent)
}

// count is the number of requests with one of these reasons; without reasons, of all.
func count(counts map[string]int, reasons ...string) (n int) {
	for reason, k := range counts {
		if len(reasons) == 0 || slices.Contains(reasons, reason) {
			n += k
		}
	}
	return n
}

// reasons lists the reasons of failures, then of fallback responses, most frequent first.
func (f figures) reasons() string {
	var parts []string
	for _, part := range []struct {
		prefix string
		counts map[string]int
	}{{"", f.failed}, {"cached: ", f.cached}} {
		names := slices.SortedFunc(maps.Keys(part.counts), func(a, b string) int {
			return cmp.Or(cmp.Compare(part.counts[b], part.counts[a]), cmp.Compare(a, b))
		})
		for _, name := range names {
			parts = append(parts, fmt.Sprintf("%s%s %d", part.prefix, name, part.counts[name]))
		}
	}
	return strings.Join(parts, ", ")
}

// A result has the figures of one run.
type result struct {
	way        string
	phases     []string
	figures    [][routes + 1]figures // by phase; the last column is ping
	unforeseen error                 // the first unexpected error
}

// in returns the figures of a phase; all zero if the result has no such phase.
func (res result) in(phase string) [routes + 1]figures {
	if i := slices.Index(res.phases, phase); i >= 0 {
		return res.figures[i]
	}
	return [routes + 1]figures{}
}

// A tally collects a result while the requests run.
type tally struct {
	mu         sync.Mutex // guards the fields below
	cells      [][routes + 1]cell
	recent     [routes + 1]figures // since the last takeRecent
	unforeseen error
}

type cell struct {
	figures
	latency *hdrhistogram.Histogram // microseconds
}

func newTally(phases int) *tally {
	t := &tally{cells: make([][routes + 1]cell, phases)}
	for p := range t.cells {
		for r := range t.cells[p] {
			t.cells[p][r].latency = hdrhistogram.New(1, time.Hour.Microseconds(), 3)
		}
	}
	return t
}

func (t *tally) record(a arrival, how outcome, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := &t.cells[a.phase][a.route]
	c.figures = c.and(how)
	t.recent[a.route] = t.recent[a.route].and(how)
	_ = c.latency.RecordValue(took.Microseconds()) // fails above an hour
	if how.err != nil && t.unforeseen == nil {
		t.unforeseen = how.err
	}
}

// and adds a request to f.
func (f figures) and(how outcome) figures {
	f.sent++
	switch {
	case !how.ok:
		f.failed = counted(f.failed, how.reason)
		return f
	case how.cached != "":
		f.cached = counted(f.cached, how.cached)
	}
	f.succeeded++
	return f
}

func counted(m map[string]int, key string) map[string]int {
	if m == nil {
		m = map[string]int{}
	}
	m[key]++
	return m
}

// takeRecent returns the outcomes since the last call.
func (t *tally) takeRecent() [routes + 1]figures {
	t.mu.Lock()
	defer t.mu.Unlock()
	recent := t.recent
	t.recent = [routes + 1]figures{}
	return recent
}

// result may be called when every request has its outcome.
func (t *tally) result(way string, sc scenario) result {
	t.mu.Lock()
	defer t.mu.Unlock()
	res := result{way: way, unforeseen: t.unforeseen}
	for p, cells := range t.cells {
		res.phases = append(res.phases, sc.phases[p].name)
		var figures [routes + 1]figures
		for r, c := range cells {
			c.p50 = time.Duration(c.latency.ValueAtQuantile(50)) * time.Microsecond
			c.p99 = time.Duration(c.latency.ValueAtQuantile(99)) * time.Microsecond
			figures[r] = c.figures
		}
		res.figures = append(res.figures, figures)
	}
	return res
}
