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
	Task    Task
	// At is when the task learned it. It is the zero time in the explanation of a permit: the clock is not read for it.
	At time.Time
	// Waited is how long the task was in the queue.
	Waited time.Duration
	// Decision is what ruled when the outcome was decided, and Standing what kind of decision that is. It is shared:
	// read it, do not write to it.
	Decision *decision.ControlDecision
	Standing Standing
	// InFlight tasks held a place, this one included if it was granted one, and QueueLen others waited, at that instant.
	InFlight, QueueLen int
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
	case Rejected: // a task that is withdrawn has one reason, and it is the same word
		fmt.Fprintf(&b, ": %s", e.Reason)
	}
	fmt.Fprintf(&b, ": task %q, priority %s", e.Task.Name, e.Task.Priority)
	if !e.Task.Deadline.IsZero() {
		fmt.Fprintf(&b, ", deadline %s", e.Task.Deadline.Format(time.RFC3339Nano))
	}
	fmt.Fprintf(&b, ", waited %s; limiter %q: %d in flight, %d queued", e.Waited, e.Limiter, e.InFlight, e.QueueLen)
	if e.hasCut() {
		fmt.Fprintf(&b, ", cut at %s", e.Cut)
	}
	if d := e.Decision; d != nil {
		fmt.Fprintf(&b, "; decision %d (%s): target %d, shed %.3g", d.Seq, e.Standing, d.TargetConcurrency, d.ShedProbability)
		for _, r := range d.Reasons {
			fmt.Fprintf(&b, ", %s", r)
		}
	}
	return b.String()
}

// hasCut is whether Cut says something; that of the zero Explanation, which a permit has once it is released, does not.
func (e Explanation) hasCut() bool { return e.Cut != lowest && e.Outcome != 0 }

// Rejection is the error of a task that was not started. It belongs to the caller; only Decision is shared.
type Rejection struct { //nolint:errname // the word of the field
	Reason   Reason
	Decision *decision.ControlDecision // what ruled; never nil; read it, do not write to it
	Task     Task
	Waited   time.Duration // how long it was in the queue
	InFlight int           // tasks that held a place when it was decided
	QueueLen int           // others that waited then
	Cut      Priority      // as in Explanation
	// RetryAfter is when another try could find a place: the time in which the queue would be worked off, as far as the
	// decision knows what a task takes; 0: unknown, or no use.
	RetryAfter time.Duration

	limiter  string
	at       time.Time
	standing Standing
	cause    error
}

// Error has reason, task, limiter and decision on one line. It allocates.
func (r *Rejection) Error() string { return "limiter: " + r.Explain().String() }

// Is reports whether target is ErrRejected.
func (r *Rejection) Is(target error) bool { return target == ErrRejected }

// Unwrap is the context's error for Canceled, context.DeadlineExceeded for DeadlineExceeded, else nil.
func (r *Rejection) Unwrap() error { return r.cause }

// Explain is everything about the rejection in the form that outcomes of all kinds have.
func (r *Rejection) Explain() Explanation {
	return Explanation{
		Limiter: r.limiter, Outcome: outcomeOf(r.Reason), Reason: r.Reason, Task: r.Task, At: r.at, Waited: r.Waited,
		Decision: r.Decision, Standing: r.standing, InFlight: r.InFlight, QueueLen: r.QueueLen, Cut: r.Cut,
	}
}

func outcomeOf(r Reason) Outcome {
	if r == Canceled {
		return Withdrawn
	}
	return Rejected
}

// verdict is what was decided about a task, as it was when it was decided: a grant, or the reason of a refusal.
type verdict struct {
	r        *ruling
	word     uint64 // the state word that decided
	waited   time.Duration
	queueLen int32
	cause    error // of a refusal: the context's error, if that is why
	grant    Grant
	reason   Reason
	cut      Priority
}

// refuse makes a verdict into the error that the task gets, counts it, records it and tells it.
func (l *Limiter) refuse(t Task, v verdict) *Rejection {
	if v.reason == DeadlineExceeded {
		v.cause = context.DeadlineExceeded
	}
	// One allocation: what the caller gets, and what the recorder keeps and nobody can change.
	both := &struct {
		Rejection
		entry
	}{Rejection: Rejection{
		Reason: v.reason, Decision: v.r.decision, Task: t, Waited: v.waited, InFlight: running(v.word), QueueLen: int(v.queueLen),
		Cut: v.cut, RetryAfter: v.retryAfter(), limiter: l.name, at: time.Now(), standing: v.r.standing, cause: v.cause,
	}}
	both.is = both.Explain()
	l.refused[v.reason].Add(1)
	l.record(&both.entry)
	if l.observer != nil {
		l.observe(both.is, 0)
	}
	return &both.Rejection
}

// retryAfter is how long a place takes to come free for one more behind the queue, if every task took what is expected.
func (v *verdict) retryAfter() time.Duration {
	d := v.r.decision
	if v.reason == DeadlineExceeded || v.reason == Canceled || v.reason == Closed || d.TargetConcurrency == 0 {
		return 0
	}
	rounds := 1 + int(v.queueLen)/d.TargetConcurrency
	return time.Duration(min(float64(d.Expected)*float64(rounds), float64(time.Minute)))
}
