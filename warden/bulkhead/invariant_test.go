// SPDX-License-Identifier: Apache-2.0

// Lent slots, counters, plans and re-entry (B3, B5, B7, B10), told from outside.

package bulkhead

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/timelimit"
)

// pair is a set of two compartments that may both have everything: "owner", of which some is lent, and "other".
func pair(t testing.TB, owner, other CompartmentConfig) (s *Set, a, b *Compartment) {
	t.Helper()
	owner.Name, other.Name = "owner", "other"
	s = mustNew(t, Config{Total: 10, Compartments: []CompartmentConfig{owner, other}})
	a, b = s.Compartment("owner"), s.Compartment("other")
	return s, a, b
}

func TestTheOwnerGetsTheNextSlotThatComesBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crew) {
		s, a, b := pair(t, CompartmentConfig{Guaranteed: 4, Lendable: 4, MaxQueue: 9, Criticality: decision.Background},
			CompartmentConfig{Guaranteed: 2, Max: 10, MaxQueue: 99, Criticality: decision.Critical})
		borrowers := w.fill(b, 12) // 10 run; 2 have waited for longer than any owner
		var owners []*job
		for range 5 {
			owners = append(owners, w.send(a, "owner"))
		}
		for i := range 4 {
			w.let(borrowers[i])
			if !owners[i].runs() || a.Snapshot().InFlight != i+1 {
				t.Fatalf("B3: after %d slots came back, %d are the owner's", i+1, a.Snapshot().InFlight)
			}
		}
		w.let(borrowers[4])
		if owners[4].runs() || !borrowers[10].runs() {
			t.Error("B3: beyond its guarantee the owner is not first: the other one is more critical, and has borrowed no more")
		}
		if c := a.Snapshot(); c.Lent != 0 || c.InFlight != 4 {
			t.Errorf("B3: %+v", c)
		}
		rest(t, s, 10)
	})
}

// TestTheWaitForWhatIsLent measures the bound: with functions that honor their context, an owner waits no longer than the
// borrowers' Timeout; with ones that do not, it waits for them, and Abandoned says so.
func TestTheWaitForWhatIsLent(t *testing.T) {
	const timeout = 3 * time.Second
	for _, honest := range []bool{true, false} {
		t.Run(fmt.Sprintf("honest %v", honest), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, a, b := pair(t, CompartmentConfig{Guaranteed: 5, Lendable: 5, MaxQueue: 50},
					CompartmentConfig{Guaranteed: 5, Max: 10, Timeout: timeout, MaxQueue: 50, MaxWait: time.Hour})
				stuck := make(chan struct{})
				var all sync.WaitGroup
				for range 30 {
					all.Go(func() {
						_, _ = Do(t.Context(), b, func(ctx context.Context) (int, error) {
							if honest {
								<-ctx.Done()
							} else {
								<-stuck
							}
							return 0, nil
						})
					})
				}
				sleep(time.Second)
				began := time.Now()
				var longest time.Duration
				var mu sync.Mutex
				for range 5 {
					all.Go(func() {
						_, _ = Do(t.Context(), a, func(context.Context) (int, error) {
							mu.Lock()
							defer mu.Unlock()
							longest = max(longest, time.Since(began))
							return 0, nil
						})
					})
				}
				sleep(10 * timeout)
				t.Logf("the longest wait of an owner: %s; the borrowers' Timeout: %s", longest, timeout)
				c := b.Snapshot()
				if honest && (longest == 0 || longest > timeout || c.Abandoned != 0) {
					t.Errorf("B3: longest %s, %d abandoned", longest, c.Abandoned)
				}
				if !honest && (longest != 0 || c.Abandoned != 10 || a.Snapshot().Queued != 5) {
					t.Errorf("B3: longest %s, %+v", longest, c)
				}
				close(stuck)
				all.Wait()
			})
		})
	}
}

func TestNothingIsLentThatIsNotLendable(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crew) {
		_, a, b := pair(t, CompartmentConfig{Guaranteed: 6, Lendable: 1, MaxQueue: 1}, CompartmentConfig{Guaranteed: 2, Max: 4})
		w.fill(b, 9)
		if c := b.Snapshot(); c.InFlight != 4 || c.Rejected["queue_overflow"] != 5 {
			t.Errorf("B3: beyond its Max: %+v", c)
		}
		if c := a.Snapshot(); c.Lent != 0 {
			t.Errorf("B3: slots that nobody is guaranteed go first: %+v", c)
		}
	})
}

func TestEveryCallIsCountedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crew) {
		broken := errors.New("broken")
		s, a := single(t, CompartmentConfig{Guaranteed: 1, MaxQueue: 2, MaxWait: time.Second})
		_, _ = Do(t.Context(), a, func(context.Context) (int, error) { return 0, broken })
		_, _ = Do(t.Context(), a, func(ctx context.Context) (int, error) { return Do(ctx, a, nothing) })
		first := w.send(a, "first")
		w.send(a, "waits too long")
		gone := w.send(a, "goes away")
		_, err := Do(t.Context(), a, nothing)
		wantRejected(t, err, decision.QueueOverflow)
		gone.cancel()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err = Do(ctx, a, nothing) // its own deadline is the earlier one
		wantRejected(t, err, decision.DeadlineExceeded)
		sleep(time.Second)
		waiting := w.send(a, "waits")
		c := a.Snapshot()
		got := fmt.Sprint(c.Submitted, c.Admitted, c.Finished, c.InFlight, c.Queued, c.Outcomes, c.Rejected, c.Left)
		want := "9 3 2 1 1 map[failed:2] map[queue_overflow:1 reentry:1] map[canceled:1 deadline_exceeded:1 timeout_queued:1]"
		if got != want {
			t.Errorf("B5: got  %s\nwant %s", got, want)
		}
		rest(t, s, 1)
		w.let(first)
		w.let(waiting)
		rest(t, s, 0)
	})
}

func TestAQueueTimeoutExplainsItself(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crew) {
		s, a := single(t, CompartmentConfig{Guaranteed: 1, MaxQueue: 1, MaxWait: time.Second})
		w.send(a, "first")
		_, err := Do(t.Context(), a, nothing)
		var timeout *TimeoutError
		if r := wantRejected(t, err, TimeoutQueued); !errors.As(err, &timeout) || timeout.After != time.Second ||
			r.Waited != time.Second {
			t.Errorf("B5: %+v", err)
		}
		if r := s.Recent(); len(r) != 1 || r[0].Limiter != "a" || r[0].Reason != TimeoutQueued {
			t.Errorf("B5: %+v", r)
		}
	})
}

// The bounds of calls are part of the plan: what runs or waits keeps those that it began with, and who made the plan is told.
func TestBoundsWhileRunning(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crew) {
		seen := &recording{}
		s := mustNew(t, Config{Total: 2, Observer: seen,
			Compartments: []CompartmentConfig{{Name: "a", Guaranteed: 1, MaxQueue: 1, MaxWait: 2 * time.Second,
				Timeout: 3 * time.Second}}})
		a := s.Compartment("a")
		_, permit, err := a.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ran := make(chan error)
		go func() {
			_, err := Do(t.Context(), a, nothing)
			ran <- err
		}()
		synctest.Wait()
		p := s.Plan()
		sh := &p.Compartments[0]
		p.By, sh.MaxQueue, sh.MaxWait, sh.Timeout = "anna", 3, 5*time.Second, 9*time.Second
		if _, err := s.Resize(p); err != nil {
			t.Fatal(err)
		}
		if got := s.Snapshot(); got.ResizedBy != "anna" || !got.ResizedAt.Equal(time.Now()) || got.Compartments[0].MaxQueue != 3 ||
			seen.of(Resized)[0].By != "anna" || s.Plan().By != "" {
			t.Errorf("B7: %+v, %+v", got, seen.of(Resized))
		}
		later := time.Now()
		var queued *TimeoutError
		if err := <-ran; !errors.As(err, &queued) || queued.After != 2*time.Second || time.Since(later) != 2*time.Second {
			t.Errorf("B7: who waited when MaxWait was 2 s: %v", err)
		}
		later = time.Now()
		if _, err := Do(t.Context(), a, nothing); !errors.As(err, &queued) || queued.After != 5*time.Second ||
			time.Since(later) != 5*time.Second {
			t.Errorf("B7: who waits now: %v", err)
		}
		permit.Release(context.DeadlineExceeded)
		if out := a.Snapshot().Outcomes[string(TimedOut)]; out != 1 {
			t.Errorf("B7: it began with a Timeout of 3 s, and ran for 7: %v", a.Snapshot().Outcomes)
		}
		ctx, permit, err := a.Acquire(t.Context())
		if at, _, ok := timelimit.Due(ctx); err != nil || !ok || time.Until(at) != 9*time.Second || a.Snapshot().Timeout != 9*time.Second {
			t.Errorf("B7: Timeout until %v: %v", at, err)
		}
		permit.Release(nil)
		for field, bad := range map[string]func(*Plan){
			`Plan.By`:                         func(p *Plan) { p.By = strings.Repeat("a", 129) },
			`Plan.Compartments["a"].MaxQueue`: func(p *Plan) { p.Compartments[0].MaxQueue = -1 },
			`Plan.Compartments["a"].MaxWait`:  func(p *Plan) { p.Compartments[0].MaxQueue = 0 },
			`Plan.Compartments["a"].Timeout`:  func(p *Plan) { p.Compartments[0].Timeout = 500 },
		} {
			p := s.Plan()
			bad(&p)
			var invalid *decision.InvalidError
			if _, err := s.Resize(p); !errors.As(err, &invalid) || invalid.Field != "bulkhead."+field || s.Plan().Revision != 2 {
				t.Errorf("B7: %s: %v", field, err)
			}
		}
		rest(t, s, 0)
	})
}

func TestResizeWhileRunning(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crew) {
		seen := &recording{}
		s := mustNew(t, Config{Total: 10, Observer: seen, Compartments: []CompartmentConfig{
			{Name: "owner", Guaranteed: 6, MaxQueue: 9}, {Name: "other", Guaranteed: 4, MaxQueue: 9},
		}})
		a, b := s.Compartment("owner"), s.Compartment("other")
		mine, theirs := w.fill(a, 6), w.fill(b, 6)
		p := s.Plan()
		p.Compartments[0].Guaranteed, p.Compartments[0].Max = 3, 3
		p.Compartments[1].Guaranteed, p.Compartments[1].Max = 7, 7
		revision, err := s.Resize(p)
		if err != nil || revision != 2 || s.Plan().Revision != 2 {
			t.Fatal(revision, err)
		}
		for i := range 4 {
			if got := b.Snapshot().InFlight; got != min(6, 4+i) {
				t.Fatalf("B7: after %d ended: %d in flight", i, got)
			}
			if i < 3 {
				w.let(mine[i])
			}
		}
		_, err = s.Resize(p) // made from revision 1
		var stale *conflictError
		if !errors.As(err, &stale) || !errors.Is(err, ErrConflict) || stale.given != 1 || stale.current != 2 {
			t.Error(err)
		}
		p = s.Plan()
		p.Compartments[1].Guaranteed = p.Total // more than there is beside the other's
		if _, err := s.Resize(p); err == nil || s.Plan().Revision != 2 || s.Plan().Compartments[1].Guaranteed != 7 {
			t.Errorf("B7: after a plan that is rejected (%v): %+v", err, s.Plan())
		}
		if !theirs[5].runs() || len(seen.of(Resized)) != 1 || seen.of(Resized)[0].Revision != 2 {
			t.Error("B7: the other's calls wait on, or nobody was told")
		}
		rest(t, s, 9)
	})
}
