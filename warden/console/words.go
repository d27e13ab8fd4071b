// SPDX-License-Identifier: Apache-2.0

// Sentences for the codes of a limiter, a compartment or the controller. The code stays beside its sentence, so that it can
// be searched for in metrics, logs and docs.

package console

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
)

// clauseOf completes "most because …" for the most frequent reason for rejection; "" for an unknown code.
func clauseOf(code string) string {
	switch code {
	case string(decision.PressureHigh):
		return "their priority is being shed"
	case string(decision.QueueOverflow):
		return "no slot was free, nor room in the queue"
	case string(decision.NoSlot):
		return "no slot was free, and they could not queue"
	case string(decision.ProbabilisticShedding):
		return "a share of their priority is being shed"
	case string(decision.PriorityDrop):
		return "higher-priority work took their place in the queue"
	case string(decision.MaxWaitExceeded):
		return "they waited in a lasting overload for as long as the decision allows"
	case string(decision.DeadlineExceeded):
		return "their deadline passed or could not be met"
	case string(decision.Closed):
		return "the limiter is closed: the service is shutting down"
	case string(bulkhead.TimeoutQueued):
		return "they waited too long for a slot"
	case string(bulkhead.BreakerOpen):
		return "the circuit breaker is open"
	case string(decision.Reentry):
		return "the code calls the compartment from inside itself"
	}
	return ""
}

// explain returns the reason why a task was not started as a sentence, with the numbers at that time.
func explain(e decision.Explanation) string {
	waited := "waited " + shortDuration(e.Waited)
	switch e.Reason {
	case decision.PressureHigh:
		if e.Decision != nil && e.Decision.TargetConcurrency == 0 {
			return "load shedding: the concurrency limit is 0"
		}
		return "load shedding: all work of its priority that would have to queue is rejected"
	case decision.ProbabilisticShedding:
		return "load shedding: a random share of its priority that would have to queue is rejected"
	case decision.QueueOverflow:
		switch {
		case e.Waited > 0:
			return "queue full: " + waited + " and made room for a newer task"
		case e.QueueLen == 0:
			return fmt.Sprintf("no free slot, and there is no queue: %s", whatWasFull(e))
		}
		if e.QueueLen == 1 {
			return "queue full: 1 task was waiting"
		}
		return fmt.Sprintf("queue full: %s tasks were waiting", thousands(e.QueueLen))
	case decision.NoSlot:
		return fmt.Sprintf("no free slot, and it may not queue: %s", whatWasFull(e))
	case decision.PriorityDrop:
		return "queue full: " + waited + " and made room for a task of higher priority"
	case decision.MaxWaitExceeded:
		return waited + " in a lasting overload, which is as long as it allows"
	case decision.DeadlineExceeded:
		if e.Waited == 0 {
			return "its deadline had passed, or could not be met, when it arrived"
		}
		return waited + ", then its deadline had passed or could no longer be met"
	case bulkhead.TimeoutQueued:
		return waited + " for a slot, which is all that its compartment allows"
	case decision.Canceled:
		if e.Waited == 0 {
			return "its caller had gone away when it arrived"
		}
		return "its caller went away; it had " + waited
	case decision.Closed:
		return "the limiter is closed: the service is shutting down"
	}
	return clauseOf(string(e.Reason))
}

// whatWasFull names the bound that was reached, with its value.
func whatWasFull(e decision.Explanation) string {
	if e.Bound == "" {
		return tasks(e.InFlight) + " in flight"
	}
	bound := "the concurrency limit"
	switch e.Bound {
	case bulkhead.BoundSlots:
		bound = "all slots of the compartment"
	case bulkhead.BoundBorrow:
		bound = "all slots of the compartment, its own and borrowed ones"
	case bulkhead.BoundTenant:
		bound = "all slots of one tenant"
	case bulkhead.BoundTotal:
		bound = "all slots of the set, or the rest is reserved"
	}
	return fmt.Sprintf("%s in flight, limit %s (%s)", tasks(e.InFlight), thousands(e.Limit), bound)
}

// text returns what the controller measured. The limit's course is beside it, because each half of the controller may hold or
// lower a limit that the other one would raise.
func (r reason) text() string {
	v := float64(r.Value)
	switch r.Code {
	case "queueing":
		return "CPU overload, " + r.reading()
	case "busy":
		return "CPU busy, " + r.reading()
	case "calm":
		return "CPU pressure low, " + r.reading()
	case "no_information":
		return "no CPU reading"
	case "service_not_fed":
		return "execution times are not measured here"
	case "service_slow":
		return fmt.Sprintf("execution time is %.3g times its baseline", v)
	case "service_trial":
		return fmt.Sprintf("execution time is %.3g times its baseline: a lower limit is being tried", v)
	case "abandoned":
		return fmt.Sprintf("%.0f %% of the executions end with their deadline or client: a lower limit is being tried", 100*v)
	case "control_silent":
		return "the controller is silent: a reduced limit applies"
	case "initial":
		return "nothing measured yet: the initial limit applies"
	case "remote":
		return "the work runs in other processes"
	case "plan":
		return fmt.Sprintf("slots by plan revision %.0f", v)
	}
	return fmt.Sprintf("%s %.3g, %s", r.Signal, v, r.Direction)
}

// reading returns the signal with its value.
func (r reason) reading() string {
	v := float64(r.Value)
	switch r.Signal {
	case "lag_p90_seconds", "lag_p50_seconds":
		return fmt.Sprintf("%s scheduler delay %s", r.Signal[4:7], shortDuration(time.Duration(v*float64(time.Second))))
	case "runnable_per_processor":
		return fmt.Sprintf("%.3g runnable goroutines per processor", v)
	case "throttled_share":
		return fmt.Sprintf("throttled %.0f %% of the time", 100*v)
	case "utilization":
		return fmt.Sprintf("utilization %.0f %%", 100*v)
	}
	return fmt.Sprintf("%s %.3g", r.Signal, v)
}

// shortDuration formats d as the page does: 1.25 s.
func shortDuration(d time.Duration) string {
	x := float64(d) / float64(time.Millisecond)
	switch {
	case d >= 2*time.Minute:
		return fmt.Sprintf("%.3g min", d.Minutes())
	case d >= time.Second:
		return fmt.Sprintf("%.3g s", d.Seconds())
	case d >= time.Millisecond:
		return fmt.Sprintf("%.3g ms", x)
	}
	return fmt.Sprintf("%.3g µs", 1000*x)
}

func tasks(n int) string {
	if n == 1 {
		return "1 task"
	}
	return thousands(n) + " tasks"
}

// thousands formats n as the page does: 1,024.
func thousands[T int | uint64](n T) string {
	digits := strconv.FormatInt(int64(n), 10) //nolint:gosec // counts of tasks
	var groups []string
	for len(digits) > 3 {
		groups = append([]string{digits[len(digits)-3:]}, groups...)
		digits = digits[:len(digits)-3]
	}
	return strings.Join(append([]string{digits}, groups...), ",")
}
