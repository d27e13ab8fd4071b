// Bugs that others had, by the issue in which they were told, and that a bulkhead does not have.

package bulkhead

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// failsafe-go/failsafe-go, bulkhead (#143 leaves it as it is): the permit is released after the function has returned, and so not at all if it panics.
func TestPeer_FailsafeGoPermitLeaksOnPanic(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Minute} {
		s, a := single(t, CompartmentConfig{Guaranteed: 1, Timeout: timeout})
		for range 3 {
			for _, end := range []func(){func() { panic("on purpose") }, runtime.Goexit} {
				<-aside(func() error {
					_, err := Do(context.Background(), a, func(context.Context) (int, error) { end(); return 0, nil })
					return err
				})
			}
		}
		if _, err := Do(t.Context(), a, nothing); err != nil {
			t.Errorf("after panics: %v", err)
		}
		rest(t, s, 0)
	}
}

// failsafe-lib/failsafe #393: a waiter that had timed out stayed in the queue, and the next permit was given to it, for nobody to give back.
func TestPeer_FailsafePermitForAnAbandonedWaiter(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crew) {
		s, a := single(t, CompartmentConfig{Guaranteed: 1, MaxQueue: 4, MaxWait: time.Second})
		first := w.send(a, "first")
		for range 4 {
			w.send(a, "waits")
		}
		sleep(2 * time.Second)
		w.let(first)
		rest(t, s, 0)
		if last := w.send(a, "last"); !last.runs() {
			t.Errorf("the slot went to somebody who has gone: %+v", a.Snapshot())
		}
	})
}

// Netflix/concurrency-limits #234: partitions compared the global limit with what was in flight and counted afterwards, so together they went beyond it.
func TestPeer_NetflixPartitionsOvershoot(t *testing.T) {
	const total, callers = 4, 24
	for range 50 {
		s := mustNew(t, Config{Total: total, Compartments: []CompartmentConfig{{Name: "a", Max: total, MaxQueue: 1}, {Name: "b", Guaranteed: 1, Max: total, MaxQueue: 1}}})
		overshoot(t, total, callers, func(i int) *Compartment { return s.Compartment([]string{"a", "b"}[i%2]) })
		rest(t, s, 0)
	}
}

// alibaba/sentinel-golang #394: with a second rule, such as a circuit breaker's, calls at one instant passed the check of the concurrency before any was counted.
func TestPeer_SentinelOvershootBesideABreaker(t *testing.T) {
	const slots, callers = 3, 24
	for range 50 {
		s, a := single(t, CompartmentConfig{Guaranteed: slots, Breaker: agreeing{}})
		overshoot(t, slots, callers, func(int) *Compartment { return a })
		rest(t, s, 0)
	}
}

// agreeing is a breaker that takes its time, for any number of calls at once.
type agreeing struct{}

func (agreeing) Allow() (func(error), error) {
	runtime.Gosched()
	return func(error) { runtime.Gosched() }, nil
}

// overshoot lets callers come at one instant; those who get in wait for each other.
func overshoot(t *testing.T, most, callers int, to func(i int) *Compartment) {
	t.Helper()
	var begin, all sync.WaitGroup
	var now, peak atomic.Int64
	begin.Add(1)
	for i := range callers {
		all.Go(func() {
			begin.Wait()
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			_, err := Do(ctx, to(i), func(context.Context) (int, error) {
				n := now.Add(1)
				for p := peak.Load(); n > p && !peak.CompareAndSwap(p, n); p = peak.Load() {
				}
				for range 20 {
					runtime.Gosched()
				}
				now.Add(-1)
				return 0, errMine
			})
			if err == nil || errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
	}
	begin.Done()
	if all.Wait(); int(peak.Load()) > most {
		t.Fatalf("%d at once, of %d", peak.Load(), most)
	}
}
