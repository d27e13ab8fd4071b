// What a rejection is called: in few words, and in the same ones for all of its kind.

package limiter

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
	"unicode"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden/decision"
)

func TestErrorIsShort(t *testing.T) {
	for want, r := range map[string]Rejection{
		`limiter: rejected: closed`: {Explanation: Explanation{Outcome: Rejected, Reason: Closed}},
		`limiter: "api": canceled`:  {Explanation: Explanation{Limiter: "api", Outcome: OutcomeCanceled, Reason: Canceled}},
		`limiter: "api": rejected: queue_overflow (target reached)`: {
			Explanation: Explanation{Limiter: "api", Outcome: Rejected, Reason: QueueOverflow, Bound: BoundTarget, Limit: 7, QueueLen: 3}},
		`limiter: "api": rejected: queue_overflow (own_slots reached, may not wait)`: {
			Explanation: Explanation{Limiter: "api", Outcome: Rejected, Reason: QueueOverflow, Bound: BoundSlots, Limit: 2}},
		`limiter: rejected: deadline_exceeded`: {Explanation: Explanation{Outcome: Rejected, Reason: DeadlineExceeded, Deadline: time.Now()}},
	} {
		if got := r.Error(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// Ten rejections of one kind are one line of a report, whatever numbers they have, and each tells its own story when it is asked.
func TestPropertyErrorsCanBeGrouped(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(0, 1_000_000)
		kind := Explanation{
			Limiter: "api", Outcome: Rejected, Reason: Reason(rapid.IntRange(1, int(reasons)-1).Draw(t, "reason")), Bound: Bound(rapid.IntRange(0, 5).Draw(t, "bound")),
		}
		var words string
		for i := range 2 {
			r := &Rejection{Explanation: kind, RetryAfter: time.Duration(limit.Draw(t, "after"))}
			r.Task = Task{Name: fmt.Sprint("/orders/", limit.Draw(t, "task")), ID: fmt.Sprint("request-", limit.Draw(t, "id")), Priority: Priority(rapid.Int8().Draw(t, "priority"))}
			r.At, r.Deadline = time.Unix(0, rapid.Int64().Draw(t, "at")), time.Unix(0, rapid.Int64().Draw(t, "deadline"))
			r.Waited, r.Patience = time.Duration(limit.Draw(t, "waited")), time.Duration(limit.Draw(t, "patience"))
			r.InFlight, r.QueueLen, r.Limit = limit.Draw(t, "in flight"), limit.Draw(t, "queued")+1, limit.Draw(t, "limit")
			r.ShedBelow = Priority(rapid.Int8().Draw(t, "cut"))
			r.Decision = &decision.ControlDecision{Seq: uint64(limit.Draw(t, "seq")), TargetConcurrency: limit.Draw(t, "target")}
			got := r.Error()
			if i > 0 && got != words || strings.ContainsFunc(got, unicode.IsDigit) || len(got) > 100 {
				t.Fatalf("%q and %q", words, got)
			}
			words = got
			if wrapped := fmt.Errorf("asking: %w", r); fmt.Sprintf("%v", wrapped) != "asking: "+words || !errors.Is(wrapped, ErrRejected) {
				t.Fatalf("%v", wrapped)
			}
			var line strings.Builder
			slog.New(slog.NewTextHandler(&line, nil)).Info("x", "e", r)
			for _, story := range []string{r.String(), line.String()} {
				if !strings.Contains(story, r.Task.Name) || !strings.Contains(story, r.Task.ID) || !strings.Contains(story, r.Waited.String()) || !strings.Contains(story, fmt.Sprint(r.InFlight)) {
					t.Fatalf("%q tells too little", story)
				}
			}
		}
	})
}

// Where nobody may wait, no queue has overflowed, and the words say so.
func TestWhoMayNotWaitIsToldSo(t *testing.T) {
	l, err := New(Config{Name: "api", Initial: decision.ControlDecision{Seq: 1, TargetConcurrency: 1}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := l.TryAcquire(Task{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	_, err = l.Acquire(t.Context(), Task{})
	var r *Rejection
	if !errors.As(err, &r) || r.Error() != `limiter: "api": rejected: queue_overflow (target reached, may not wait)` || !strings.Contains(r.String(), "target 1 reached, may not wait; decision 1") {
		t.Errorf("%v: %v", err, r)
	}
}
