// SPDX-License-Identifier: Apache-2.0

// The safety valves (Q17, Q18): what is rejected all the same, what is told, and switching while everything moves.

package limiter

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden/decision"
)

func TestPropertyModeMachine(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := rapid.SampledFrom(setups).Draw(rt, "setup")
		script := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) move {
			op := rapid.SampledFrom([]int{0, 0, 0, 3, 4, 4, 5, 6, 7, 8, 10, 11}).Draw(rt, "op")
			return move{op, rapid.IntRange(0, 31).Draw(rt, "a"), rapid.IntRange(0, 31).Draw(rt, "b")}
		}), 20, 120).Draw(rt, "script")
		if failed := drive(t, s, script, nil, nil); failed != "" {
			rt.Fatal(failed)
		}
	})
}

// TestModeLongHistories makes sure that the machine gets to every judgement of a dry run, and through every change of the mode.
func TestModeLongHistories(t *testing.T) {
	const histories, steps = 15, 300
	type would struct{ reason decision.RejectionReason }
	seen := map[any]int{}
	for i := range histories * len(setups) {
		rng := rand.New(rand.NewPCG(17, uint64(i)))
		script := make([]move, steps)
		ops := []int{0, 0, 0, 0, 3, 4, 4, 5, 6, 7, 10}
		if i/len(setups)%3 == 0 {
			ops = ops[:9] // one decision that bounds the wait, and no change of the mode
		}
		for j := range script {
			script[j] = move{ops[rng.IntN(len(ops))], rng.IntN(32), rng.IntN(32)}
		}
		if len(ops) == 9 {
			script[0], script[1] = move{7, 11, 10}, move{10, int(decision.DryRun), 0}
		}
		failed := drive(t, setups[i%len(setups)], script, nil, func(x *machine) {
			for _, run := range x.tasks {
				seen[run.is.mode]++
				seen[would{run.is.would}]++
				if run.is.grant == "queue_oldest" && run.is.mode != decision.Enforce {
					seen["waited, and was let go"]++
				}
			}
		})
		if failed != "" {
			t.Fatalf("history %d: %s", i, failed)
		}
	}
	for _, want := range []any{decision.Enforce, decision.DryRun, decision.Bypass, would{""}, would{decision.PressureHigh},
		would{decision.QueueOverflow}, would{decision.NoSlot}, would{decision.ProbabilisticShedding},
		would{decision.DeadlineExceeded}, would{decision.MaxWaitExceeded}, "waited, and was let go"} {
		if t.Logf("%v: %d", want, seen[want]); seen[want] < 10 {
			t.Errorf("%v occurred %d times", want, seen[want])
		}
	}
}

// TestADryRunTellsOfTheLongestWait has a task arrive every 10 ms of which each takes 100 ms of the only slot: where nobody would
// wait for a second, the eleventh would have to leave, as soon as the queue stands.
func TestADryRunTellsOfTheLongestWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := fixed(1)
		d.Expected, d.MaxWait = 100*time.Millisecond, time.Second
		l := mustNew(t, Config{MaxQueue: 100, Mode: decision.DryRun, Initial: d})
		ask := func(task Task) decision.RejectionReason {
			return must(l.Acquire(t.Context(), task))(t).Explain().WouldReject
		}
		for i := range 10 {
			if why := ask(Task{}); why != "" {
				t.Fatalf("Q17: task %d: %s", i, why)
			}
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(10 * time.Millisecond)
		for _, c := range []struct {
			task Task
			want decision.RejectionReason
		}{
			{Task{}, decision.MaxWaitExceeded}, {Task{Patient: true}, ""}, {Task{Priority: decision.Critical}, ""},
			{Task{Deadline: time.Now().Add(time.Hour)}, ""},
		} {
			if why := ask(c.task); why != c.want {
				t.Errorf("Q17: %+v would be rejected: %s, want %s", c.task, why, c.want)
			}
		}
	})
}

// TestOnlyAnEndedContextIsRejected asks for what no limiter that enforces would run.
func TestOnlyAnEndedContextIsRejected(t *testing.T) {
	gone, leave := context.WithCancel(context.Background())
	leave()
	late, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancel()
	soon, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	hopeless := decision.ControlDecision{Seq: 1, ShedProbability: 1, Expected: time.Hour, Yields: 8}
	for _, mode := range []decision.Mode{decision.DryRun, decision.Bypass} {
		l := mustNew(t, Config{Mode: mode, Initial: hopeless})
		for range 10 {
			for _, ask := range []func() (Permit, error){
				func() (Permit, error) { return l.Acquire(context.Background(), Task{Priority: lowest}) },
				func() (Permit, error) { return l.Acquire(soon, Task{}) },
				func() (Permit, error) { return l.Acquire(soon, Task{Deadline: time.Now().Add(-time.Second)}) },
				func() (Permit, error) { return l.TryAcquire(Task{Deadline: time.Now().Add(-time.Second)}) },
				func() (Permit, error) { return l.TryAcquire(Task{}) },
			} {
				p, err := ask()
				if e := p.Explain(); err != nil || e.Mode != mode || (e.WouldReject != "") != (mode == decision.DryRun) {
					t.Fatalf("%s: %v, %v", mode, err, e)
				}
			}
		}
		_, err := l.Acquire(gone, Task{})
		wantReason(t, err, decision.Canceled)
		_, err = l.Acquire(late, Task{})
		wantReason(t, err, decision.DeadlineExceeded)
		l.Close()
		_, err = l.Acquire(soon, Task{})
		wantReason(t, err, decision.Closed)
		_, err = l.TryAcquire(Task{})
		wantReason(t, err, decision.Closed)
		want := map[decision.Mode]uint64{decision.DryRun: 50}[mode]
		if s := l.Stats(); s.Running != 50 || s.Rejected != 3 || s.Canceled != 1 || s.WouldReject != want || s.Mode != mode {
			t.Errorf("%+v", s)
		}
	}
}

// TestWhoWaitsStartsAndTheRestShrinks switches the bypass on under a queue, and off again.
func TestWhoWaitsStartsAndTheRestShrinks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, p := occupied(t, Config{})
		q := newLine(t, l)
		for i := range 5 {
			q.join(named(i, 0))
		}
		q.joinCtx(t.Context(), Task{Name: "late", Deadline: time.Now().Add(time.Millisecond)})
		noError(t, l.SetMode(decision.Bypass))
		synctest.Wait()
		if s := l.Stats(); s.Running != 7 || s.Queued != 0 {
			t.Fatalf("Q18: %+v", s)
		}
		noError(t, l.SetMode(decision.Enforce))
		q.join(named(6, decision.Critical))
		for i, name := range []string{"0", "1", "2", "3", "4", "late"} {
			if s := l.Stats(); s.Running != 7-i || s.Queued != 1 {
				t.Fatalf("Q18: after %d endings: %+v", i, s)
			}
			q.permits[name].Release()
			synctest.Wait()
		}
		p.Release()
		synctest.Wait()
		if s := l.Stats(); s.Running != 1 || s.Queued != 0 || len(q.rejected) != 0 {
			t.Fatalf("Q18: at last %+v, rejected %v", s, q.rejected)
		}
	})
}

// TestTold looks for a judgement wherever one is told.
func TestTold(t *testing.T) {
	rec := &recording{}
	l := mustNew(t, Config{Name: "prices", Mode: decision.DryRun, Initial: fixed(1), Observer: rec})
	for range 2 {
		p := must(l.Acquire(context.Background(), Task{Name: "quote"}))(t)
		defer p.Release()
	}
	recent := l.Recent()
	if len(recent) != 1 || recent[0].WouldReject != decision.QueueOverflow || recent[0].Bound != decision.BoundTarget ||
		recent[0].Limit != 1 || recent[0].At.IsZero() {
		t.Fatalf("Q17: recent: %v", recent)
	}
	const want = `started (slot_free), would have been rejected: queue_overflow: task "quote", priority normal, mode dry_run, waited 0s; ` +
		`"prices": 2 in flight, 0 queued, concurrency limit 1 reached; decision 1 (initial): target 1, shed 0`
	if got := recent[0].String(); got != want {
		t.Errorf("Q17: %s\nwant %s", got, want)
	}
	if text := recent[0].LogValue().String(); !strings.Contains(text, "would_reject=queue_overflow mode=dry_run") {
		t.Error(text)
	}
	noError(t, errors.Join(l.SetMode(decision.DryRun), l.SetMode(decision.Bypass), l.SetMode(decision.Enforce)))
	var told []string
	for _, e := range rec.events {
		text := string(e.Outcome)
		if e.Outcome == decision.ModeChanged {
			text += " " + e.Mode.String()
		} else if e.WouldReject != "" {
			text += " " + string(e.WouldReject)
		}
		told = append(told, text)
	}
	if got, want := strings.Join(told, ", "), "mode_changed dry_run, started, started queue_overflow, mode_changed bypass, mode_changed enforce"; got != want {
		t.Errorf("Q17: events: %s\nwant %s", got, want)
	}
}

// TestRaceMachine switches while many tasks come and go, and compares the accounts at the end.
func TestRaceMachine(t *testing.T) {
	l := mustNew(t, Config{MaxQueue: 4, Initial: fixed(2)})
	a := &account{}
	var all, switching sync.WaitGroup
	stop := make(chan struct{})
	switching.Go(func() {
		last := uint64(0)
		for i := 0; ; i++ {
			if err := l.SetMode(decision.Mode(i % int(decision.Bypass+1))); err != nil {
				t.Error(err)
			}
			s := l.Stats()
			if n := s.WouldReject; n < last || s.Submitted != s.Executed+s.Rejected+s.Canceled+uint64(s.Queued)+uint64(s.Running) {
				t.Errorf("%d would have been rejected, and %d before: %+v", n, last, s)
			} else {
				last = n
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	for i := range 8 {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(18, uint64(i)))
			for range rounds / 8 {
				a.spend(t, l, rng, 8)
			}
		})
	}
	all.Wait()
	close(stop)
	switching.Wait()
	s := l.Stats()
	if s.Running != 0 || s.Queued != 0 || l.unwanted != 0 || int64(s.Executed) != a.executed.Load() ||
		int64(s.Rejected) != a.rejected.Load() {
		t.Errorf("at rest %+v, %d unwanted; %d executed, %d rejected", s, l.unwanted, a.executed.Load(), a.rejected.Load())
	}
}

func TestModeIsValid(t *testing.T) {
	const unknown = decision.Bypass + 1
	_, err := New(Config{Mode: unknown})
	for _, err := range []error{err, mustNew(t, Config{}).SetMode(unknown), (*Limiter)(nil).SetMode(decision.Bypass)} {
		if !errors.Is(err, decision.ErrInvalid) {
			t.Errorf("%v", err)
		}
	}
	if m := (*Limiter)(nil).Stats().Mode; m != decision.Enforce {
		t.Errorf("no limiter is in mode %s", m)
	}
}
