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

// Permits are taken and released in any order. A rejection says how long ago the first one met the same oldest permit.
func TestPropertyOldestHeld(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limit := rapid.IntRange(1, 4).Draw(rt, "limit")
		steps := rapid.SliceOfN(rapid.IntRange(0, 9), 1, 60).Draw(rt, "steps")
		wrong := ""
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Second)
			l := must(New(Config{Initial: decision.ControlDecision{Seq: 1, TargetConcurrency: limit}}))(t)
			var out []Permit // the oldest first
			met := map[Permit]time.Time{}
			for i, step := range steps {
				switch time.Sleep(time.Second); {
				case step > 6 && len(out) > 0:
					k := step % len(out)
					out[k].Release()
					out = append(out[:k:k], out[k+1:]...)
				default:
					p, err := l.TryAcquire(Task{})
					if err == nil {
						out = append(out, p)
						continue
					}
					if met[out[0]].IsZero() {
						met[out[0]] = time.Now()
					}
					var r *Rejection
					if want := time.Since(met[out[0]]); !errors.As(err, &r) || r.OldestHeld != want {
						wrong = fmt.Sprintf("Q7: step %d: %v; want the oldest permit held for %s or longer", i, r, want)
						return
					}
				}
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
			{"2 in flight, 0 queued, concurrency limit 2 reached, the oldest slot held for 5s or longer;", `limiter: "db": rejected: deadline_exceeded (target reached)`, "oldest_held=5s"},
			{"concurrency limit 2 reached, the oldest slot held for 10s or longer;", `limiter: "db": rejected: deadline_exceeded (target reached, a slot held for 10s or longer)`, "oldest_held=10s"},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			_, err := l.Acquire(ctx, Task{})
			cancel()
			r := wantReason(t, err, DeadlineExceeded)
			if !strings.Contains(r.String(), want.text) || r.Error() != want.err || !strings.Contains(r.LogValue().String(), want.log) {
				t.Errorf("Q7: %d: %v: %s\n%s", i, r, r.String(), r.LogValue())
			}
		}
		_, err := l.TryAcquire(Task{})
		if r := wantReason(t, err, NoSlot); r.OldestHeld != 10*time.Second {
			t.Errorf("Q7: %s", r.OldestHeld)
		}
	})
}
