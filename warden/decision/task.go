// SPDX-License-Identifier: Apache-2.0

// A task: the description of one execution, with its priority and its deadline.

package decision

import (
	"strconv"
	"time"
)

// Task describes one execution to be admitted. The zero Task has normal priority and no deadline.
type Task struct {
	// Name is the kind of work, such as a route: it appears in explanations, and the decision's Needs are by it. It may be empty.
	Name string
	// ID identifies one request in explanations, where it is called request_id; it may be empty. Explanations keep it after
	// the task has ended, so truncate an ID that a client chose.
	ID string
	// Priority decides which task starts first and which is rejected first.
	Priority Priority
	// Tenant is whose task it is, such as the customer that a request was authenticated for: slots are shared among tenants (Q25).
	// Never take it from what a client may choose or repeat. "": nobody has said so, and all such tasks together are as one tenant.
	Tenant string
	// Deadline is the instant after which the result is useless; the zero time means none. The context's deadline counts as
	// well: the earlier of the two applies. A deadline only prevents a start; running tasks are not interrupted.
	Deadline time.Time
	// Patient is for work that nobody waits for impatiently, such as jobs: without a deadline nothing bounds the time for which
	// it waits. The decision's MaxWait does not apply to it, nor to [Critical] tasks.
	Patient bool
}

// Priority orders tasks, higher first. Every int8 value is valid.
type Priority int8

// Common priorities. Values between them are valid too.
const (
	Background Priority = -64 // no user is waiting for the result
	Normal     Priority = 0
	High       Priority = 64
	Critical   Priority = 127 // the highest value

	lowest Priority = -128
)

// String returns the name of a common priority, else the number.
func (p Priority) String() string {
	switch p {
	case Background:
		return "background"
	case Normal:
		return "normal"
	case High:
		return "high"
	case Critical:
		return "critical"
	}
	return strconv.Itoa(int(p))
}

// Class returns the common priority that stands for p in metrics and other places with few labels: the highest of the four
// that is not above p. Every priority below Normal counts as Background.
func (p Priority) Class() Priority {
	switch {
	case p < Normal:
		return Background
	case p < High:
		return Normal
	case p < Critical:
		return High
	}
	return Critical
}
