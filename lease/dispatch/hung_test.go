// SPDX-License-Identifier: Apache-2.0

package dispatch_test

// This file holds D5 and D9 where a handler or a receiver of dead letters does not return: its place is lost, and nobody's turn
// is.

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// Six others are busy and three places are left. The partition of the handler that hangs gets its part of them once that is
// over its time.
func TestHungHandlerStarvesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		c := consume(t, dispatch.Config{
			MaxInFlight: 4, AttemptTimeout: time.Minute,
			Handler: func(_ context.Context, job dispatch.Job) error {
				if job.Record.Domain == "hung/0" {
					<-hang
				}
				time.Sleep(time.Second)
				return nil
			},
		})
		c.give(filled(t, "hung", 20))
		time.Sleep(time.Millisecond)
		for i := range 6 {
			c.give(filled(t, fmt.Sprint("busy", i), 2000))
		}
		time.Sleep(10 * time.Minute)
		if began, running := c.by("hung"); began-running < 19 {
			t.Errorf("D9: %d of 19 done", began-running)
		}
		close(hang)
		_ = c.stop()
	})
}

// Two suspects have no attempt left. The receiver of dead letters never returns from the first that it is told of; the other
// one's turn comes all the same.
func TestHungDeadLetterEndsTheTrial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger, log := memory(t, 0), fill("a", "b")
		died(t, ledger, "a", "b")
		hang := make(chan struct{})
		told := make(chan string, 2)
		r := run(t, dispatch.Partition{Ledger: ledger, Source: log}, dispatch.Config{
			AttemptTimeout: time.Minute,
			DeadLetter: func(_ context.Context, letter dispatch.DeadLetter) error {
				if told <- letter.Record.Domain; len(told) == 1 {
					<-hang
				}
				return nil
			},
		})
		time.Sleep(10 * time.Minute)
		equal(t, "dead letters", len(told), 2)
		close(hang)
		r.mustStop(t)
	})
}
