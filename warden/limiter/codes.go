// The codes of an outcome: reason, grant, bound, deadline source, decision state and outcome, as they appear in logs and metrics.

package limiter

import (
	"fmt"

	"github.com/stopbank/stopbank/warden/internal/queue"
)

// Reason says why a task was rejected. It prints as a code that is the same in metrics, logs, traces, the console and the
// answers of wardenhttp, wardengrpc and wardenconnect, so tools may group by it.
type Reason uint8

// The reasons. docs/limiter.md says when each occurs and how to react.
const (
	// PressureHigh: no slot was free, and the task's whole priority lies in the share to be shed; or the limit is 0 and the
	// task may not wait.
	PressureHigh Reason = iota + 1
	// QueueOverflow: no slot was free, and the queue is full of tasks that are no less important, or has no room for any
	// (Config.MaxQueue is 0); or the task waited in a full standing queue and was dropped for a newer one (Q11).
	QueueOverflow
	// NoSlot: TryAcquire found no free slot, whatever room the queue had (Q20).
	NoSlot
	// ProbabilisticShedding: the share to be shed ends within the task's priority, and the random draw selected the task.
	ProbabilisticShedding
	// PriorityDrop: the task waited in a full queue and was dropped for one of a higher priority.
	PriorityDrop
	// MaxWaitExceeded: the task has no deadline and waited in a standing queue for as long as the decision's MaxWait allows (Q16).
	MaxWaitExceeded
	// DeadlineExceeded: the deadline of the task or its context has passed, or the task would have to wait and has less
	// time left than work of its kind takes at least (Q19).
	DeadlineExceeded
	// Canceled: the context ended before the task started.
	Canceled
	// Closed: the limiter was closed.
	Closed
	// TimeoutQueued: the call waited in a compartment for its MaxWait, or for its Timeout if MaxWait is not set.
	TimeoutQueued
	// BreakerOpen: the compartment's circuit breaker rejected the call.
	BreakerOpen
	// Reentry: the call came from work that already holds a slot of the same compartment.
	Reentry
)

// reasons is the number of the limiter's own reasons, with one for none. The last three belong to package bulkhead's
// compartments.
const reasons = Closed + 1

// String returns the code: "pressure_high", "queue_overflow", "no_slot", "probabilistic_shedding", "priority_drop",
// "max_wait_exceeded", "deadline_exceeded", "canceled", "closed", "timeout_queued", "breaker_open" or "reentry"; "none" for the
// zero Reason.
func (r Reason) String() string {
	return nameOf("Reason", uint8(r), "none", "pressure_high", "queue_overflow", "no_slot", "probabilistic_shedding",
		"priority_drop", "max_wait_exceeded", "deadline_exceeded", "canceled", "closed", "timeout_queued", "breaker_open", "reentry")
}

// Grant says why a task was granted its slot.
type Grant uint8

// The grants.
const (
	// SlotFree: a slot was free and the queue empty, or the mode did not enforce the limit (Explanation.Mode); the task did
	// not wait.
	SlotFree Grant = iota + 1
	// QueueOldest: the task was the oldest of the highest waiting priority (FIFO).
	QueueOldest
	// QueueNewest: the task was the newest of the highest waiting priority, in a standing queue (adaptive LIFO, Q4).
	QueueNewest
	// StarvationTurn: the task had waited longest of all; see Config.StarvationEvery.
	StarvationTurn
)

// String returns the code: "slot_free", "queue_oldest", "queue_newest" or "starvation_turn"; "none" for the zero Grant.
func (g Grant) String() string {
	return nameOf("Grant", uint8(g), "none", "slot_free", "queue_oldest", "queue_newest", "starvation_turn")
}

// grantOf maps the queue's reason for granting.
func grantOf(v queue.Result) Grant {
	return [queue.Results]Grant{queue.Oldest: QueueOldest, queue.Newest: QueueNewest, queue.LongestWait: StarvationTurn}[v]
}

// reasonOf maps the queue's reason for dropping.
func reasonOf(v queue.Result) Reason {
	return [queue.Results]Reason{
		queue.Shed: PressureHigh, queue.ShedInPart: ProbabilisticShedding, queue.Full: QueueOverflow,
		queue.Evicted: PriorityDrop, queue.Overstayed: MaxWaitExceeded, queue.Late: DeadlineExceeded, queue.Gone: Canceled,
	}[v]
}

// Bound names the limit that was reached when a task had to wait, or was rejected because it could not.
type Bound uint8

// The bounds. All but the first belong to package bulkhead's compartments alone.
const (
	// BoundTarget: the concurrency limit of the decision (TargetConcurrency), in a compartment that of its part.
	BoundTarget Bound = iota + 1
	// BoundSlots: the compartment's guaranteed slots are taken, and it may not borrow.
	BoundSlots
	// BoundBorrow: the compartment has borrowed its maximum.
	BoundBorrow
	// BoundTenant: the tenant has its maximum of slots.
	BoundTenant
	// BoundTotal: all slots are taken, or reserved for other compartments.
	BoundTotal
)

// String returns the code: "target", "own_slots", "borrow_limit", "tenant_limit" or "total"; "none" for the zero Bound.
func (b Bound) String() string {
	return nameOf("Bound", uint8(b), "none", "target", "own_slots", "borrow_limit", "tenant_limit", "total")
}

// DeadlineSource names the origin of the deadline that applied.
type DeadlineSource uint8

// The sources. The last two belong to package bulkhead's compartments.
const (
	FromTask    DeadlineSource = iota + 1 // Task.Deadline
	FromContext                           // the context's
	FromMaxWait                           // the compartment's MaxWait
	FromTimeout                           // the compartment's Timeout, which bounds the wait if MaxWait is not set
)

// String returns the code: "task", "context", "max_wait" or "timeout"; "none" for the zero DeadlineSource.
func (s DeadlineSource) String() string {
	return nameOf("DeadlineSource", uint8(s), "none", "task", "context", "max_wait", "timeout")
}

// DecisionState is the kind of decision in force.
type DecisionState uint8

// The states of a decision.
const (
	// Initial: Config.Initial; nothing has been applied yet.
	Initial DecisionState = iota + 1
	// Applied: the decision was applied and is valid.
	Applied
	// Stale: the last decision was applied, or was the initial one, longer than its ValidFor ago. Its Stale decision is in
	// force, or the decision itself if it has none.
	Stale
)

// String returns the code: "initial", "applied" or "stale"; "none" for the zero DecisionState.
func (s DecisionState) String() string {
	return nameOf("DecisionState", uint8(s), "none", "initial", "applied", "stale")
}

// Outcome is the stage that a task has reached.
type Outcome uint8

// The outcomes. Each task ends in exactly one of Executed, Rejected and OutcomeCanceled; Started precedes Executed.
const (
	Started Outcome = iota + 1
	Executed
	Rejected
	OutcomeCanceled // the task's context ended: Reason Canceled, printed as "canceled"
	ModeChanged     // of no task: SetMode changed the mode, or New was given one other than Enforce
)

// String returns the code: "started", "executed", "rejected", "canceled" or "mode_changed"; "none" for the zero Outcome.
func (o Outcome) String() string {
	return nameOf("Outcome", uint8(o), "none", "started", "executed", "rejected", "canceled", "mode_changed")
}

func nameOf(kind string, v uint8, names ...string) string {
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprintf("%s(%d)", kind, v)
}
