// SPDX-License-Identifier: Apache-2.0

// The codes of an outcome: why a task was rejected or granted its slot, by which bound and deadline, under which decision and
// mode.

package decision

import "fmt"

// RejectionReason says why a task was rejected: a code in snake_case, the same in metrics, logs, traces, the console and the
// answers to clients, so tools may group by it. "": it was not rejected. A package that rejects for reasons of its own declares
// them as constants of this type.
type RejectionReason string

// The reasons. docs/reasons.md says when each occurs and how to react.
const (
	// PressureHigh: no slot was free, and the task's whole priority lies in the share to be shed; or the limit is 0 and the
	// task may not wait.
	PressureHigh RejectionReason = "pressure_high"
	// QueueOverflow: no slot was free, and the queue is full of tasks that are no less important, or has no room for any; or
	// the task waited in a full standing queue and was dropped for a newer one (Q11).
	QueueOverflow RejectionReason = "queue_overflow"
	// NoSlot: no slot was free for a task that may not wait, whatever room the queue had (Q20).
	NoSlot RejectionReason = "no_slot"
	// ProbabilisticShedding: the share to be shed ends within the task's priority, and the random draw selected the task.
	ProbabilisticShedding RejectionReason = "probabilistic_shedding"
	// PriorityDrop: the task waited in a full queue and was dropped for one of a higher priority.
	PriorityDrop RejectionReason = "priority_drop"
	// MaxWaitExceeded: the task has no deadline and waited for as long as the decision's MaxWait allows (Q16).
	MaxWaitExceeded RejectionReason = "max_wait_exceeded"
	// DeadlineExceeded: the deadline of the task or its context has passed, or the task would have to wait and has less
	// time left than work of its kind takes at least (Q19).
	DeadlineExceeded RejectionReason = "deadline_exceeded"
	// Canceled: the context was canceled before the task started.
	Canceled RejectionReason = "canceled"
	// Closed: the limiter was closed.
	Closed RejectionReason = "closed"
	// Reentry: the task belongs to work that already holds a slot in the same place: see [ReentryError].
	Reentry RejectionReason = "reentry"
)

// Grant says why a task was granted its slot; "": it was not. It is "slot_free" if a slot was free and the queue empty, or the
// mode did not enforce the limit (Explanation.Mode), and the task did not wait; "queue_oldest" if the task was the oldest of the
// highest waiting priority (FIFO); "queue_newest" if it was the newest, in a standing queue (adaptive LIFO, Q4); and
// "starvation_turn" if it had waited longest of all, and it was the turn of such a task.
type Grant string

// Bound names the limit that kept a rejected task, or one that a dry run would have rejected, from starting at once; "": none.
// A package with limits of its own declares them as constants of this type.
type Bound string

// BoundTarget is the concurrency limit of the decision: TargetConcurrency, or that of a Part.
const BoundTarget Bound = "target"

// DeadlineSource names the origin of the deadline that applied: "task" (Task.Deadline) or "context"; in a compartment also
// "max_wait" or "timeout", its own bounds; "": there was no deadline.
type DeadlineSource string

// DecisionState is the kind of decision in force.
type DecisionState string

// The states of a decision.
const (
	// Initial: that of the configuration; nothing has been applied yet.
	Initial DecisionState = "initial"
	// Applied: the decision was applied and is valid.
	Applied DecisionState = "applied"
	// Stale: the last decision was applied, or was the initial one, longer than its ValidFor ago. Its Stale decision is in
	// force, or the decision itself if it has none.
	Stale DecisionState = "stale"
)

// Outcome is the stage that a task has reached.
type Outcome string

// The outcomes. Each task ends in exactly one of Executed, Rejected and OutcomeCanceled; Started precedes Executed.
const (
	Started         Outcome = "started"
	Executed        Outcome = "executed"
	Rejected        Outcome = "rejected"
	OutcomeCanceled Outcome = "canceled"     // the task's context was canceled: so is the reason
	ModeChanged     Outcome = "mode_changed" // of no task: the mode changed, or is not Enforce at the start
)

// Mode says whether decisions are enforced.
type Mode uint8 //nolint:recvcheck // UnmarshalText alone changes it

// The modes. In DryRun and Bypass every task starts at once, unless its context has ended or nothing starts any more; in a
// compartment, unless its breaker or the reentry check rejects it.
const (
	Enforce Mode = iota // tasks start, wait and are rejected as the decision says
	DryRun              // every task starts; Explanation.WouldReject says which ones Enforce would reject (Q17)
	Bypass              // every task starts, without evaluation (Q18)
)

// String returns the code: "enforce", "dry_run" or "bypass".
func (m Mode) String() string {
	switch m {
	case Enforce:
		return "enforce"
	case DryRun:
		return "dry_run"
	case Bypass:
		return "bypass"
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}

// MarshalText returns the mode's code. The error is an [*InvalidError].
func (m Mode) MarshalText() ([]byte, error) {
	if m > Bypass {
		return nil, &InvalidError{"decision.Mode", uint8(m), "Enforce, DryRun or Bypass"}
	}
	return []byte(m.String()), nil
}

// UnmarshalText accepts exactly the codes that String returns. The error is an [*InvalidError]; the mode is unchanged then.
func (m *Mode) UnmarshalText(text []byte) error {
	for mode := Enforce; mode <= Bypass; mode++ {
		if string(text) == mode.String() {
			*m = mode
			return nil
		}
	}
	return &InvalidError{"decision.Mode", fmt.Sprintf("%.40q", text), "enforce, dry_run or bypass"}
}
