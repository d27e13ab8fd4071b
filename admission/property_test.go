// SPDX-License-Identifier: Apache-2.0

// What a rejection costs and says, and that nothing waits, for any gate and any history.

package admission_test

import (
	"bytes"
	"errors"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/admission"
)

// A rejection names the gate, its limit, and the reason: closed if it is closed, else saturated. It allocates nothing.
func TestPropertyRejectionsSayWhyAndCostNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := admission.Config{Name: rapid.StringN(0, 20, -1).Draw(t, "name"), Limit: rapid.IntRange(1, 70).Draw(t, "limit")}
		want := admission.RejectedError{Gate: cfg.Name, Reason: admission.Saturated, Limit: cfg.Limit}
		g, err := admission.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		taken := cfg.Limit
		if rapid.Bool().Draw(t, "closed") {
			taken = rapid.IntRange(0, cfg.Limit).Draw(t, "taken")
			want.Reason = admission.Closed
		}
		for range taken {
			must(g.TryAcquire())(t)
		}
		if want.Reason == admission.Closed {
			g.Close()
		}
		fn := func() error { return nil }
		reject := rapid.SampledFrom([]func() error{
			func() error { _, err := g.TryAcquire(); return err },
			func() error { return g.Do(fn) },
			func() error { _, err := admission.Call(g, func() (int, error) { return 1, nil }); return err },
			func() error { return g.Submit(func(func()) error { return nil }) },
		}).Draw(t, "call")
		if n := testing.AllocsPerRun(3, func() { err = reject() }); n != 0 {
			t.Fatalf("A6: a rejection allocates %v times", n)
		}
		var got *admission.RejectedError
		if !errors.As(err, &got) || *got != want || !errors.Is(err, admission.ErrRejected) || errors.Is(err, admission.ErrInvalid) {
			t.Fatalf("A6: %#v, want %+v", err, want)
		}
		if text := err.Error(); !strings.Contains(text, strconv.Quote(cfg.Name)) || !strings.Contains(text, want.Reason.String()) {
			t.Fatalf("A6: the message %q, of the gate %q", text, cfg.Name)
		}
	})
}

// A visit is one call of a history: how it asks, and how long it stays if it is admitted.
type visit struct {
	after, stays time.Duration
	by           int
}

// Each call is decided at its own instant, whatever came before; a slot is free from the instant at which it is released; and no
// goroutine is there but those of the callers.
func TestPropertyNothingWaits(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limit := rapid.IntRange(1, 5).Draw(rt, "limit")
		visits := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) visit {
			return visit{
				time.Duration(2*rapid.IntRange(0, 3).Draw(rt, "after")) * time.Millisecond, // even: nobody comes when somebody goes
				time.Duration(2*rapid.IntRange(0, 5).Draw(rt, "stays")+1) * time.Millisecond,
				rapid.IntRange(0, 2).Draw(rt, "by"),
			}
		}), 1, 30).Draw(rt, "visits")
		failed := ""
		synctest.Test(t, func(t *testing.T) {
			g := mustNew(t, admission.Config{Limit: limit})
			ends := []time.Time{} // of those that were admitted
			for i, v := range visits {
				time.Sleep(v.after)
				arrival, inside := time.Now(), 0
				for _, end := range ends {
					if end.After(arrival) {
						inside++
					}
				}
				started := make(chan error, 1)
				go func() {
					switch v.by {
					case 0:
						p, err := g.TryAcquire()
						if started <- err; err == nil {
							time.Sleep(v.stays)
							p.Release()
						}
					case 1:
						if err := g.Do(func() error { started <- nil; time.Sleep(v.stays); return nil }); err != nil {
							started <- err
						}
					case 2:
						started <- g.Submit(func(done func()) error { time.AfterFunc(v.stays, done); return nil })
					}
				}()
				err := <-started
				if !time.Now().Equal(arrival) || (err == nil) != (inside < limit) {
					failed = "A7: a call waited, or was judged by another instant than its own"
				}
				if err == nil {
					ends = append(ends, arrival.Add(v.stays))
					inside++
				}
				synctest.Wait()
				all := make([]byte, 1<<16)
				all = all[:runtime.Stack(all, true)]
				if bytes.Contains(all, []byte("created by github.com/stopbank/stopbank/admission.")) || g.Stats().InFlight != inside {
					failed = "A7: there is more than the callers that were admitted"
				}
				if failed != "" {
					t.Logf("visit %d: %v, %d inside", i, err, inside)
					break
				}
			}
			time.Sleep(time.Second)
		})
		if failed != "" {
			rt.Fatal(failed)
		}
	})
}

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
