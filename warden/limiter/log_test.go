// SPDX-License-Identifier: Apache-2.0

// Explanations and rejections in a log have all their parts; several observers are told alike.

package limiter

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

func logged(key string, v any) string {
	var b bytes.Buffer
	slog.New(slog.NewTextHandler(&b, nil)).Info("m", key, v)
	return strings.TrimSpace(b.String())
}

func wantParts(t *testing.T, line string, parts ...string) {
	t.Helper()
	for _, want := range parts {
		if !strings.Contains(line+" ", want+" ") {
			t.Errorf("%q lacks %q", line, want)
		}
	}
}

func TestLogValues(t *testing.T) {
	l := mustNew(t, Config{Name: "prices", Initial: decision.ControlDecision{Seq: 3, TargetConcurrency: 1, Expected: time.Second}})
	p, _ := l.TryAcquire(Task{Name: "a", Priority: decision.High})
	started := logged("e", p.Explain())
	wantParts(t, started, "e.limiter=prices", "e.outcome=started", "e.grant=slot_free", "e.task.name=a", "e.task.priority=high",
		"e.waited=0s", "e.in_flight=1", "e.queued=0", "e.decision_state=initial", "e.decision.seq=3", "e.decision.target=1")
	for _, absent := range []string{"reason", "deadline", "shed_below", "retry_after", "request_id"} {
		if strings.Contains(started, absent) {
			t.Errorf("a start without %s: %s", absent, started)
		}
	}

	_, err := l.TryAcquire(Task{Name: "b", Deadline: time.Now().Add(time.Hour)})
	why := wantReason(t, err, decision.NoSlot)
	wantParts(t, logged("err", err), "err.outcome=rejected", "err.reason=no_slot", "err.task.name=b", "err.in_flight=1",
		"err.decision.seq=3", "err.retry_after=1s")
	if !strings.Contains(logged("err", err), "err.task.deadline=") {
		t.Error("the deadline is not logged")
	}
	shed := why.Explanation
	shed.ShedBelow, shed.Decision = decision.High, nil
	if line := logged("e", Event{Explanation: shed}); !strings.Contains(line, "e.shed_below=high") ||
		strings.Contains(line, "decision") {
		t.Errorf("an event: %s", line)
	}
	withdrawn := decision.Explanation{Outcome: decision.OutcomeCanceled, Reason: decision.Canceled, ShedBelow: lowest}
	if line := withdrawn.String(); !strings.HasPrefix(line, "canceled: priority") {
		t.Errorf("a task that was withdrawn: %s", line)
	}
	if line := logged("e", decision.Explanation{}) + (decision.Explanation{}).String(); !strings.Contains(line,
		"e.outcome=\"\" e.task") || strings.Contains(line, "shed") {
		t.Errorf("the zero explanation: %s", line)
	}
}

type panicking struct{}

func (panicking) Observe(Event) { panic("observer") }

// TestObserversAreAllTold: one that panics keeps nothing from the others, and its panic is counted.
func TestObserversAreAllTold(t *testing.T) {
	var first, last recording
	l := mustNew(t, Config{Observer: Observers{&first, panicking{}, &last}})
	p, err := l.TryAcquire(Task{})
	if err != nil || !p.Release() {
		t.Fatal(err)
	}
	if len(first.events) != 2 || len(last.events) != 2 || first.events[1] != last.events[1] {
		t.Errorf("told %v and %v", first.events, last.events)
	}
	if n := l.Stats().ObserverPanics; n != 2 {
		t.Errorf("%d panics counted, want 2", n)
	}
	Observers(nil).Observe(Event{})
}

// TestEventsSayHowLongItTook: the end of a task, and nothing else.
func TestEventsSayHowLongItTook(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var told recording
		l, p := occupied(t, Config{Observer: &told, MaxQueue: 1})
		q := newLine(t, l)
		q.join(Task{Name: "second"})
		sleep(3 * time.Second)
		p.Release()
		sleep(2 * time.Second)
		q.permits["second"].Release()
		var took []time.Duration
		for _, e := range told.events {
			took = append(took, e.Took)
		}
		// The first starts and ends; the second starts after it and ends.
		if want := []time.Duration{0, 3 * time.Second, 0, 2 * time.Second}; !slices.Equal(took, want) &&
			!slices.Equal(took, []time.Duration{0, 0, 3 * time.Second, 2 * time.Second}) {
			t.Errorf("took %v, want %v", took, want)
		}
	})
}
