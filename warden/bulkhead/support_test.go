// SPDX-License-Identifier: Apache-2.0

// What the tests share.

package bulkhead

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/stopbank/stopbank/warden/decision"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func mustNew(t testing.TB, cfg Config) *Set {
	t.Helper()
	return must(New(cfg))(t)
}

// single is a set of one compartment, called "a", with a Total of 10 and 2 guaranteed slots unless c says otherwise.
func single(t testing.TB, c CompartmentConfig) (*Set, *Compartment) {
	t.Helper()
	c.Name = "a"
	if c.Guaranteed == 0 && c.Max == 0 {
		c.Guaranteed = 2
	}
	s := mustNew(t, Config{Total: 10, Compartments: []CompartmentConfig{c}})
	a := s.Compartment("a")
	return s, a
}

// bound is a decision with a target and nothing else.
func bound(seq uint64, n int) decision.ControlDecision {
	return decision.ControlDecision{Seq: seq, TargetConcurrency: n}
}

// A crew runs functions in compartments of a bubble. Each one runs until it is let go.
type crew struct {
	t    *testing.T
	jobs []*job
}

type job struct {
	name    string
	cancel  context.CancelFunc
	leave   chan error // what the function returns
	started atomic.Bool
	ended   atomic.Bool
	err     error // written before ended
}

// send calls Do and lets it come to rest.
func (w *crew) send(c *Compartment, name string) *job {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	j := &job{name: name, cancel: cancel, leave: make(chan error, 1)}
	w.jobs = append(w.jobs, j)
	go func() {
		defer cancel()
		_, err := Do(ctx, c, func(context.Context) (int, error) {
			j.started.Store(true)
			return 0, <-j.leave
		})
		j.err = err
		j.ended.Store(true)
	}()
	synctest.Wait()
	return j
}

func (w *crew) fill(c *Compartment, n int) (jobs []*job) {
	for range n {
		jobs = append(jobs, w.send(c, "fill"))
	}
	return jobs
}

// let lets a job's function return, and all that follows from it happen.
func (w *crew) let(j *job) {
	j.leave <- nil
	synctest.Wait()
}

// home lets everybody go.
func (w *crew) home() {
	for _, j := range w.jobs {
		j.cancel()
		select {
		case j.leave <- nil:
		default:
		}
	}
	synctest.Wait()
	for _, j := range w.jobs {
		if !j.ended.Load() {
			w.t.Errorf("%s never ended", j.name)
		}
	}
}

func (j *job) runs() bool  { return j.started.Load() && !j.ended.Load() }
func (j *job) waits() bool { return !j.started.Load() && !j.ended.Load() }

// inBubble runs f in virtual time, with a crew that is sent home at the end.
func inBubble(t *testing.T, f func(t *testing.T, w *crew)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &crew{t: t}
		defer w.home()
		f(t, w)
	})
}

func wantRejected(t testing.TB, err error, why decision.RejectionReason) *decision.Rejection {
	t.Helper()
	r := new(decision.Rejection)
	if !errors.As(err, &r) || r.Reason != why {
		t.Errorf("%v, want a rejection as %s", err, why)
	}
	return r
}

// reasonOf is why a call was rejected.
func reasonOf(err error) decision.RejectionReason {
	var r *decision.Rejection
	switch {
	case errors.As(err, &r):
		return r.Reason
	case errors.Is(err, decision.ErrReentry):
		return decision.Reentry
	}
	return ""
}

// rest checks what holds whenever no call is under way: the numbers agree and the set is empty but for inFlight.
func rest(t testing.TB, s *Set, inFlight int) {
	t.Helper()
	if failed := disagree(s); failed != "" {
		t.Error(failed)
	}
	if got := s.Snapshot().InFlight; got != inFlight {
		t.Errorf("%d in flight, want %d", got, inFlight)
	}
}

// sleep lets virtual time pass, and whatever it brings come to rest.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// recording is an Observer that keeps everything.
type recording struct {
	mu     sync.Mutex
	events []Event
}

func (r *recording) Observe(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func (r *recording) of(k Kind) (found []Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Kind == k {
			found = append(found, e)
		}
	}
	return found
}

// total is the sum of a map of counters.
func total(m map[string]uint64) (n uint64) {
	for _, c := range m {
		n += c
	}
	return n
}

// sleepFor is time.Sleep in a function that a compartment runs: in a bubble, virtual.
func sleepFor(d time.Duration) { time.Sleep(d) }

func containsAll(s string, parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(s, p) {
			return false
		}
	}
	return true
}

// must is for what cannot fail here: x := must(f())(t).
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// compartments returns those of s in the order of its configuration.
func compartments(s *Set) (all []*Compartment) {
	for _, p := range s.pools {
		all = append(all, &p.self)
	}
	return all
}
