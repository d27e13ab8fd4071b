// SPDX-License-Identifier: Apache-2.0

// Explanations: the record of one outcome, as a value and as an error.

package decision

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Explanation is everything that a limiter, or a compartment, knows about one task's outcome. It is a copy, free to keep.
type Explanation struct {
	Limiter string          // the name of who decided
	Outcome Outcome         // the stage reached
	Grant   Grant           // of a started or executed task: why it was granted a slot
	Reason  RejectionReason // of a rejected or canceled task
	// WouldReject is the reason for which Enforce would have rejected a task that a dry run started, estimated at its arrival
	// (Q17); "": no rejection expected, or not a dry run.
	WouldReject RejectionReason
	Mode        Mode // the limiter's mode at the time
	Task        Task
	// At is when the task learned its outcome. In a permit's explanation it is the zero time, which saves a clock reading.
	At time.Time
	// Waited is the queue wait.
	Waited time.Duration
	// Deadline is the earliest deadline that applied to the task, and DeadlineFrom its source; zero: none.
	Deadline     time.Time
	DeadlineFrom DeadlineSource
	// MaxWait is how long a task without a deadline was allowed to wait in a standing queue (Q16); 0: the task did not wait, or
	// nothing but a deadline bounded its wait.
	MaxWait time.Duration
	// Decision was in force when the outcome was decided, and DecisionState is its kind. Decision is shared: do not modify it.
	Decision      *ControlDecision
	DecisionState DecisionState
	// InFlight is the number of tasks that held a slot at that instant, including this one if it was granted one. QueueLen is
	// the number of other waiting tasks; in a dry run, of those that would have waited.
	InFlight, QueueLen int
	// Tenant is what the Task's tenant had when it was rejected; zero: it has none.
	Tenant TenantShare
	// Bound is the limit for which a rejected (or would-be rejected) task waited or had no slot, and Limit its value.
	Bound Bound
	Limit int
	// OldestHeld is for how long, at least, the oldest permit had been out; 0: unknown. If it grows and grows, nobody releases that
	// permit: a handler hangs, a Release was forgotten, or a response's body not closed.
	OldestHeld time.Duration
	// ShedBelow is the priority below which every task without a free slot was shed; -128: none, or a slot was free.
	ShedBelow Priority
}

// TenantShare is what a tenant has of a limiter's slots.
type TenantShare struct {
	InFlight, QueueLen int // tasks with a slot, and tasks that wait
	// Share is how many slots are its: their number by its weight among those of all tenants with tasks. 0: there is no such number.
	Share float64
}

// Above reports whether the tenant has its share, or more.
func (s TenantShare) Above() bool { return s.Share > 0 && float64(s.InFlight) >= s.Share }

// String returns the explanation on one line, for people: durations have three significant digits, and a decision without a
// number, which no controller made, is left out. It allocates.
func (e Explanation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s", e.Outcome)
	switch e.Outcome {
	case Started, Executed:
		fmt.Fprintf(&b, " (%s)", e.Grant)
		if e.WouldReject != "" {
			fmt.Fprintf(&b, ", would have been rejected: %s", e.WouldReject)
		}
	case Rejected: // a task that is withdrawn has one reason, and it is the same word
		fmt.Fprintf(&b, ": %s", e.Reason)
	}
	b.WriteString(": ")
	if e.Task.Name != "" {
		fmt.Fprintf(&b, "task %q, ", e.Task.Name)
	}
	if e.Task.ID != "" {
		fmt.Fprintf(&b, "request %q, ", e.Task.ID)
	}
	fmt.Fprintf(&b, "priority %s", e.Task.Priority)
	if e.Mode != Enforce {
		fmt.Fprintf(&b, ", mode %s", e.Mode)
	}
	if !e.Deadline.IsZero() {
		fmt.Fprintf(&b, ", deadline %s (%s)", e.due(), e.DeadlineFrom)
	}
	if e.MaxWait > 0 {
		fmt.Fprintf(&b, ", at most %s", brief(e.MaxWait))
	}
	fmt.Fprintf(&b, ", waited %s; %q: %d in flight, %d queued%s", brief(e.Waited), e.Limiter, e.InFlight, e.QueueLen, e.full())
	if e.Task.Tenant != "" && e.Tenant.Share > 0 {
		above := "below"
		if e.Tenant.Above() {
			above = "above"
		}
		fmt.Fprintf(&b, "; tenant %q is %s its share of %.3g slots: %d in flight, %d queued", e.Task.Tenant, above, e.Tenant.Share,
			e.Tenant.InFlight, e.Tenant.QueueLen)
	}
	if e.OldestHeld >= held {
		fmt.Fprintf(&b, ", the oldest slot held for %s or longer", brief(e.OldestHeld))
	}
	if e.mayNotWait() {
		b.WriteString(", may not wait")
	}
	if e.sheds() {
		fmt.Fprintf(&b, ", shedding below %s", e.ShedBelow)
	}
	if d := e.Decision; d != nil && d.Seq > 0 {
		fmt.Fprintf(&b, "; decision %d (%s): target %d, shed %.3g", d.Seq, e.DecisionState, d.TargetConcurrency, d.ShedProbability)
		if need := d.Needs[e.Task.Name]; e.Reason == DeadlineExceeded && need > 0 {
			fmt.Fprintf(&b, ", needs %s", brief(need))
		}
		for _, r := range d.Reasons {
			fmt.Fprintf(&b, ", %s", r)
		}
	}
	return b.String()
}

// due returns the time from At to the deadline; the deadline itself if At is not known.
func (e Explanation) due() string {
	if e.At.IsZero() {
		return e.Deadline.Format(time.RFC3339)
	}
	left := e.Deadline.Sub(e.At)
	if left < 0 {
		return brief(left.Abs()).String() + " ago"
	}
	return "in " + brief(left).String()
}

// full says which bound was reached; "" if none was.
func (e Explanation) full() string {
	switch e.Bound {
	case "":
		return ""
	case BoundTarget:
		return fmt.Sprintf(", concurrency limit %d reached", e.Limit)
	}
	return fmt.Sprintf(", %s %d reached", e.Bound, e.Limit)
}

// brief rounds d to three significant digits.
func brief(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d.Abs()/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}

// mayNotWait reports whether the task had to start at once: by TryAcquire, or because there is no queue, as a full one is not
// empty.
func (e Explanation) mayNotWait() bool {
	return e.Reason == NoSlot || e.Reason == QueueOverflow && e.QueueLen == 0 && e.Waited == 0
}

// sheds reports whether ShedBelow is set; in the zero Explanation, which a released permit returns, it is not.
func (e Explanation) sheds() bool { return e.ShedBelow != lowest && e.Outcome != "" }

// ErrRejected matches every [*Rejection] with errors.Is.
var ErrRejected = errors.New("limiter: rejected")

// Rejection is the error of a task that was not started. The caller owns it; only Decision, which is never nil, is shared.
type Rejection struct { //nolint:errname // the word of the field
	Explanation
	// RetryAfter estimates when a retry could find a slot: the time to work off the queue at the decision's expected
	// execution time, at most a minute; 0: unknown, or a retry is useless.
	RetryAfter time.Duration
	// Cause is the context's error for Canceled, context.DeadlineExceeded for DeadlineExceeded, or, if that was an untrusted client's
	// own, an error that matches context.Canceled; else nil.
	Cause error
}

// Error names the limiter, the reason and the bound reached, and says so if a slot has been held for 10 s or longer. It has no
// other numbers or times, and no task, so that logs and counters can group by it. For the details see the fields, String and
// LogValue. It allocates.
func (r *Rejection) Error() string {
	var b strings.Builder
	b.WriteString("limiter: ")
	if r.Limiter != "" {
		fmt.Fprintf(&b, "%q: ", r.Limiter)
	}
	b.WriteString(string(r.Outcome))
	if r.Outcome == Rejected {
		fmt.Fprintf(&b, ": %s", r.Reason)
	}
	if r.Bound != "" {
		fmt.Fprintf(&b, " (%s reached", r.Bound)
		if r.mayNotWait() {
			b.WriteString(", may not wait")
		}
		if e := r.OldestHeld; e >= heldLong {
			fmt.Fprintf(&b, ", a slot held for %s or longer", heldLong)
		}
		b.WriteByte(')')
	}
	return b.String()
}

// From these ages on, the oldest slot is worth a word: in a text with numbers, and in Error, which has none of its own.
const (
	held     = time.Second
	heldLong = 10 * time.Second
)

// Is reports whether target is ErrRejected.
func (r *Rejection) Is(target error) bool { return target == ErrRejected }

// Unwrap returns Cause.
func (r *Rejection) Unwrap() error { return r.Cause }
