// What a rejection costs, what waits, and what a broken observer may do, for any gate and any history.

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

// A rejection names the gate, its limit, and closed if it is closed, saturated if it is not; and there is nothing for the garbage collector.
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
			func() error { _, err := admission.Submit(g, func() admission.Stage[int] { return nil }); return err },
		}).Draw(t, "call")
		var said error
		if n := testing.AllocsPerRun(3, func() { said = reject() }); n != 0 {
			t.Fatalf("A6: a rejection allocates %v times", n)
		}
		var got *admission.RejectedError
		if !errors.As(said, &got) || *got != want || !errors.Is(said, admission.ErrRejected) {
			t.Fatalf("A6: %#v, want %+v", said, want)
		}
		if text := said.Error(); !strings.Contains(text, strconv.Quote(cfg.Name)) || !strings.Contains(text, want.Reason.String()) || errors.Is(said, admission.ErrInvalid) {
			t.Fatalf("A6: the message %q, of the gate %q", text, cfg.Name)
		}
	})
}

// A visit is one call of a history: how it asks, and how long it stays if it is admitted.
type visit struct {
	after, stays time.Duration
	by           int
}

// Whoever comes is admitted or rejected at the instant at which it came, in whatever order it came; a slot is free from the instant at which it
// is released; and no goroutine is there but those of the callers.
func TestPropertyNothingWaits(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limit := rapid.IntRange(1, 5).Draw(rt, "limit")
		observed := rapid.Bool().Draw(rt, "observed")
		visits := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) visit {
			return visit{
				time.Duration(2*rapid.IntRange(0, 3).Draw(rt, "after")) * time.Millisecond, // even: nobody comes when somebody goes
				time.Duration(2*rapid.IntRange(0, 5).Draw(rt, "stays")+1) * time.Millisecond,
				rapid.IntRange(0, 1).Draw(rt, "by"),
			}
		}), 1, 30).Draw(rt, "visits")
		failed := ""
		synctest.Test(t, func(t *testing.T) {
			cfg := admission.Config{Limit: limit}
			if observed {
				cfg.Observer = new(recorder)
			}
			g := mustNew(t, cfg)
			ends := []time.Time{} // of those that were admitted
			for i, v := range visits {
				time.Sleep(v.after)
				came, inside := time.Now(), 0
				for _, end := range ends {
					if end.After(came) {
						inside++
					}
				}
				started := make(chan error, 1)
				go func() {
					if v.by == 0 {
						p, err := g.TryAcquire()
						if started <- err; err == nil {
							time.Sleep(v.stays)
							p.Release()
						}
						return
					}
					if err := g.Do(func() error { started <- nil; time.Sleep(v.stays); return nil }); err != nil {
						started <- err
					}
				}()
				err := <-started
				if !time.Now().Equal(came) || (err == nil) != (inside < limit) {
					failed = "A7: a call waited, or was judged by another instant than its own"
				}
				if err == nil {
					ends = append(ends, came.Add(v.stays))
					inside++
				}
				synctest.Wait()
				all := make([]byte, 1<<16)
				all = all[:runtime.Stack(all, true)]
				if bytes.Contains(all, []byte("created by github.com/stopbank/stopbank/admission.")) || g.InFlight() != inside {
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

// Two gates live through the same history. One has an observer that panics now and then: every answer and every count is that of the other.
func TestPropertyBrokenObserverChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 4).Draw(t, "limit")
		every := rapid.IntRange(1, 4).Draw(t, "every")
		told, panicked := 0, uint64(0)
		log := &recorder{do: func(admission.Event) {
			if told++; told%every == 0 {
				panicked++
				panic("observer")
			}
		}}
		var pair [2]*machine
		for i, observer := range []admission.Observer{nil, log} {
			g := must(admission.New(admission.Config{Name: "m", Limit: limit, Observer: observer}))(t)
			pair[i] = newMachine(limit, func(f string, args ...any) { t.Helper(); t.Fatalf("A9: beside an observer that panics: "+f, args...) })
			pair[i].g = g
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			op, a, b := rapid.IntRange(0, 7).Draw(t, "op"), rapid.IntRange(0, 63).Draw(t, "a"), rapid.IntRange(0, 4).Draw(t, "b")
			for _, x := range pair {
				x.operate(op, a, b)
			}
			plain, observed := pair[0].g.Stats(), pair[1].g.Stats()
			if plain.ObserverPanics = panicked; plain != observed {
				t.Fatalf("A9: %+v, and beside an observer that panics %+v", plain, observed)
			}
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
