// SPDX-License-Identifier: Apache-2.0

// Each reason, provoked in a running limiter and then explained, by everything that explains.

package limiter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/queue"
)

// TestEveryReason makes each reason occur, and looks for it in the error, the explanation, the recorder, the observer
// and the counters.
func TestEveryReason(t *testing.T) {
	grounds := decision.NewReason("queueing", "lag_p90_seconds", 0.012, decision.Tighten)
	half := decision.ControlDecision{Seq: 5, TargetConcurrency: 1, ShedProbability: 0.5, Needs: needs(10*time.Millisecond, "x"),
		Reasons: []decision.Reason{grounds}}
	for _, c := range []struct {
		want    decision.RejectionReason
		why     string // what the text must say beside the code
		provoke func(t *testing.T, l *Limiter, q *line)
	}{
		{decision.PressureHigh, "priority background", func(t *testing.T, l *Limiter, q *line) {
			q.join(Task{Name: "other", Priority: decision.High})
			q.join(Task{Name: "other", Priority: decision.High})
			q.join(Task{Name: "x", Priority: decision.Background})
		}},
		{decision.PressureHigh, "target 0", func(t *testing.T, l *Limiter, q *line) {
			d := half
			d.Seq, d.TargetConcurrency = 6, 0
			l.Apply(d)
			_, err := l.TryAcquire(Task{Name: "x"})
			q.rejected["x"] = wantReason(t, err, decision.PressureHigh)
		}},
		{decision.ProbabilisticShedding, "shedding below normal", func(t *testing.T, l *Limiter, q *line) {
			q.join(Task{Name: "first"}) // no draw sheds where nobody waits
			q.join(Task{Name: "x"})
		}},
		{decision.QueueOverflow, "2 queued", func(t *testing.T, l *Limiter, q *line) {
			q.join(Task{Name: "a", Priority: decision.High})
			q.join(Task{Name: "b", Priority: decision.Critical})
			q.join(Task{Name: "x", Priority: decision.High})
		}},
		{decision.NoSlot, "0 queued", func(t *testing.T, l *Limiter, q *line) {
			_, err := l.TryAcquire(Task{Name: "x"})
			q.rejected["x"] = wantReason(t, err, decision.NoSlot)
		}},
		{decision.PriorityDrop, "waited 5ms", func(t *testing.T, l *Limiter, q *line) {
			q.join(Task{Name: "x", Priority: 3})
			q.join(Task{Name: "a", Priority: 4})
			sleep(5 * time.Millisecond)
			q.join(Task{Name: "b", Priority: 5})
		}},
		{decision.DeadlineExceeded, "waited 20ms", func(t *testing.T, l *Limiter, q *line) {
			q.join(Task{Name: "x", Priority: decision.Critical, Deadline: time.Now().Add(30 * time.Millisecond)})
			sleep(time.Second)
		}},
		{decision.Canceled, "waited 3ms", func(t *testing.T, l *Limiter, q *line) {
			ctx, cancel := context.WithCancel(t.Context())
			q.joinCtx(ctx, Task{Name: "x", Priority: decision.Critical})
			sleep(3 * time.Millisecond)
			cancel()
			synctest.Wait()
		}},
		{decision.Closed, "waited 4ms", func(t *testing.T, l *Limiter, q *line) {
			q.join(Task{Name: "x", Priority: decision.Critical})
			sleep(4 * time.Millisecond)
			l.Close()
			synctest.Wait()
		}},
		{decision.Closed, "waited 0s", func(t *testing.T, l *Limiter, q *line) {
			l.Close()
			q.join(Task{Name: "x"})
		}},
	} {
		t.Run(fmt.Sprint(c.want, ", ", c.why), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				seen := &recording{}
				draws := 0.98 // nobody of the boundary is shed
				if c.want == decision.ProbabilisticShedding {
					draws = 0.1
				}
				l, p := occupied(t, Config{Name: "api", MaxQueue: 2, Initial: half, Observer: seen, Rand: func() float64 { return draws }})
				// A mix in which the cut falls on the normal priority.
				w := l.waiters.Get()
				l.queue.Offer(w, 0, queue.Rule{}, 0)
				l.queue.Remove(w)
				q := newLine(t, l)
				c.provoke(t, l, q)
				r := q.wantRejected("x", c.want)

				if errors.Is(r, context.DeadlineExceeded) != (c.want == decision.DeadlineExceeded) ||
					errors.Is(r, context.Canceled) != (c.want == decision.Canceled) {
					t.Errorf("Q7: it wraps %v", r.Unwrap())
				}
				if r.Decision.Seq < 5 || len(r.Decision.Reasons) != 1 || r.InFlight != 1 {
					t.Errorf("Q7: %+v under %+v", r, r.Decision)
				}
				for _, part := range []string{string(c.want), c.why, `"x"`, `"api"`, "queueing: lag_p90_seconds=0.012 (tighten)"} {
					if !strings.Contains(r.String(), part) {
						t.Errorf("Q7: %q does not say %q", r.String(), part)
					}
				}
				recent := l.Recent()
				if n := len(recent); n == 0 || recent[n-1] != r.Explanation && recent[0] != r.Explanation {
					t.Errorf("Q7: recorded %v, want %v", recent, r.Explanation)
				}
				found := false
				for _, e := range seen.events {
					found = found || e.Explanation == r.Explanation
				}
				if !found {
					t.Errorf("Q7: observed %v, want %v", seen.events, r.Explanation)
				}
				if s := l.Stats(); s.RejectedFor(c.want) == 0 || s.RejectedFor("other") != 0 {
					t.Errorf("Q7: %+v", s)
				}
				q.drain(p)
			})
		})
	}
}

// TestExecutions explains what ran: at once, or after waiting, which the recorder keeps.
func TestExecutions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		seen := &recording{}
		l, p := occupied(t, Config{Name: "api", Observer: seen, Initial: decisionState(1, 20*time.Millisecond)})
		q := newLine(t, l)
		q.join(Task{Name: "a"})
		q.join(Task{Name: "b"})
		sleep(7 * time.Millisecond)
		if e := p.Explain(); e.Grant != "slot_free" || e.Waited != 0 || e.DecisionState != decision.Initial || e.Decision.Seq != 1 ||
			e.Task.Name != "first" || e.InFlight != 1 {
			t.Errorf("Q7: %+v", e)
		}
		p.Release()
		synctest.Wait()
		e := q.permits["a"].Explain()
		if e.Grant != "queue_oldest" || e.Waited != 7*time.Millisecond || e.QueueLen != 1 || e.InFlight != 1 ||
			e.Outcome != decision.Started {
			t.Errorf("Q7: %+v", e)
		}
		if !strings.HasPrefix(e.String(), `started (queue_oldest): task "a", priority normal, waited 7ms; "api": 1 in flight, 1 queued; decision 1 (initial): target 1, shed 0`) {
			t.Error(e)
		}
		recent := l.Recent()
		if len(recent) != 1 || recent[0].At.IsZero() {
			t.Fatalf("Q7: recorded %v", recent)
		}
		if recent[0].At = e.At; recent[0] != e {
			t.Fatalf("Q7: recorded %v, want %v", recent, e)
		}
		l.Apply(decision.ControlDecision{Seq: 2, TargetConcurrency: 1})
		sleep(20 * time.Millisecond)
		q.permits["a"].Release()
		synctest.Wait()
		if e := q.permits["b"].Explain(); e.Grant != "queue_newest" || e.Waited != 27*time.Millisecond ||
			e.DecisionState != decision.Applied {
			t.Errorf("Q7: %+v", e)
		}
		if (q.permits["a"].Explain() != decision.Explanation{}) || (Permit{}).Explain() != (decision.Explanation{}) {
			t.Error("Q7: a permit that is no more explains something")
		}
		q.permits["b"].Release()
		var kinds []string
		for _, e := range seen.events {
			kinds = append(kinds, e.Task.Name+" "+string(e.Outcome))
		}
		if got := fmt.Sprint(kinds); got != "[first started first executed a started a executed b started b executed]" {
			t.Error(got)
		}
	})
}

// TestWhoseDeadlineAndWhichBound looks at the two that a rejection names beside its reason.
func TestWhoseDeadlineAndWhichBound(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, p := occupied(t, Config{Initial: decision.ControlDecision{Seq: 1, TargetConcurrency: 1,
			Needs: needs(5*time.Millisecond, "x")}})
		in := func(d time.Duration) time.Time { return time.Now().Add(d) }
		for _, c := range []struct {
			own, contexts time.Duration // deadlines; 0: none
			want          time.Duration
			from          decision.DeadlineSource
		}{
			{time.Minute, time.Hour, time.Minute, "task"},
			{time.Hour, time.Minute, time.Minute, "context"},
			{0, time.Minute, time.Minute, "context"},
			{time.Minute, 0, time.Minute, "task"},
			{time.Millisecond, 0, time.Millisecond, "task"}, // too late when it comes
		} {
			ctx, task := t.Context(), Task{Name: "x"}
			if c.own > 0 {
				task.Deadline = in(c.own)
			}
			if c.contexts > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, c.contexts)
				defer cancel()
			}
			due := in(c.want)
			_, err := l.Acquire(ctx, task)
			r := wantReason(t, err, decision.DeadlineExceeded)
			if !r.Deadline.Equal(due) || r.DeadlineFrom != c.from || !strings.Contains(r.String(), "("+string(c.from)+")") ||
				!strings.Contains(r.String(), "needs 5ms") {
				t.Errorf("Q7: %+v: %s", c, err)
			}
			// Who was late already when it came has met no bound.
			if full := r.Waited > 0; full != (r.Bound == decision.BoundTarget && r.Limit == 1) ||
				full != strings.Contains(r.String(), "concurrency limit 1 reached") {
				t.Errorf("Q7: %+v: %s", c, err)
			}
		}
		_, err := l.TryAcquire(Task{})
		if r := wantReason(t, err, decision.NoSlot); r.Bound != decision.BoundTarget || r.Limit != 1 || r.DeadlineFrom != "" ||
			!r.Deadline.IsZero() {
			t.Errorf("Q7: %+v", r)
		}
		p.Release()
	})
}

// TestTheRecorderIsBounded records more than it keeps, from many goroutines, and reads meanwhile.
func TestTheRecorderIsBounded(t *testing.T) {
	const keep, writers, each = 16, 4, 2000
	l := mustNew(t, Config{Recent: keep, Initial: fixed(0)})
	if len(l.Recent()) != 0 {
		t.Error("Q7: something is recorded")
	}
	done := make(chan struct{})
	for range writers {
		go func() {
			for range each {
				_, _ = l.TryAcquire(Task{Name: "x"})
			}
			done <- struct{}{}
		}()
	}
	for range 200 {
		for _, e := range l.Recent() {
			if e.Task.Name != "x" || e.Decision == nil {
				t.Errorf("Q7: torn: %+v", e)
			}
		}
	}
	for range writers {
		<-done
	}
	if n := len(l.Recent()); n != keep {
		t.Errorf("Q7: %d are kept", n)
	}
	for i, e := range l.Recent() {
		if i > 0 && e.At.Before(l.Recent()[0].At) {
			t.Errorf("Q7: %v is not younger than the oldest", e)
		}
	}
	// The caller owns the rejection: what it does to it changes nothing that is kept.
	_, err := l.TryAcquire(Task{Name: "mine"})
	wantReason(t, err, decision.PressureHigh).Task.Name = "other"
	if recent := l.Recent(); recent[keep-1].Task.Name != "mine" {
		t.Errorf("Q7: kept as %v", recent[keep-1])
	}
}

// TestDelayedStartsPushNoRejectionOut: what was rejected stays known while a queue is worked off.
func TestDelayedStartsPushNoRejectionOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keep, waiting = 2, 5
		l := mustNew(t, Config{Recent: keep, MaxQueue: waiting, Initial: fixed(1)})
		p := must(l.TryAcquire(Task{}))(t)
		_, err := l.TryAcquire(Task{Name: "rejected"})
		wantReason(t, err, decision.NoSlot)
		var all sync.WaitGroup
		for range waiting {
			all.Go(func() {
				if p, err := l.Acquire(t.Context(), Task{Name: "delayed"}); err != nil {
					t.Error(err)
				} else {
					p.Release()
				}
			})
		}
		synctest.Wait()
		time.Sleep(time.Second)
		p.Release()
		all.Wait()
		var names []string
		for _, e := range l.Recent() {
			names = append(names, e.Task.Name)
		}
		if !slices.Equal(names, []string{"rejected", "delayed", "delayed"}) {
			t.Errorf("Q7: kept are %q", names)
		}
	})
}

// TestRetryAfter is how long the queue takes, as far as is known.
func TestRetryAfter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := decision.ControlDecision{Seq: 1, TargetConcurrency: 2, Expected: 10 * time.Millisecond}
		l := mustNew(t, Config{MaxQueue: 5, Initial: d})
		q := newLine(t, l)
		for i := range 7 {
			q.join(named(i, 0))
		}
		q.join(Task{Name: "x"})
		if r := q.wantRejected("x", decision.QueueOverflow); r.RetryAfter != 30*time.Millisecond || r.QueueLen != 5 || r.InFlight != 2 {
			t.Errorf("Q7: %+v", r)
		}
		d.Seq, d.Expected = 2, 0
		l.Apply(d)
		q.join(Task{Name: "y"})
		if r := q.wantRejected("y", decision.QueueOverflow); r.RetryAfter != 0 {
			t.Errorf("Q7: %+v", r)
		}
		l.Close()
		for name := range q.permits {
			q.permits[name].Release()
		}
	})
}
