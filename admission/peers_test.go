// Bugs that others had, by the issue in which they were told, and that a gate does not have.

package admission_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stopbank/stopbank/admission"
)

// Netflix/concurrency-limits #140: SimpleLimiter compared the limit with what was in flight and counted afterwards, so callers at one
// instant all passed.
func TestPeer_NetflixSimpleLimiterRace(t *testing.T) {
	const limit, callers = 3, 16
	for range 200 {
		g := mustNew(t, admission.Config{Limit: limit})
		var begin, all sync.WaitGroup
		var admitted atomic.Int64
		begin.Add(1)
		for range callers {
			all.Go(func() {
				begin.Wait()
				if _, err := g.TryAcquire(); err == nil {
					admitted.Add(1)
				}
			})
		}
		begin.Done()
		if all.Wait(); admitted.Load() != limit || g.InFlight() != limit {
			t.Fatalf("%d admitted, %d in flight, the limit is %d", admitted.Load(), g.InFlight(), limit)
		}
	}
}

// resilience4j/resilience4j #332: the Reactor operator gave a permit back on success and on error, but not on cancel.
func TestPeer_Resilience4jCancelReleasesNothing(t *testing.T) {
	g := mustNew(t, admission.Config{Limit: 1})
	for range 3 {
		p := new(admission.Promise[int])
		must(admission.Submit(g, func() admission.Stage[int] { return p }))(t)
		p.Cancel()
		if _, err := p.Wait(context.Background()); !errors.Is(err, context.Canceled) || g.InFlight() != 0 {
			t.Fatalf("%v, %d in flight after a cancel", err, g.InFlight())
		}
	}
}

// resilience4j/resilience4j #263: the operators for Single and Maybe gave the permit back twice, and so somebody else's.
func TestPeer_Resilience4jTwoReleases(t *testing.T) {
	g := mustNew(t, admission.Config{Limit: 2})
	twice := &hostile{keeps: true}
	must(admission.Submit(g, func() admission.Stage[int] { return twice }))(t)
	other := must(g.TryAcquire())(t)
	for _, err := range []error{nil, context.Canceled, errMine} {
		twice.f(1, err)
	}
	if g.InFlight() != 1 || !other.Release() || g.InFlight() != 0 {
		t.Fatalf("%d in flight", g.InFlight())
	}
}

// golang.org/x/sync, semaphore.Weighted.Release: whoever releases more than it acquired frees what others hold, and panics only when nobody holds anything.
func TestPeer_XSyncOverRelease(t *testing.T) {
	g := mustNew(t, admission.Config{Limit: 2})
	mine, _ := g.TryAcquire()
	again := mine
	must(g.TryAcquire())(t)
	if !mine.Release() || again.Release() || mine.Release() || (admission.Permit{}).Release() {
		t.Fatal("one admission was released more than once, or never")
	}
	if g.InFlight() != 1 {
		t.Fatalf("%d in flight, and one holds its slot", g.InFlight())
	}
}
