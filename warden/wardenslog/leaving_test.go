// SPDX-License-Identifier: Apache-2.0

// Clients that leave are an episode, and a trickle of them is nothing.

package wardenslog_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
)

// traffic lets a hundred tasks a second end, of which so many were abandoned or canceled, each in turn.
func traffic(o limiter.Observer, p decision.Priority, left int, length time.Duration) {
	for i := 0; time.Duration(i)*10*time.Millisecond < length; i++ {
		e := event(decision.Executed, "")
		switch gone := i%100 < left; {
		case gone && i%2 == 0:
			e.Abandoned = true
		case gone:
			e.Outcome, e.Reason = decision.OutcomeCanceled, decision.Canceled
		}
		e.Task.Priority, e.Task.ID = p, "4bf92f"
		o.Observe(e)
		time.Sleep(10 * time.Millisecond)
	}
	synctest.Wait()
}

func TestClientsLeave(t *testing.T) {
	for _, c := range []struct {
		priority decision.Priority
		trickle  int // of a hundred tasks, still nothing
		level    string
	}{
		{decision.Critical, 1, "ERROR"}, {decision.High, 5, "WARN"}, {decision.Normal, 5, "WARN"}, {-100, 5, "INFO"},
	} {
		synctest.Test(t, func(t *testing.T) {
			log, b := open()
			o := log.Limiter()
			other := decision.Critical
			if c.priority == other {
				other = decision.Normal
			}
			traffic(o, c.priority, 0, time.Minute)
			if got := messages(b.lines(t)); len(got) > 0 {
				t.Fatalf("%s: health is logged: %q", c.priority, got)
			}
			// The few that leave come first in each second, so that over ten seconds they are as many as may leave.
			e := event(decision.Executed, "")
			e.Task.Priority = c.priority
			for range 10 * 100 {
				o.Observe(e)
			}
			traffic(o, c.priority, c.trickle, 9*time.Second)
			traffic(o, other, 0, 20*time.Second) // of another class
			if got := messages(b.lines(t)); len(got) > 0 {
				t.Fatalf("%s: a trickle is logged: %q", c.priority, got)
			}

			traffic(o, c.priority, 100, time.Minute)
			traffic(o, c.priority, 50, time.Minute)
			traffic(o, other, 0, 20*time.Second)
			if got := messages(b.lines(t)); !slices.Equal(got, []string{"clients leave"}) {
				t.Fatalf("%s: logged %q", c.priority, got)
			}
			if e := b.lines(t)[0]; e.Level != c.level || e.Limiter != "prices" || e.Priority != c.priority.Class().String() ||
				e.Left < 5 || e.Of < e.Left || e.ID != "4bf92f" || e.Why.Decision.Seq != 4 {
				t.Errorf("%s: %+v", c.priority, e)
			}
			traffic(o, c.priority, 0, 30*time.Second)
			lines := b.lines(t)
			if got := messages(lines); !slices.Equal(got, []string{"clients leave", "clients stay again"}) {
				t.Fatalf("%s: logged %q", c.priority, got)
			}
			last := lines[1]
			if last.Level != "INFO" || last.Limiter != "prices" || last.Priority != lines[0].Priority ||
				last.Lasted < 119*time.Second || last.Lasted > 2*time.Minute || last.Left < 8990 || last.Left > 9010 || last.Of < last.Left {
				t.Errorf("%s: %+v", c.priority, last)
			}
		})
	}
}

// Who is rejected was answered, and does not leave.
func TestWhoIsRejectedDoesNotLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, b := open()
		o := log.Limiter()
		for range 1000 {
			o.Observe(event(decision.Rejected, decision.QueueOverflow))
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		if got := messages(b.lines(t)); slices.Contains(got, "clients leave") {
			t.Errorf("logged %q", got)
		}
	})
}
