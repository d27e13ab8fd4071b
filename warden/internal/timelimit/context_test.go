// SPDX-License-Identifier: Apache-2.0

package timelimit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden/internal/timelimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A request waits for its client, goes on, answers in parts, becomes a stream, loses its client or is done. Its context and all that
// derive from it end when it has spent its time, which waits do not take, and each part gives it anew; or with the parent.
func TestPropertyTime(t *testing.T) {
	const span = 100 * time.Millisecond
	why := errors.New("why")
	rapid.Check(t, func(rt *rapid.T) {
		whose := rapid.SampledFrom([]timelimit.Whose{timelimit.Service, timelimit.Trusted, timelimit.Stranger}).Draw(rt, "whose")
		cause := rapid.SampledFrom([]error{context.DeadlineExceeded, timeoutError{why}}).Draw(rt, "cause")
		nested := rapid.Bool().Draw(rt, "nested")
		type step struct {
			after time.Duration
			does  string
		}
		steps := make([]step, rapid.IntRange(0, 12).Draw(rt, "steps"))
		waits := 0
		for i := range steps {
			all := []string{"derive", "ask", "wait"}
			if waits > 0 {
				all = append(all, "resume", "part")
			}
			if i > len(steps)/2 {
				all = append(all, "lift", "leave", "stop")
			}
			s := step{time.Duration(rapid.IntRange(0, 80).Draw(rt, "after"))*time.Millisecond + time.Microsecond, rapid.SampledFrom(all).Draw(rt, "does")}
			switch s.does {
			case "wait":
				waits++
			case "resume", "part":
				waits--
			}
			steps[i] = s
		}
		var wrong strings.Builder
		synctest.Test(t, func(*testing.T) {
			left, waiting, ended, lifted := span, 0, error(nil), false // the model
			wantCause := error(nil)
			end := func(err, cause error) {
				if ended == nil {
					ended, wantCause = err, cause
				}
			}
			parent, leave := context.WithCancelCause(context.Background())
			defer leave(nil)
			c := timelimit.New(parent, nil, whose, time.Now().Add(span), span, cause)
			c.Start()
			defer c.Stop()
			inner := c
			if nested { // one that is up later never ends first
				inner = timelimit.New(context.WithValue(c, key{}, 1), nil, timelimit.Service, time.Now().Add(time.Hour), time.Hour, why)
				inner.Start()
				defer inner.Stop()
			}
			all := []context.Context{inner}
			check := func(after string) {
				synctest.Wait()
				for i, ctx := range all {
					over := false
					select {
					case <-ctx.Done():
						over = true
					default:
					}
					if over != (ended != nil) || !errors.Is(ctx.Err(), ended) || ended == nil && ctx.Err() != nil || ctx.Err() != nil && ctx.Err() != ended || context.Cause(ctx) != wantCause {
						fmt.Fprintf(&wrong, "after %s: context %d: over %t, %v, cause %v; want %v, %v\n", after, i, over, ctx.Err(), context.Cause(ctx), ended, wantCause)
					}
				}
				due, strangers, bounded := timelimit.Due(inner)
				if ended == nil && !lifted && (!bounded || time.Until(due) != left || strangers != (whose == timelimit.Stranger)) {
					fmt.Fprintf(&wrong, "after %s: due in %v, %t, %t; want %v\n", after, time.Until(due), strangers, bounded, left)
				}
			}
			pass := func(d time.Duration) {
				time.Sleep(d)
				if waiting > 0 || lifted || ended != nil {
					return
				}
				if left -= d; left < 0 {
					if end(context.DeadlineExceeded, cause); whose == timelimit.Stranger {
						ended, wantCause = context.Canceled, timelimit.ErrStranger
					}
				}
			}
			for _, s := range steps {
				pass(s.after)
				switch s.does {
				case "wait":
					inner.Wait(time.Now())
					waiting++
				case "resume", "part":
					inner.Resume(time.Now(), s.does == "part")
					if waiting--; s.does == "part" && ended == nil {
						left = span
					}
				case "lift":
					inner.Lift()
					lifted = true
				case "leave":
					leave(why)
					end(context.Canceled, why)
				case "stop":
					c.Stop()
					end(context.Canceled, context.Canceled)
				case "derive":
					ctx, cancel := context.WithTimeout(context.WithValue(all[0], key{}, 2), 24*time.Hour)
					defer cancel()
					all = append(all, ctx)
				}
				check(s.does)
			}
			pass(2 * span)
			check("all")
			c.Stop()
			inner.Stop()
			end(context.Canceled, context.Canceled)
			check("the end")
		})
		if wrong.Len() > 0 {
			rt.Fatal(wrong.String())
		}
	})
}

type key struct{}

// timeoutError matches context.DeadlineExceeded, as the causes of compartments do.
type timeoutError struct{ error }

func (timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// What a context tells of its time depends on where it comes from: a child that ends with the request is told of it, one that does not
// is not, and one with a deadline of its own tells that.
func TestDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		for _, whose := range []timelimit.Whose{timelimit.Service, timelimit.Trusted, timelimit.Stranger} {
			c := timelimit.New(t.Context(), nil, whose, now.Add(time.Second), time.Second, context.DeadlineExceeded)
			c.Start()
			defer c.Stop()
			child, cancel := context.WithCancel(context.WithValue(c, key{}, 1))
			defer cancel()
			longer, cancel := context.WithTimeout(child, time.Minute)
			defer cancel()
			shorter, cancel := context.WithTimeout(child, time.Millisecond)
			defer cancel()
			apart, cancel := context.WithCancel(context.WithoutCancel(child))
			defer cancel()
			apartLonger, cancel := context.WithTimeout(apart, time.Minute)
			defer cancel()
			for name, d := range map[string]struct {
				ctx  context.Context
				want time.Duration
			}{
				"its own": {c, time.Second}, "child": {child, time.Second}, "longer": {longer, time.Minute}, "shorter": {shorter, time.Millisecond},
				"apart": {apart, 0}, "apart, longer": {apartLonger, time.Minute},
			} {
				due, strangers, bounded := timelimit.Due(d.ctx)
				if bounded != (d.want > 0) || bounded && !due.Equal(now.Add(d.want)) || strangers != (whose == timelimit.Stranger && d.want == time.Second) {
					t.Errorf("%d, %s: due in %v, %t, %t; want %v", whose, name, due.Sub(now), strangers, bounded, d.want)
				}
			}
			if at, bounded := c.Deadline(); bounded {
				t.Errorf("%d: Deadline in %v, want none", whose, at.Sub(now))
			}
			ctx := timelimit.Told(child)
			due, strangers, _ := timelimit.Due(ctx)
			if at, told := ctx.Deadline(); told != (whose != timelimit.Service) || told && !at.Equal(now.Add(time.Second)) ||
				!due.Equal(now.Add(time.Second)) || strangers != (whose == timelimit.Stranger) {
				t.Errorf("%d: told %v, %t, due in %v, %t", whose, at.Sub(now), told, due.Sub(now), strangers)
			}
		}
	})
}
