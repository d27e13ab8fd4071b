// SPDX-License-Identifier: Apache-2.0

// What the tests share.

package limiter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/queue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// never is the due time of a task without a deadline.
const never = queue.Never

// bubble runs f in virtual time.
func bubble(t *testing.T, f func(t *testing.T)) { t.Helper(); synctest.Test(t, f) }

func mustNew(t testing.TB, cfg Config) *Limiter {
	t.Helper()
	l := must(New(cfg))(t)
	t.Cleanup(l.Close) // a test that fails leaves nobody waiting
	return l
}

// fixed is a decision with a target and nothing else.
func fixed(n int) decision.ControlDecision {
	return decision.ControlDecision{Seq: 1, TargetConcurrency: n}
}

// noTrial is a draw that makes no task a trial.
func noTrial() float64 { return 0.5 }

// needs is that tasks of these names need that long.
func needs(long time.Duration, names ...string) map[string]time.Duration {
	all := map[string]time.Duration{}
	for _, name := range names {
		all[name] = long
	}
	return all
}

// standing is the same, with a queue that stands after a while.
func decisionState(n int, burst time.Duration) decision.ControlDecision {
	return decision.ControlDecision{Seq: 1, TargetConcurrency: n, Burst: burst}
}

// occupied is a limiter, with a queue of 10 and a target of 1 unless cfg says otherwise, and a permit of it.
func occupied(t testing.TB, cfg Config) (*Limiter, Permit) {
	t.Helper()
	if cfg.MaxQueue == 0 {
		cfg.MaxQueue = 10
	}
	if cfg.Initial.Seq == 0 {
		cfg.Initial = fixed(1)
	}
	if cfg.Rand == nil {
		cfg.Rand = noTrial
	}
	l := mustNew(t, cfg)
	p := must(l.TryAcquire(Task{Name: "first"}))(t)
	return l, p
}

// A line is a number of tasks that wait at a limiter in a bubble. Those that start hold their slot until freed.
type line struct {
	t        *testing.T
	l        *Limiter
	mu       sync.Mutex
	started  []string
	permits  map[string]Permit
	rejected map[string]*decision.Rejection
}

func newLine(t *testing.T, l *Limiter) *line {
	return &line{t: t, l: l, permits: map[string]Permit{}, rejected: map[string]*decision.Rejection{}}
}

// join submits a task and lets it come to rest.
func (q *line) join(task Task) { q.joinCtx(context.Background(), task) }

func (q *line) joinCtx(ctx context.Context, task Task) {
	go func() {
		p, err := q.l.Acquire(ctx, task)
		q.mu.Lock()
		defer q.mu.Unlock()
		var r *decision.Rejection
		switch {
		case err == nil:
			q.started = append(q.started, task.Name)
			q.permits[task.Name] = p
		case errors.As(err, &r):
			q.rejected[task.Name] = r
		default:
			q.t.Error(err)
		}
	}()
	synctest.Wait()
}

// drain releases p, and then each task in the order in which they start, and returns their names.
func (q *line) drain(p Permit) []string {
	p.Release()
	synctest.Wait()
	for i := 0; ; i++ {
		if i == len(q.started) { // more may have started
			break
		}
		q.permits[q.started[i]].Release()
		synctest.Wait()
	}
	return q.started
}

func (q *line) wantOrder(p Permit, want ...string) {
	q.t.Helper()
	if got := q.drain(p); !slices.Equal(got, want) {
		q.t.Errorf("started in order %v, want %v", got, want)
	}
	if s := q.l.Stats(); s.Queued != 0 || s.Running != 0 {
		q.t.Errorf("at rest: %+v", s)
	}
}

func (q *line) rejection(name string) *decision.Rejection {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.rejected[name]
}

// wantRejected checks why a task was rejected.
func (q *line) wantRejected(name string, why decision.RejectionReason) *decision.Rejection {
	q.t.Helper()
	r := q.rejection(name)
	if r == nil {
		q.t.Fatalf("%s was not rejected; want %s", name, why)
	}
	wantReason(q.t, r, why)
	return r
}

// wantReason checks that a rejection says why, and that all ways of explaining it agree.
func wantReason(t testing.TB, err error, why decision.RejectionReason) *decision.Rejection {
	t.Helper()
	var r *decision.Rejection
	if !errors.Is(err, decision.ErrRejected) || !errors.As(err, &r) {
		t.Fatalf("%v, want a rejection as %s", err, why)
	}
	if r.Reason != why || r.Decision == nil {
		t.Fatalf("%+v, want %s", r, why)
	}
	e := r.Explanation
	if e.Reason != why || e.Decision != r.Decision || e.Task != r.Task || e.DecisionState == "" || e.At.IsZero() {
		t.Errorf("explanation %+v of %+v", e, r)
	}
	return r
}

// sleep lets virtual time pass, and whatever it brings come to rest.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func named(n int, p decision.Priority) Task { return Task{Name: fmt.Sprint(n), Priority: p} }

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

// silent is an observer that does nothing.
type silent struct{}

func (silent) Observe(Event) {}

// must is for what cannot fail here: x := must(f())(t).
func must[T any](v T, err error) func(fataler) T {
	return func(t fataler) T {
		t.Helper()
		noError(t, err)
		return v
	}
}

func noError(t fataler, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type fataler interface {
	Helper()
	Fatal(args ...any)
}
