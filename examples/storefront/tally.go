// What became of the requests: outcomes and latencies counted by phase and route.
package main

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// An outcome is how one request ended, seen by its client.
type outcome int

const (
	succeeded     outcome = iota // 200 inside the client's deadline
	poolTimeout                  // 504: the server got no connection in time
	gateRejected                 // 503: the gate was full
	clientTimeout                // the client's deadline passed first
	otherFailure                 // anything else; there should be none
	outcomes                     // how many there are
)

// figures are the counts and latencies of one route in one phase. A latency runs from the intended start of a
// request to its outcome, whatever that is: customers wait for a refusal too.
type figures struct {
	count    [outcomes]int
	p50, p99 time.Duration
}

func (f figures) requests() int {
	sum := 0
	for _, n := range f.count {
		sum += n
	}
	return sum
}

// share is the part of all requests that ended as o; 0 without requests.
func (f figures) share(o outcome) float64 {
	if n := f.requests(); n > 0 {
		return float64(f.count[o]) / float64(n)
	}
	return 0
}

// A result is what one way did with the whole plan.
type result struct {
	figures    [phases][routes]figures
	firstOther error // the first otherFailure, to tell what went wrong; nil if none
}

// A tally collects a result while the requests run.
type tally struct {
	mu         sync.Mutex // guards what follows; nothing blocks while it is held
	count      [phases][routes][outcomes]int
	latency    [phases][routes]*hdrhistogram.Histogram // microseconds
	recent     [routes][outcomes]int                   // since the last call of takeRecent
	firstOther error
}

func newTally() *tally {
	t := &tally{}
	for p := range phases {
		for r := range routes {
			t.latency[p][r] = hdrhistogram.New(1, time.Hour.Microseconds(), 3)
		}
	}
	return t
}

func (t *tally) record(a arrival, how outcome, took time.Duration, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count[a.phase][a.route][how]++
	t.recent[a.route][how]++
	_ = t.latency[a.phase][a.route].RecordValue(took.Microseconds()) // an error means: over an hour
	if how == otherFailure && t.firstOther == nil {
		t.firstOther = err
	}
}

// takeRecent returns the outcomes since the last call, per route.
func (t *tally) takeRecent() (recent [routes]figures) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for r := range routes {
		recent[r].count = t.recent[r]
		t.recent[r] = [outcomes]int{}
	}
	return recent
}

func (t *tally) result() (res result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	res.firstOther = t.firstOther
	for p := range phases {
		for r := range routes {
			h := t.latency[p][r]
			res.figures[p][r] = figures{
				count: t.count[p][r],
				p50:   time.Duration(h.ValueAtQuantile(50)) * time.Microsecond,
				p99:   time.Duration(h.ValueAtQuantile(99)) * time.Microsecond,
			}
		}
	}
	return res
}
