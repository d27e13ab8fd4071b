// What is known about one outcome, so that it can be explained afterwards.

package limiter

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

// Explanation is all that a limiter knows about what it did with one task. It is a copy, free to keep.
type Explanation struct {
	Limiter string  // Config.Name
	Outcome Outcome // how far the task has come
	Grant   Grant   // of a started or executed task: by what right
	Reason  Reason  // of a rejected or canceled one: why
	// WouldReject is why a task that was started in a dry run would have been refused, as far as that could be known when it came
	// (Q17); 0: it would not have been, or the limiter enforced what it decided.
	WouldReject Reason
	Mode        Mode // the limiter's then
	Task        Task
	// At is when the task learned it. It is the zero time in the explanation of a permit: the clock is not read for it.
	At time.Time
	// Waited is how long the task was in the queue.
	Waited time.Duration
	// Deadline is the one that counted, the earliest of all that the task had, and DeadlineFrom says whose it was; zero: it had
	// none.
	Deadline     time.Time
	DeadlineFrom DeadlineSource
	// Patience is for how long the task, which had no deadline, was taken to wait, because those like it have left then (Q16); 0: it
	// did not wait, it had a deadline, or nothing was known.
	Patience time.Duration
	// Decision is what ruled when the outcome was decided, and Standing what kind of decision that is. It is shared:
	// read it, do not write to it.
	Decision *decision.ControlDecision
	Standing Standing
	// InFlight tasks held a place, this one included if it was granted one, and QueueLen others waited, at that instant; in a dry run
	// QueueLen others would have waited.
	InFlight, QueueLen int
	// Bound says, of a task that was refused, or would have been, because it could not run at once, what was full, and Limit how much that is.
	Bound Bound
	Limit int
	// Cut is the priority below which every task that would have had to wait was to be shed; -128: none, or the task did
	// not have to.
	Cut Priority
}

// String has all of it on one line, for people. It allocates.
func (e Explanation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s", e.Outcome)
	switch e.Outcome {
	case Started, Executed:
		fmt.Fprintf(&b, " (%s)", e.Grant)
		if e.WouldReject != 0 {
			fmt.Fprintf(&b, ", would have been refused: %s", e.WouldReject)
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
		fmt.Fprintf(&b, ", deadline %s (%s)", e.Deadline.Format(time.RFC3339Nano), e.DeadlineFrom)
	}
	if e.Patience > 0 {
		fmt.Fprintf(&b, ", patience %s (assumed)", e.Patience)
	}
	fmt.Fprintf(&b, ", waited %s; limiter %q: %d in flight, %d queued", e.Waited, e.Limiter, e.InFlight, e.QueueLen)
	if e.Bound != 0 {
		fmt.Fprintf(&b, ", %s %d reached", e.Bound, e.Limit)
	}
	if e.mayNotWait() {
		b.WriteString(", may not wait")
	}
	if e.hasCut() {
		fmt.Fprintf(&b, ", cut at %s", e.Cut)
	}
	if d := e.Decision; d != nil {
		fmt.Fprintf(&b, "; decision %d (%s): target %d, shed %.3g", d.Seq, e.Standing, d.TargetConcurrency, d.ShedProbability)
		if (e.Reason == DeadlineExceeded || e.Reason == PatienceExceeded) && d.Expected > 0 {
			fmt.Fprintf(&b, ", expected %s", d.Expected)
		}
		for _, r := range d.Reasons {
			fmt.Fprintf(&b, ", %s", r)
		}
	}
	return b.String()
}

// mayNotWait is whether the task was refused for want of a place because it had no queue to wait in: one that is full has somebody in it.
func (e Explanation) mayNotWait() bool {
	return e.Reason == QueueOverflow && e.QueueLen == 0 && e.Waited == 0
}

// hasCut is whether Cut says something; that of the zero Explanation, which a permit has once it is released, does not.
func (e Explanation) hasCut() bool { return e.Cut != lowest && e.Outcome != 0 }

// Rejection is the error of a task that was not started. It belongs to the caller; only Decision, which is never nil, is
// shared.
type Rejection struct { //nolint:errname // the word of the field
	Explanation
	// RetryAfter is when another try could find a place: the time in which the queue would be worked off, as far as the
	// decision knows what a task takes; 0: unknown, or no use.
	RetryAfter time.Duration
	// Cause is the context's error for Canceled, context.DeadlineExceeded for DeadlineExceeded, else nil.
	Cause error
}

// Error names limiter and reason, and which bound was reached, in words that are the same for every refusal of that kind: no number, no
// time, no task, so that logs and counters can group by it. The whole story is in String, which Explanation has, in LogValue and in
// the fields. It allocates.
func (r *Rejection) Error() string {
	var b strings.Builder
	b.WriteString("limiter: ")
	if r.Limiter != "" {
		fmt.Fprintf(&b, "%q: ", r.Limiter)
	}
	b.WriteString(r.Outcome.String())
	if r.Outcome == Rejected {
		fmt.Fprintf(&b, ": %s", r.Reason)
	}
	if r.Bound != 0 {
		fmt.Fprintf(&b, " (%s reached", r.Bound)
		if r.mayNotWait() {
			b.WriteString(", may not wait")
		}
		b.WriteByte(')')
	}
	return b.String()
}

// Is reports whether target is ErrRejected.
func (r *Rejection) Is(target error) bool { return target == ErrRejected }

// Unwrap is Cause.
func (r *Rejection) Unwrap() error { return r.Cause }

// Explain is everything about the rejection in the form that outcomes of all kinds have.
func (r *Rejection) Explain() Explanation { return r.Explanation }

func outcomeOf(r Reason) Outcome {
	if r == Canceled {
		return Withdrawn
	}
	return Rejected
}

// outcome is what was decided about a task, as things stood when it was decided: a grant, or the reason of a refusal.
type outcome struct {
	rule     *rule
	waited   time.Duration
	patience time.Duration
	inFlight int
	queued   int
	cause    error // of a refusal: the context's error, if that is why
	grant    Grant
	reason   Reason
	would    Reason // of a grant in a dry run: of what it would have been instead
	cut      Priority
}

// explain says all that is known about an outcome, but when the task learned it.
func (l *Limiter) explain(t Task, d deadline, o outcome) Explanation {
	e := Explanation{
		Limiter: l.name, Outcome: Started, Grant: o.grant, Reason: o.reason, Task: t, Waited: o.waited,
		Deadline: d.at, DeadlineFrom: d.from, Patience: o.patience, Decision: o.rule.decision, Standing: o.rule.standing,
		InFlight: o.inFlight, QueueLen: o.queued, Cut: o.cut, WouldReject: o.would, Mode: o.rule.mode,
	}
	if o.reason != 0 {
		e.Outcome, e.Grant = outcomeOf(o.reason), 0
	}
	if why := o.reason + o.would; why != 0 && (o.waited > 0 || why < DeadlineExceeded) { // one of them is 0
		e.Bound, e.Limit = BoundTarget, e.Decision.TargetConcurrency
	}
	return e
}

// refuse makes an outcome into the error that the task gets, records it and tells it. It is one allocation.
func (l *Limiter) refuse(t Task, d deadline, o outcome) *Rejection {
	r := &Rejection{Explanation: l.explain(t, d, o), RetryAfter: o.retryAfter(), Cause: o.cause}
	if r.At = time.Now(); r.Reason == DeadlineExceeded { // which its context may not know yet
		r.Cause = context.DeadlineExceeded
	}
	l.refusals.Add(r.Explanation)
	if l.observer != nil {
		l.observe(r.Explanation, 0)
	}
	return r
}

// retryAfter is how long a place takes to come free for one more behind the queue, if every task took what is expected.
func (o *outcome) retryAfter() time.Duration {
	d := o.rule.decision
	if o.reason == DeadlineExceeded || o.reason == Canceled || o.reason == Closed || d.TargetConcurrency == 0 {
		return 0
	}
	rounds := 1 + o.queued/d.TargetConcurrency
	return time.Duration(min(float64(d.Expected)*float64(rounds), float64(time.Minute)))
}
