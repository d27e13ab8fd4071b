// A permit that nobody releases shows its age to those who wait for it (Q7).

package limiter

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden/decision"
)

// Permits are taken and released in any order. A rejection never says that a slot has been held for longer than the oldest has,
// and for a second more than the one before it if nothing was released between them. One that nobody ever releases is found.
func TestPropertyOldestHeld(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limit := rapid.IntRange(1, 4).Draw(rt, "limit")
		forgotten := rapid.IntRange(0, limit-1).Draw(rt, "forgotten")
		steps := rapid.SliceOfN(rapid.IntRange(0, 9), 1, 60).Draw(rt, "steps")
		wrong := ""
		synctest.Test(t, func(t *testing.T) {
			l := must(New(Config{Initial: decision.ControlDecision{Seq: 1, TargetConcurrency: limit}}))(t)
			out := map[int]Permit{}
			began := map[int]time.Time{}
			fill := func() {
				for k := range limit {
					if _, held := out[k]; !held {
						out[k], began[k] = must(l.TryAcquire(Task{}))(t), time.Now()
					}
				}
			}
			rejected := func() time.Duration {
				_, err := l.TryAcquire(Task{})
				var r *decision.Rejection
				if !errors.As(err, &r) {
					t.Fatalf("Q7: %v, want a rejection", err)
				}
				return r.OldestHeld
			}
			release := func(k int) {
				out[k].Release()
				delete(out, k)
			}
			fill()
			last := time.Duration(-1) // of the rejection a second ago, if nothing was released since
			for i, step := range steps {
				time.Sleep(time.Second)
				if step < limit {
					release(step)
					fill()
					last = -1
					continue
				}
				oldest := time.Duration(0)
				for _, at := range began {
					oldest = max(oldest, time.Since(at))
				}
				got := rejected()
				if got > oldest || last >= 0 && got != last+time.Second {
					wrong = fmt.Sprintf("Q7: step %d: held for %s, after %s; the oldest for %s", i, got, last, oldest)
					return
				}
				last = got
			}
			others := func() {
				for k := range limit {
					if k != forgotten {
						release(k)
					}
				}
				fill()
			}
			for range 2 * limit { // each time, who else is looked at leaves
				rejected()
				others()
			}
			before := rejected()
			time.Sleep(time.Hour)
			if got := rejected(); got != before+time.Hour {
				wrong = fmt.Sprintf("Q7: held for %s, then for %s, an hour later", before, got)
			}
			others()
			if got := rejected(); wrong == "" && got < time.Hour {
				wrong = fmt.Sprintf("Q7: a permit is forgotten, and the oldest held for %s", got)
			}
		})
		if wrong != "" {
			rt.Fatal(wrong)
		}
	})
}

// A forgotten Release names itself: to who waits until its time is up, in numbers and in words.
func TestAForgottenReleaseShows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(New(Config{Name: "db", MaxQueue: 9, Initial: decision.ControlDecision{Seq: 1, TargetConcurrency: 2}}))(t)
		must(l.Acquire(t.Context(), Task{}))(t) // forgotten
		time.Sleep(time.Minute)
		defer must(l.Acquire(t.Context(), Task{}))(t).Release()
		for i, want := range []struct{ text, err, log string }{
			{"2 in flight, 0 queued, concurrency limit 2 reached, the oldest slot held for 5s or longer;",
				`limiter: "db": rejected: deadline_exceeded (target reached)`, "oldest_held=5s"},
			{"concurrency limit 2 reached, the oldest slot held for 10s or longer;",
				`limiter: "db": rejected: deadline_exceeded (target reached, a slot held for 10s or longer)`, "oldest_held=10s"},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			_, err := l.Acquire(ctx, Task{})
			cancel()
			r := wantReason(t, err, decision.DeadlineExceeded)
			if !strings.Contains(r.String(), want.text) || r.Error() != want.err || !strings.Contains(r.LogValue().String(), want.log) {
				t.Errorf("Q7: %d: %v: %s\n%s", i, r, r.String(), r.LogValue())
			}
		}
		_, err := l.TryAcquire(Task{})
		if r := wantReason(t, err, decision.NoSlot); r.OldestHeld != 10*time.Second {
			t.Errorf("Q7: %s", r.OldestHeld)
		}
	})
}
