// SPDX-License-Identifier: Apache-2.0

// What a rejection is called: in few words, and in the same ones for all of its kind.

package decision

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
	"unicode"

	"pgregory.net/rapid"
)

func TestErrorIsShort(t *testing.T) {
	for want, r := range map[string]Rejection{
		`limiter: rejected: closed`: {Explanation: Explanation{Outcome: Rejected, Reason: Closed}},
		`limiter: "api": canceled`:  {Explanation: Explanation{Limiter: "api", Outcome: OutcomeCanceled, Reason: Canceled}},
		`limiter: "api": rejected: queue_overflow (target reached)`: {
			Explanation: Explanation{Limiter: "api", Outcome: Rejected, Reason: QueueOverflow, Bound: BoundTarget, Limit: 7, QueueLen: 3}},
		`limiter: "api": rejected: queue_overflow (own_slots reached, may not wait)`: {
			Explanation: Explanation{Limiter: "api", Outcome: Rejected, Reason: QueueOverflow, Bound: "own_slots", Limit: 2}},
		`limiter: rejected: deadline_exceeded`: {Explanation: Explanation{Outcome: Rejected, Reason: DeadlineExceeded,
			Deadline: time.Now()}},
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
			Limiter: "api", Outcome: Rejected, Reason: rapid.SampledFrom([]RejectionReason{QueueOverflow, NoSlot, DeadlineExceeded,
				"timeout_queued"}).Draw(t, "reason"),
			Bound: rapid.SampledFrom([]Bound{"", BoundTarget, "own_slots"}).Draw(t, "bound"),
		}
		var words string
		for i := range 2 {
			r := &Rejection{Explanation: kind, RetryAfter: time.Duration(limit.Draw(t, "after"))}
			r.Task = Task{Name: fmt.Sprint("/orders/", limit.Draw(t, "task")), ID: fmt.Sprint("request-", limit.Draw(t, "id")),
				Priority: Priority(rapid.Int8().Draw(t, "priority"))}
			r.At, r.Deadline = time.Unix(0, rapid.Int64().Draw(t, "at")), time.Unix(0, rapid.Int64().Draw(t, "deadline"))
			r.Waited, r.MaxWait = time.Duration(limit.Draw(t, "waited")), time.Duration(limit.Draw(t, "max wait"))
			r.InFlight, r.QueueLen, r.Limit = limit.Draw(t, "in flight"), limit.Draw(t, "queued")+1, limit.Draw(t, "limit")
			r.ShedBelow = Priority(rapid.Int8().Draw(t, "cut"))
			r.Decision = &ControlDecision{Seq: uint64(limit.Draw(t, "seq")), TargetConcurrency: limit.Draw(t, "target")}
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
			for story, waited := range map[string]time.Duration{r.String(): brief(r.Waited), line.String(): r.Waited} {
				if !strings.Contains(story, r.Task.Name) || !strings.Contains(story, r.Task.ID) ||
					!strings.Contains(story, waited.String()) || !strings.Contains(story, fmt.Sprint(r.InFlight)) {
					t.Fatalf("%q tells too little", story)
				}
			}
		}
	})
}

// The text for people: three digits, the deadline as the time left, the bound in words, and no decision that nobody made.
func TestExplanationIsReadable(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	const head, tail = `rejected: timeout_queued: request "be2de", priority normal, `,
		`, waited 101ms; "stock": 10 in flight, 0 queued`
	e := Explanation{
		Limiter: "stock", Outcome: Rejected, Reason: "timeout_queued", Task: Task{ID: "be2de"}, At: at, Waited: 100828064, InFlight: 10,
		ShedBelow: lowest,
		Deadline:  at.Add(-828064), DeadlineFrom: "max_wait", Decision: &ControlDecision{TargetConcurrency: 10},
	}
	for bound, want := range map[Bound]string{
		"": "", BoundTarget: ", concurrency limit 10 reached", "own_slots": ", own_slots 10 reached",
	} {
		e.Bound, e.Limit = bound, 10
		if got := e.String(); got != head+"deadline 828µs ago (max_wait)"+tail+want {
			t.Error(got)
		}
	}
	e.Bound, e.Deadline = "", at.Add(1234567*time.Microsecond)
	if got := e.String(); got != head+"deadline in 1.23s (max_wait)"+tail {
		t.Error(got)
	}
	e.At = time.Time{}
	if got := e.String(); got != head+"deadline 2026-01-02T03:04:06Z (max_wait)"+tail {
		t.Error(got)
	}
	for d, want := range map[time.Duration]time.Duration{
		0: 0, 999: 999, 1234: 1230, 99_960_000: 100 * time.Millisecond, -1234: -1230, 3723 * time.Second: time.Hour + 2*time.Minute,
	} {
		if got := brief(d); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
}
