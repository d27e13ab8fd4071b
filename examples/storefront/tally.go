// What became of the requests: outcomes and latencies counted by phase and route.
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

// An outcome is how one request ended, seen by its client.
type outcome struct {
	ok     bool   // 200 inside the client's deadline
	cached string // of an answer that a fallback gave: why
	reason string // of no answer: what the server named as the reason, or one of the two below
	err    error  // what was unforeseen
}

// What a client finds without the server's word.
const (
	late      = "late"  // the client's deadline passed first
	otherwise = "other" // anything else; there should be none
)

func unforeseen(err error) outcome { return outcome{reason: otherwise, err: err} }

// figures are the counts and latencies of one route in one phase. A latency runs from the intended start of a
// request to its outcome, whatever that is: customers wait for a rejection too.
type figures struct {
	sent, succeeded int
	cached          map[string]int // of those that succeeded: answered by a fallback, by cause
	failed          map[string]int // the others, by reason
	p50, p99        time.Duration
}

// success is the part of all requests that succeeded; 0 without requests.
func (f figures) success() float64 { return f.share(f.succeeded) }

func (f figures) share(n int) float64 {
	if f.sent == 0 {
		return 0
	}
	return float64(n) / float64(f.sent)
}

// count is how many requests of counts there are with one of these reasons; without reasons, all.
func count(counts map[string]int, reasons ...string) (n int) {
	for reason, k := range counts {
		if len(reasons) == 0 || slices.Contains(reasons, reason) {
			n += k
		}
	}
	return n
}

// reasons names what became of those that did not succeed, and of those that a fallback answered, the most frequent first.
func (f figures) reasons() string {
	var said []string
	for _, part := range []struct {
		prefix string
		counts map[string]int
	}{{"", f.failed}, {"cached: ", f.cached}} {
		names := slices.SortedFunc(maps.Keys(part.counts), func(a, b string) int {
			return cmp.Or(cmp.Compare(part.counts[b], part.counts[a]), cmp.Compare(a, b))
		})
		for _, name := range names {
			said = append(said, fmt.Sprintf("%s%s %d", part.prefix, name, part.counts[name]))
		}
	}
	return strings.Join(said, ", ")
}

// A result is what one way did with the whole plan.
type result struct {
	way        string
	phases     []string
	figures    [][routes + 1]figures // by phase; the last column is ping's
	unforeseen error                 // the first; nil: none
}

// in is what happened in a phase; nothing in one that the result does not have.
func (res result) in(phase string) [routes + 1]figures {
	if i := slices.Index(res.phases, phase); i >= 0 {
		return res.figures[i]
	}
	return [routes + 1]figures{}
}

// A tally collects a result while the requests run.
type tally struct {
	mu         sync.Mutex // guards what follows; nothing blocks while it is held
	cells      [][routes + 1]cell
	recent     [routes + 1]figures // since the last call of takeRecent
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
	_ = c.latency.RecordValue(took.Microseconds()) // an error means: over an hour
	if how.err != nil && t.unforeseen == nil {
		t.unforeseen = how.err
	}
}

// and is f with one more request.
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

// takeRecent returns the outcomes since the last call, per route.
func (t *tally) takeRecent() [routes + 1]figures {
	t.mu.Lock()
	defer t.mu.Unlock()
	recent := t.recent
	t.recent = [routes + 1]figures{}
	return recent
}

// result is called when every request has its outcome.
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
