// One test for each invariant, told from outside.

package bulkhead

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
)

// pair is a set of two compartments that may both have everything: "owner", of which some is lent, and "other".
func pair(t testing.TB, owner, other CompartmentConfig) (s *Set, a, b *Compartment) {
	t.Helper()
	owner.Name, other.Name = "owner", "other"
	s = mustNew(t, Config{Total: 10, Compartments: []CompartmentConfig{owner, other}})
	a, b = s.Compartment("owner"), s.Compartment("other")
	return s, a, b
}

func TestB1_NeverMoreThanTotal(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crew) {
		s, a, b := pair(t, CompartmentConfig{Guaranteed: 2, Max: 10}, CompartmentConfig{Guaranteed: 3, Max: 10})
		w.fill(a, 12)
		w.fill(b, 12)
		rest(t, s, 10)
		if c := a.Snapshot(); c.InFlight != 7 || c.Borrowed != 5 {
			t.Errorf("%+v", c)
		}
	})
}

func TestB1_AfterAShrinkNobodyIsAdmittedUntilEnoughHaveEnded(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crew) {
		s, a, b := pair(t, CompartmentConfig{Guaranteed: 2, Max: 10}, CompartmentConfig{Guaranteed: 3, Max: 10})
		jobs := w.fill(a, 7)
		p := s.Plan()
		p.Total, p.Compartments[0].Max, p.Compartments[1].Max = 5, 5, 5
		if _, err := s.Resize(p); err != nil {
			t.Fatal(err)
		}
		for i, j := range jobs[:5] {
			w.let(j)
			if _, err := Do(t.Context(), b, nothing); (err == nil) != (6-i < 5) {
				t.Errorf("%d in flight: %v", 6-i, err)
			}
		}
		rest(t, s, 2)
	})
}

func TestB2_BelowItsKeptPartACompartmentIsAdmittedAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crew) {
		s, a, b := pair(t, CompartmentConfig{Guaranteed: 5, Lendable: 2, MaxQueue: 5, Max: 10}, CompartmentConfig{Guaranteed: 1, Max: 10, MaxQueue: 99})
		w.fill(b, 20) // the flood: 7 run, 13 wait
		if got := b.Snapshot(); got.InFlight != 7 || got.Queued != 13 || a.Snapshot().Lent != 2 {
			t.Fatalf("%+v", got)
		}
		for i := range 3 {
			if j := w.send(a, "a"); !j.runs() {
				t.Errorf("call %d of the owner waits: %v", i+1, j.err)
			}
		}
		if j := w.send(a, "a"); !j.waits() {
			t.Error("what is lent was granted")
		}
		rest(t, s, 10)
	})
}

// Up to its kept part a compartment takes no lock: here, somebody else holds both all the time.
func TestB2_BelowItsKeptPartNoLockIsTaken(t *testing.T) {
	s, a, _ := pair(t, CompartmentConfig{Guaranteed: 2}, CompartmentConfig{Guaranteed: 1})
	s.mu.Lock()
	s.ledger.mu.Lock()
	done := make(chan error, 1)
	go func() {
		_, err := Do(t.Context(), a, func(ctx context.Context) (int, error) {
			_, p, err := a.Acquire(t.Context())
			if err == nil {
				p.Release(nil)
			}
			return 0, err
		})
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it waits for a lock")
	}
	s.ledger.mu.Unlock()
	s.mu.Unlock()
	rest(t, s, 0)
}

func TestB3_TheOwnerGetsTheNextPlaceThatComesBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crew) {
		s, a, b := pair(t, CompartmentConfig{Guaranteed: 4, Lendable: 4, MaxQueue: 9, Criticality: limiter.Background},
			CompartmentConfig{Guaranteed: 2, Max: 10, MaxQueue: 99, Criticality: limiter.Critical})
		borrowers := w.fill(b, 12) // 10 run; 2 have waited for longer than any owner
		var owners []*job
		for range 5 {
			owners = append(owners, w.send(a, "owner"))
		}
		for i := range 4 {
			w.let(borrowers[i])
			if !owners[i].runs() || a.Snapshot().InFlight != i+1 {
				t.Fatalf("after %d places came back, %d are the owner's", i+1, a.Snapshot().InFlight)
			}
		}
		w.let(borrowers[4])
		if owners[4].runs() || !borrowers[10].runs() {
			t.Error("beyond its guarantee the owner is not first: the other one is more critical, and has borrowed no more")
		}
		if c := a.Snapshot(); c.Lent != 0 || c.InFlight != 4 {
			t.Errorf("%+v", c)
		}
		rest(t, s, 10)
	})
}

// TestB3_TheWaitForWhatIsLent measures the bound: with functions that honor their context, an owner waits no longer than the
// borrowers' Timeout; with ones that do not, it waits for them, and Abandoned says so.
func TestB3_TheWaitForWhatIsLent(t *testing.T) {
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
					t.Errorf("longest %s, %d abandoned", longest, c.Abandoned)
				}
				if !honest && (longest != 0 || c.Abandoned != 10 || a.Snapshot().Queued != 5) {
					t.Errorf("longest %s, %+v", longest, c)
				}
				close(stuck)
				all.Wait()
			})
		})
	}
}

func TestB3_NothingIsLentThatIsNotLendable(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crew) {
		_, a, b := pair(t, CompartmentConfig{Guaranteed: 6, Lendable: 1, MaxQueue: 1}, CompartmentConfig{Guaranteed: 2, Max: 4})
		w.fill(b, 9)
		if c := b.Snapshot(); c.InFlight != 4 || c.Rejected["queue_overflow"] != 5 {
			t.Errorf("beyond its Max: %+v", c)
		}
		if c := a.Snapshot(); c.Lent != 0 {
			t.Errorf("places that nobody is guaranteed go first: %+v", c)
		}
	})
}

func TestB4_ThePlaceIsHeldUntilTheFunctionHasReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &recording{}
		s := mustNew(t, Config{Total: 1, Observer: seen, Compartments: []CompartmentConfig{{Name: "a", Guaranteed: 1, Timeout: time.Second}}})
		a := s.Compartment("a")
		stuck := make(chan struct{})
		began := time.Now()
		_, err := Do(t.Context(), a, func(context.Context) (int, error) { <-stuck; return 7, nil })
		var timeout *TimeoutError
		if !errors.As(err, &timeout) || timeout.Phase != Running || timeout.After != time.Second || time.Since(began) != time.Second {
			t.Fatalf("%v after %s", err, time.Since(began))
		}
		if !errors.Is(err, ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		for range 3 { // a stuck dependency is handed nothing more
			_, err = Do(t.Context(), a, nothing)
			wantRefused(t, err, limiter.QueueOverflow)
		}
		if c := a.Snapshot(); c.InFlight != 1 || c.Abandoned != 1 || c.AbandonedTotal != 1 || c.Outcomes["timed_out"] != 1 || c.Finished != 0 {
			t.Errorf("%+v", c)
		}
		rest(t, s, 1)
		close(stuck)
		synctest.Wait()
		if c := a.Snapshot(); c.InFlight != 0 || c.Abandoned != 0 || c.AbandonedTotal != 1 || c.Finished != 1 {
			t.Errorf("%+v", c)
		}
		rest(t, s, 0)
		if _, err := Do(t.Context(), a, nothing); err != nil {
			t.Error(err)
		}
		if len(seen.of(Abandoned)) != 1 || len(seen.of(Returned)) != 1 || len(seen.of(Answered)) != 5 {
			t.Errorf("%+v", seen.events)
		}
	})
}

func TestB4_AnHonestFunctionAndItsTimeoutGiveOneAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a := single(t, CompartmentConfig{Guaranteed: 1, Timeout: time.Second})
		for range 20 { // whichever is first
			_, err := Do(t.Context(), a, func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, fmt.Errorf("query: %w", ctx.Err()) })
			var timeout *TimeoutError
			if !errors.As(err, &timeout) || timeout.Phase != Running {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if c := a.Snapshot(); c.Outcomes["timed_out"] != 20 || c.Finished != 20 || c.Abandoned != 0 {
			t.Errorf("%+v", c)
		}
		rest(t, s, 0)
	})
}

func TestB4_TimeoutCountsFromTheStart(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crew) {
		_, a := single(t, CompartmentConfig{Guaranteed: 1, Timeout: time.Second, MaxQueue: 1, MaxWait: time.Minute})
		first := w.send(a, "first")
		second := w.send(a, "second")
		sleep(900 * time.Millisecond)
		w.let(first)
		sleep(900 * time.Millisecond)
		if !second.runs() {
			t.Errorf("the wait counted: %v", second.err)
		}
		sleep(200 * time.Millisecond)
		if !errors.Is(second.err, ErrTimeout) {
			t.Error(second.err)
		}
		second.leave <- nil
	})
}

func TestB4_APanicReachesTheCallerWhoWaits(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s, a := single(t, CompartmentConfig{Guaranteed: 1, Timeout: timeout})
			mark := errors.New("mark")
			func() {
				defer func() {
					if got := recover(); got != mark {
						t.Errorf("recovered %v", got)
					}
				}()
				_, _ = Do(t.Context(), a, func(context.Context) (int, error) { panic(mark) })
			}()
			exited, returned := make(chan bool, 1), false
			go func() {
				defer func() { exited <- true }()
				_, _ = Do(context.Background(), a, func(context.Context) (int, error) { runtime.Goexit(); return 0, nil })
				returned = true
			}()
			<-exited
			if c := a.Snapshot(); returned || c.Outcomes["panicked"] != 2 || c.LatePanics != 0 {
				t.Errorf("returned %v, %+v", returned, c)
			}
			rest(t, s, 0)
		})
	}
}

func TestB4_AfterItsCallerHasGoneAPanicIsContained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &recording{}
		s := mustNew(t, Config{Total: 2, Observer: seen, Compartments: []CompartmentConfig{{Name: "a", Guaranteed: 2, Timeout: time.Second}}})
		a := s.Compartment("a")
		for _, end := range []func(){func() { panic("late") }, runtime.Goexit} {
			_, err := Do(t.Context(), a, func(ctx context.Context) (int, error) { sleepFor(2 * time.Second); end(); return 0, nil })
			if !errors.Is(err, ErrTimeout) {
				t.Error(err)
			}
			sleep(2 * time.Second)
		}
		c := a.Snapshot()
		if c.LatePanics != 1 || c.InFlight != 0 || c.Abandoned != 0 || c.Outcomes["timed_out"] != 2 {
			t.Errorf("%+v", c)
		}
		back := seen.of(Returned)
		if len(back) != 2 || !containsAll(string(back[0].Stack), "TestB4_AfterItsCallerHasGone") || back[1].Stack != nil || back[0].Took != 2*time.Second {
			t.Errorf("%+v", back)
		}
		if err := back[0].Err; !errors.Is(err, errPanicked) || !containsAll(err.Error(), "late") {
			t.Errorf("nobody is told what it panicked with: %v", err)
		}
		rest(t, s, 0)
	})
}

func TestB4_ACallerThatGoesAwayNeedNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a := single(t, CompartmentConfig{Guaranteed: 1, Timeout: time.Minute})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		stuck := make(chan struct{})
		_, err := Do(ctx, a, func(context.Context) (int, error) { <-stuck; return 0, nil })
		if err != context.DeadlineExceeded { // its own, not one that is like it
			t.Errorf("%v", err)
		}
		if c := a.Snapshot(); c.Outcomes["canceled"] != 1 || c.Abandoned != 1 || c.InFlight != 1 {
			t.Errorf("%+v", c)
		}
		close(stuck)
		synctest.Wait()
		rest(t, s, 0)
	})
}

func TestB5_EveryCallIsCountedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crew) {
		broken := errors.New("broken")
		s, a := single(t, CompartmentConfig{Guaranteed: 1, MaxQueue: 2, MaxWait: time.Second})
		_, _ = Do(t.Context(), a, func(context.Context) (int, error) { return 0, broken })
		_, _ = Do(t.Context(), a, func(ctx context.Context) (int, error) { return Do(ctx, a, nothing) })
		first := w.send(a, "first")
		w.send(a, "waits too long")
		gone := w.send(a, "goes away")
		_, err := Do(t.Context(), a, nothing)
		wantRefused(t, err, limiter.QueueOverflow)
		gone.cancel()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err = Do(ctx, a, nothing) // its own deadline is the earlier one
		wantRefused(t, err, limiter.DeadlineExceeded)
		sleep(time.Second)
		waiting := w.send(a, "waits")
		c := a.Snapshot()
		got := fmt.Sprint(c.Submitted, c.Admitted, c.Finished, c.InFlight, c.Queued, c.Outcomes, c.Rejected, c.Left)
		want := "9 3 2 1 1 map[failed:2] map[queue_overflow:1 reentry:1] map[canceled:1 deadline_exceeded:1 timeout_queued:1]"
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		rest(t, s, 1)
		w.let(first)
		w.let(waiting)
		rest(t, s, 0)
	})
}

func TestB5_AQueueTimeoutExplainsItself(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crew) {
		s, a := single(t, CompartmentConfig{Guaranteed: 1, MaxQueue: 1, MaxWait: time.Second})
		w.send(a, "first")
		_, err := Do(t.Context(), a, nothing)
		var timeout *TimeoutError
		if !errors.As(err, &timeout) || timeout.Phase != Queued || timeout.After != time.Second || timeout.Rejection.Waited != time.Second {
			t.Errorf("%+v", err)
		}
		if errors.Is(err, limiter.ErrRejected) {
			t.Error("a timeout is not to be taken for a rejection")
		}
		if r := s.Recent(); len(r) != 1 || r[0].Limiter != "a" || r[0].Reason != limiter.DeadlineExceeded {
			t.Errorf("%+v", r)
		}
	})
}

func TestB7_ResizeWhileRunning(t *testing.T) {
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
				t.Fatalf("after %d ended: %d in flight", i, got)
			}
			if i < 3 {
				w.let(mine[i])
			}
		}
		_, err = s.Resize(p) // made from revision 1
		var stale *StaleError
		if !errors.As(err, &stale) || !errors.Is(err, ErrStale) || stale.Given != 1 || stale.Current != 2 {
			t.Error(err)
		}
		p = s.Plan()
		p.Compartments[1].Guaranteed = p.Total // more than there is beside the other's
		if _, err := s.Resize(p); err == nil || s.Plan().Revision != 2 || s.Plan().Compartments[1].Guaranteed != 7 {
			t.Errorf("after a plan that is refused (%v): %+v", err, s.Plan())
		}
		if !theirs[5].runs() || len(seen.of(Resized)) != 1 || seen.of(Resized)[0].Revision != 2 {
			t.Error("the other's calls wait on, or nobody was told")
		}
		rest(t, s, 9)
	})
}

func TestB8_ASpikeDoesNotRefuseTheOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crew) {
		s, c := single(t, CompartmentConfig{Guaranteed: 6, MaxQueue: 5, Tenants: TenantsConfig{Max: 6}})
		spike := w.fill(c.Tenant("loud"), 20) // 6 run, 5 wait, 9 are refused
		quiet := []*job{w.send(c.Tenant("quiet"), "q"), w.send(c.Tenant("quiet"), "q")}
		late := w.send(c.Tenant("late"), "l")
		for _, j := range append(quiet, late) {
			if j.ended.Load() {
				t.Fatalf("refused: %v", j.err)
			}
		}
		w.let(spike[0])
		w.let(spike[1])
		if !quiet[0].runs() || !late.runs() {
			t.Error("the first two places are for the two that have none")
		}
		w.let(spike[2])
		if !quiet[1].runs() {
			t.Error("the next is for the one that has one, not for the one that has three")
		}
		if sn := c.Snapshot(); sn.Rejected["queue_overflow"] != 9 || sn.Tenants.Active != 3 || sn.InFlight != 6 {
			t.Errorf("%+v", sn)
		}
		rest(t, s, 6)
	})
}

func TestB8_ATenantHasItsOwnBound(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crew) {
		s, c := single(t, CompartmentConfig{Guaranteed: 6, MaxQueue: 1, Tenants: TenantsConfig{Max: 2}})
		jobs := w.fill(c.Tenant("a"), 3)
		if c.Snapshot().InFlight != 2 || !jobs[2].waits() {
			t.Errorf("%+v", c.Snapshot())
		}
		w.let(jobs[0])
		if !jobs[2].runs() {
			t.Error("its own place was lost")
		}
		key, ok := c.Tenant("a").TenantKey()
		same := c.Tenant("a")
		if _, not := c.TenantKey(); key != "a" || !ok || not || c.Tenant("a") != same {
			t.Error(key, ok)
		}
		rest(t, s, 2)
	})
}

func TestB8_KeysAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crew) {
		s, c := single(t, CompartmentConfig{Guaranteed: 6, MaxQueue: 1, Tenants: TenantsConfig{Max: 2, Keys: 3}})
		held := c.Tenant("held")
		w.send(held, "h")
		for i := range 10_000 { // invented keys push each other out
			if k := c.Tenant(fmt.Sprint("key ", i)); k == c {
				t.Fatal("an idle tenant was not forgotten for a new one")
			}
		}
		if c.Tenant("held") != held {
			t.Error("a tenant that is not idle was forgotten")
		}
		if tn := c.Snapshot().Tenants; tn.Keys != 3 || tn.Evicted != 9998 || tn.Overflow != 0 {
			t.Errorf("%+v", tn)
		}
		w.send(c.Tenant("x"), "x")
		w.send(c.Tenant("y"), "y")
		if c.Tenant("z") != c || c.Tenant(string(make([]byte, longestKey+1))) != c || c.Snapshot().Tenants.Overflow != 2 {
			t.Error("there is one compartment for all that there is no room for")
		}
		if j := w.send(c.Tenant("z"), "z"); !j.runs() {
			t.Error(j.err)
		}
		rest(t, s, 4)
	})
}

// TestB8_AForgottenTenantIsFoundAgain holds on to a tenant for longer than the set does.
func TestB8_AForgottenTenantIsFoundAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crew) {
		s, c := single(t, CompartmentConfig{Guaranteed: 4, MaxQueue: 1, Tenants: TenantsConfig{Max: 1, Keys: 1}})
		old := c.Tenant("a")
		c.Tenant("b")
		w.send(c.Tenant("a"), "1")
		if j := w.send(old, "2"); !j.waits() {
			t.Error("the tenant has twice its Max")
		}
		rest(t, s, 1)
	})
}

func TestB8_AWaitDoesNotStayInMemory(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crew) {
		s, c := single(t, CompartmentConfig{Guaranteed: 1, MaxQueue: 1, Tenants: TenantsConfig{Max: 1}})
		first := w.send(c.Tenant("a"), "a")
		for i := range 100 {
			j := w.send(c.Tenant(fmt.Sprint(i)), "j")
			j.cancel()
			synctest.Wait()
		}
		if n := len(c.part.account.waiting); n != 0 || c.Snapshot().Tenants.Keys != 1 {
			t.Errorf("%d claims, %+v", n, c.Snapshot().Tenants)
		}
		w.let(first)
		rest(t, s, 0)
		if n := len(s.Recent()); n != 100 {
			t.Errorf("%d explanations", n)
		}
	})
}

func TestB10_ReentryIsRefused(t *testing.T) {
	s, a, b := pair(t, CompartmentConfig{Guaranteed: 1, MaxQueue: 1}, CompartmentConfig{Guaranteed: 1, MaxQueue: 1, Tenants: TenantsConfig{Max: 1}})
	again := func(c *Compartment) func(context.Context) (int, error) {
		return func(ctx context.Context) (int, error) { return Do(context.WithoutCancel(ctx), c, nothing) }
	}
	through := func(ctx context.Context) (int, error) { return Do(ctx, b.Tenant("x"), again(a)) }
	for name, fn := range map[string]func(context.Context) (int, error){"itself": again(a), "through another": through} {
		_, err := Do(t.Context(), a, fn)
		var reentry *ReentryError
		if !errors.As(err, &reentry) || !errors.Is(err, ErrReentry) || reentry.Compartment != "owner" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Do(t.Context(), b.Tenant("x"), again(b.Tenant("y"))); !errors.Is(err, ErrReentry) {
		t.Errorf("another tenant of it: %v", err)
	}
	ctx, p, err := a.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Do(ctx, a, nothing); !errors.Is(err, ErrReentry) {
		t.Errorf("under a permit: %v", err)
	}
	if _, err := Do(ctx, b, nothing); err != nil {
		t.Errorf("into another one: %v", err)
	}
	p.Release(nil)
	if _, err := Do(ctx, a, nothing); err != nil {
		t.Errorf("with the context of what has ended: %v", err)
	}
	rest(t, s, 0)
}

func TestB11_LendingStopsThenGuaranteesShrink(t *testing.T) {
	s := mustNew(t, Config{Total: 20, Compartments: []CompartmentConfig{
		{Name: "low", Guaranteed: 4, Lendable: 4, Max: 12, MaxQueue: 1, Criticality: limiter.Background},
		{Name: "high", Guaranteed: 6, Lendable: 3, Max: 12, MaxQueue: 1, Criticality: limiter.Critical},
		{Name: "same", Guaranteed: 4, Max: 4, Criticality: limiter.Background},
	}})
	for i, c := range []struct {
		target int
		want   string // guaranteed/lendable/max of low, high, same
	}{
		{25, "4/4/12 6/3/12 4/0/4"}, {20, "4/4/12 6/3/12 4/0/4"}, {19, "4/0/9 6/0/11 4/0/4"}, {14, "4/0/4 6/0/6 4/0/4"},
		{13, "4/0/4 6/0/6 3/0/3"}, {10, "2/0/2 6/0/6 2/0/2"}, {7, "1/0/1 6/0/6 0/0/0"}, {6, "0/0/0 6/0/6 0/0/0"}, {2, "0/0/0 2/0/2 0/0/0"},
		{0, "0/0/0 0/0/0 0/0/0"}, {20, "4/4/12 6/3/12 4/0/4"},
	} {
		s.Apply(bound(uint64(i+1), c.target))
		var each []string
		for _, c := range s.Snapshot().Compartments {
			each = append(each, fmt.Sprintf("%d/%d/%d", c.EffectiveGuaranteed, c.EffectiveLendable, c.EffectiveMax))
		}
		if got := strings.Join(each, " "); got != c.want || s.Snapshot().EffectiveTotal != min(20, c.target) {
			t.Errorf("target %d: %s, want %s", c.target, each, c.want)
		}
	}
}

// Of what rounding leaves over, nothing is for those who are guaranteed nothing.
func TestB11_WhatIsLeftOverIsForThoseWithAGuarantee(t *testing.T) {
	s := mustNew(t, Config{Total: 6, Compartments: []CompartmentConfig{{Name: "borrower", Max: 6}, {Name: "a", Guaranteed: 3}, {Name: "b", Guaranteed: 3}}})
	s.Apply(bound(1, 5))
	var each []int
	for _, c := range s.Snapshot().Compartments {
		each = append(each, c.EffectiveGuaranteed)
	}
	if !slices.Equal(each, []int{0, 3, 2}) {
		t.Errorf("%d, want 0, 3 and 2", each)
	}
}

func TestB11_TheSetAloneTellsItsLimiters(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crew) {
		seen := &recording{}
		s := mustNew(t, Config{Total: 4, Observer: seen, Compartments: []CompartmentConfig{
			{Name: "a", Guaranteed: 1, MaxQueue: 1, Criticality: limiter.Critical}, {Name: "b", Guaranteed: 1, MaxQueue: 1},
		}})
		s.Apply(decision.ControlDecision{
			Seq: 70, TargetConcurrency: 4, ShedProbability: 1, Yields: 2, Expected: time.Hour, ValidFor: time.Second,
			Reasons: []decision.Reason{decision.NewReason("queueing", "lag", 1, decision.Tighten)},
			Stale:   &decision.ControlDecision{TargetConcurrency: 1, ShedProbability: 0.5},
		})
		s.Apply(bound(69, 0)) // older: ignored
		a, b := s.Compartment("a"), s.Compartment("b")
		w.send(a, "a")
		w.send(b, "b")
		if j := w.send(a, "waits"); !j.waits() {
			t.Errorf("a critical compartment sheds: %v", j.err)
		}
		_, err := Do(t.Context(), b, nothing)
		wantRefused(t, err, limiter.PressureHigh)
		var r *limiter.Rejection
		errors.As(err, &r)
		if d := r.Decision; d.Seq >= 70 || d.Expected != 0 || d.Yields != 2 || !containsAll(fmt.Sprint(d.Reasons), "queueing", "source_seq=70", "revision=1") {
			t.Errorf("%+v", d)
		}
		sleep(time.Second + time.Millisecond)
		snap := s.Snapshot()
		if !snap.Stale || snap.EffectiveTotal != 1 || snap.Decision.Seq != 70 || snap.Compartments[1].EffectiveGuaranteed != 0 {
			t.Errorf("%+v", snap)
		}
		if n := len(seen.of(Applied)); n != 2 {
			t.Errorf("%d times told", n)
		}
		s.Apply(bound(71, 9))
		if s.Snapshot().Stale || s.Snapshot().EffectiveTotal != 4 {
			t.Errorf("%+v", s.Snapshot())
		}
	})
}

// TestB11_TheSumFollowsTheTarget lowers the target under a full set: what is borrowed is given back first.
func TestB11_TheSumFollowsTheTarget(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crew) {
		s, a, b := pair(t, CompartmentConfig{Guaranteed: 4, Lendable: 4, MaxQueue: 9, Criticality: limiter.Critical},
			CompartmentConfig{Guaranteed: 4, Max: 10, MaxQueue: 9})
		borrowers := w.fill(b, 10)
		owners := w.fill(a, 4)
		s.Apply(bound(1, 6))
		for i := range 8 {
			w.let(borrowers[i])
			snap := s.Snapshot()
			want := max(9-i, min(6, 6)) // by attrition to 6, and then the owner has its 4 before anybody else
			if i >= 8 {
				want = 6
			}
			if snap.InFlight != want || i >= 7 && !owners[3].runs() {
				t.Fatalf("after %d ended: %d in flight, want %d; %+v", i+1, snap.InFlight, want, snap.Compartments)
			}
		}
		rest(t, s, 6)
	})
}

// TestB11_SharesOfManyPlaces: as many places as there may be are divided in proportion, where an int has 32 bits as well.
func TestB11_SharesOfManyPlaces(t *testing.T) {
	s := mustNew(t, Config{Total: maxPlaces, Compartments: []CompartmentConfig{
		{Name: "a", Guaranteed: 700_000}, {Name: "b", Guaranteed: 300_000},
	}})
	s.Apply(bound(1, 500_000))
	got := s.Snapshot().Compartments
	if a, b := got[0].EffectiveGuaranteed, got[1].EffectiveGuaranteed; a != 350_000 || b != 150_000 {
		t.Errorf("%d and %d", a, b)
	}
	const n = maxPlaces
	if portion(n, n-1, n) != n-1 || portion(n-1, n-1, n) != n-2 || !smaller(n-2, n-1, n-1, n) || smaller(n-1, n, n-2, n-1) || smaller(n, n, n, n) {
		t.Error("one in a million is lost")
	}
}
