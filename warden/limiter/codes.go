// The words in which a limiter says what it did with a task, and by what right.

package limiter

import (
	"fmt"

	"github.com/stopbank/stopbank/warden/internal/queue"
)

// Reason says why a task was rejected. It prints as its code, which is the same in metrics, logs, traces, the console and the
// answers of wardenhttp, wardengrpc and wardenconnect: tools may group by it.
type Reason uint8

// The reasons. Each one really occurs; docs/limiter.md says when, and what to do then.
const (
	// PressureHigh: the task would have had to wait, and its whole priority lies in the share that is to be shed; or
	// the target is 0 and the task may not wait.
	PressureHigh Reason = iota + 1
	// QueueOverflow: the task would have had to wait, and the queue is full of tasks that are no less important; or it waited in
	// a full queue that stands, and made room for a newer one (Q11); or it may not wait: Config.MaxQueue is 0, or TryAcquire
	// was called.
	QueueOverflow
	// ProbabilisticShedding: the share to be shed ends within the task's priority, and the draw fell on the task.
	ProbabilisticShedding
	// PriorityDrop: the task waited in a full queue and made room for one of a higher priority.
	PriorityDrop
	// PatienceExceeded: the task has no deadline, and has waited until less time was left than it is expected to take before tasks
	// like it, which could have waited on, have left (Q16).
	PatienceExceeded
	// DeadlineExceeded: the deadline, the task's or the context's, has passed, or less time is left than the task is
	// expected to take.
	DeadlineExceeded
	// Canceled: the context ended before the task started.
	Canceled
	// Closed: the limiter was closed.
	Closed
	// TimeoutQueued: the call waited in a compartment for its MaxWait, or for its Timeout if there is no MaxWait.
	TimeoutQueued
	// BreakerOpen: the circuit breaker of the compartment let the call not pass.
	BreakerOpen
	// Reentry: the call came from inside the compartment that it asked for a slot.
	Reentry
)

// reasons is how many there are of a limiter's own, and one for none. The last three are those of package bulkhead's compartments.
const reasons = Closed + 1

// String is the code: "pressure_high", "queue_overflow", "probabilistic_shedding", "priority_drop", "patience_exceeded",
// "deadline_exceeded", "canceled", "closed", "timeout_queued", "breaker_open" or "reentry"; "none" for the zero Reason.
func (r Reason) String() string {
	return nameOf("Reason", uint8(r), "none", "pressure_high", "queue_overflow", "probabilistic_shedding", "priority_drop",
		"patience_exceeded", "deadline_exceeded", "canceled", "closed", "timeout_queued", "breaker_open", "reentry")
}

// Grant says by what right a task was given its place.
type Grant uint8

// The grants.
const (
	// SlotFree: a place was free and nobody waited, or the limiter did not enforce that (Explanation.Mode); the task did not wait.
	SlotFree Grant = iota + 1
	// QueueOldest: it was the oldest of the highest priority that waited.
	QueueOldest
	// QueueNewest: it was the newest of the highest priority that waited, whose queue stands (Q4).
	QueueNewest
	// StarvationTurn: it was the oldest of all that waited; see Config.StarvationEvery.
	StarvationTurn
)

// String is the grant's code: "slot_free", "queue_oldest", "queue_newest" or "starvation_turn"; "none" for the zero Grant.
func (g Grant) String() string {
	return nameOf("Grant", uint8(g), "none", "slot_free", "queue_oldest", "queue_newest", "starvation_turn")
}

// grantOf names by what right the queue lets a task run.
func grantOf(v queue.Verdict) Grant {
	return [queue.Verdicts]Grant{queue.Oldest: QueueOldest, queue.Newest: QueueNewest, queue.LongestWait: StarvationTurn}[v]
}

// reasonOf names why the queue does not.
func reasonOf(v queue.Verdict) Reason {
	return [queue.Verdicts]Reason{
		queue.Shed: PressureHigh, queue.ShedInPart: ProbabilisticShedding, queue.Full: QueueOverflow,
		queue.Evicted: PriorityDrop, queue.Overstayed: PatienceExceeded, queue.Late: DeadlineExceeded, queue.Gone: Canceled,
	}[v]
}

// Bound says which bound was reached when a task had to wait, or was refused because it could not.
type Bound uint8

// The bounds. All but the first are those of package bulkhead's compartments.
const (
	// BoundTarget: the decision's TargetConcurrency.
	BoundTarget Bound = iota + 1
	// BoundPlaces: a compartment has no place but its guaranteed ones, and they are taken.
	BoundPlaces
	// BoundBorrow: a compartment has borrowed as much as it may.
	BoundBorrow
	// BoundTenant: a tenant has all the places that one tenant may have.
	BoundTenant
	// BoundTotal: all places are taken, or kept for others.
	BoundTotal
)

// String is "target", "own_places", "borrow_limit", "tenant_limit" or "total"; "none" for the zero Bound.
func (b Bound) String() string {
	return nameOf("Bound", uint8(b), "none", "target", "own_places", "borrow_limit", "tenant_limit", "total")
}

// DeadlineSource says whose deadline it was that counted.
type DeadlineSource uint8

// The sources. The last two are those of package bulkhead's compartments.
const (
	FromTask    DeadlineSource = iota + 1 // Task.Deadline
	FromContext                           // the context's
	FromMaxWait                           // the compartment's MaxWait
	FromTimeout                           // the compartment's Timeout, which bounds the wait if there is no MaxWait
)

// String is "task", "context", "max_wait" or "timeout"; "none" for the zero DeadlineSource.
func (s DeadlineSource) String() string {
	return nameOf("DeadlineSource", uint8(s), "none", "task", "context", "max_wait", "timeout")
}

// Standing says what kind of decision ruled.
type Standing uint8

// The standings of a decision.
const (
	// Initial: Config.Initial; nothing has been applied yet.
	Initial Standing = iota + 1
	// Applied: the decision was applied and is valid.
	Applied
	// Stale: a decision was applied, or begun with, longer than its ValidFor ago. This is its Stale decision, or itself if it has none.
	Stale
)

// String is "initial", "applied" or "stale"; "none" for the zero Standing.
func (s Standing) String() string {
	return nameOf("Standing", uint8(s), "none", "initial", "applied", "stale")
}

// Outcome says how far a task has come.
type Outcome uint8

// The outcomes. A task that was started ends as executed; each task ends in exactly one of executed, rejected and canceled.
const (
	Started Outcome = iota + 1
	Executed
	Rejected
	Withdrawn   // by its context: Reason Canceled
	ModeChanged // no task's: [Limiter.SetMode] has changed the mode, or New was told one that is not Enforce
)

// String is "started", "executed", "rejected", "canceled" or "mode_changed"; "none" for the zero Outcome.
func (o Outcome) String() string {
	return nameOf("Outcome", uint8(o), "none", "started", "executed", "rejected", "canceled", "mode_changed")
}

func nameOf(kind string, v uint8, names ...string) string {
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprintf("%s(%d)", kind, v)
}
