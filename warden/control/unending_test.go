// Work that does not end: the exception of C8, in front of a real limiter, and over services that nobody chose.

package control_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/control"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/monitor"
)

// calmly is a controller of two processors that are always idle.
type calmly struct{ *control.Controller }

func (c calmly) Step(s monitor.Sample) decision.ControlDecision {
	s.Lag, s.Utilization, s.Runnable, s.Throttled = monitor.Lag{}, value(0.05), value(0), monitor.Reading{}
	return c.Controller.Step(s)
}

// calmWarden runs a warden on a machine with idle processors, and returns a function that does work in it.
func calmWarden(ctx context.Context, t *testing.T) (*warden.Warden, func(work func()) error) {
	t.Helper()
	w, err := warden.New(warden.Config{Controller: calmly{mustNew(t, control.Config{Processors: 2})}})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = w.Run(ctx) }()
	return w, func(work func()) error {
		_, permit, err := w.Acquire(ctx, warden.Task{})
		if err != nil {
			return err
		}
		defer permit.Release()
		work()
		return nil
	}
}

// Holders take every slot and never end: what comes later is answered all the same, cold and after 20 s of other work.
func TestC8_WorkThatDoesNotEnd(t *testing.T) {
	for _, warm := range []time.Duration{0, 20 * time.Second} {
		for _, holders := range []int{16, 18, 64} {
			t.Run(fmt.Sprintf("%d holders after %v", holders, warm), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ctx, stop := context.WithCancel(t.Context())
					defer synctest.Wait()
					defer stop()
					w, do := calmWarden(ctx, t)
					short := func() { time.Sleep(5 * time.Millisecond) }
					for end := time.Now().Add(warm); time.Now().Before(end); time.Sleep(time.Second / 3000) {
						go func() { _ = do(short) }()
					}
					for range holders {
						go func() { _ = do(func() { <-ctx.Done() }) }()
					}
					time.Sleep(10 * time.Second)
					const requests = 40
					answers := make(chan error, requests)
					for range requests {
						go func() { answers <- do(short) }()
						time.Sleep(50 * time.Millisecond)
					}
					time.Sleep(time.Second)
					if n := len(answers); n < requests {
						t.Fatalf("%d of %d requests are answered; target %d: %v", n, requests, w.Latest().Decision.TargetConcurrency, w.Latest().Decision.Reasons)
					}
					for range requests {
						if err := <-answers; err != nil {
							t.Fatal(err)
						}
					}
				})
			})
		}
	}
}
