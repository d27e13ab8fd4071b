// SPDX-License-Identifier: Apache-2.0

// The limiter: its configuration, its state and its counters.

package limiter

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/fair"
	"github.com/stopbank/stopbank/warden/internal/queue"
)

// Config describes a limiter. The zero value has no queue and follows [decision.Default].
type Config struct {
	// Name appears in explanations; it may be empty.
	Name string
	// MaxQueue is the maximum number of waiting tasks, 0 or more. 0: no queue, a task without a free slot is rejected.
	MaxQueue int
	// Initial is the decision in force until the first Apply. The zero decision, or one with Seq 0 that otherwise equals
	// Default's, means [decision.Default]; any other decision needs a Seq, so that a limit of 0, under which nothing runs, is
	// never an oversight.
	Initial decision.ControlDecision
	// Mode is the initial mode; see [Limiter.SetMode].
	Mode decision.Mode
	// StarvationEvery prevents starvation of low priorities. For a value N, one in N grants from the queue goes to the task
	// that has waited longest, whatever its priority, and one in N tasks that would be rejected for their low priority enters
	// the queue and keeps its place there, while such tasks fill no more than an N-th of it. 0: off; not negative.
	StarvationEvery int
	// Tenants says among whom slots are shared; see [Limiter.SetTenants].
	Tenants Tenants
	// Recent is the number of rejections that [Limiter.Recent] keeps (in a dry run, of those there would have been), and
	// separately the number of delayed starts, 0 or more; 0: 128 of each.
	Recent int
	// Rand returns numbers from 0 to below 1 and must be safe for concurrent use; nil: math/rand/v2. Its draws decide which
	// tasks of the boundary priority are shed, and which one in 64 may wait whatever the decision's Needs say.
	Rand func() float64
	// Observer, if not nil, receives every outcome.
	Observer Observer
}

// Limiter runs tasks under the decision that was applied last. All methods are safe for concurrent use. A Limiter starts no
// goroutine, except that a timer ends a decision that is not renewed, and needs no cleanup. The methods of a nil or zero
// Limiter return an [*decision.InvalidError], or zero values and do nothing. A Limiter must not be copied.
type Limiter struct {
	name       string
	epoch      time.Time
	observer   Observer
	draw       func() float64
	rejections *queue.Recent[decision.Explanation]
	// tasks that started after waiting, kept apart so that they do not push rejections out
	delayed *queue.Recent[decision.Explanation]
	waiters queue.Pool[outcome]

	mu     sync.Mutex // guards all below; no foreign code runs while it is held
	rule   *rule      // the decision in force
	seq    uint64     // of the decision applied last
	expiry *time.Timer
	closed bool
	direct bool // a task with a free slot may start at once: not closed, no dry run
	queue  queue.Queue[outcome]
	idle   *slot // free list
	first  *slot // of the running tasks: the one that started first, and
	last   *slot // the one that started last

	tenants fair.Table[struct{}]
	weight  func(key string) int // of a new tenant
	named   int                  // of the running tasks, those that have a tenant

	running                   int           // the tasks with a slot
	parked                    int           // and those that have given it back: Permit.Park
	unwanted                  int           // the running tasks that a dry run would have rejected
	lastFree                  time.Duration // when a task last found a free slot in a dry run
	submitted, observerPanics uint64
	classes                   [classes]Tally // all fields but Queued
}

// New returns an open limiter. The error, an [*decision.InvalidError], names the invalid field of cfg.
func New(cfg Config) (*Limiter, error) {
	initial, err := cfg.check()
	if err != nil {
		return nil, err
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Float64
	}
	if cfg.Recent == 0 {
		cfg.Recent = 128
	}
	l := &Limiter{
		name: cfg.Name, epoch: time.Now().Add(-1), observer: cfg.Observer, draw: cfg.Rand,
		rejections: queue.NewRecent[decision.Explanation](cfg.Recent), delayed: queue.NewRecent[decision.Explanation](cfg.Recent),
		queue: queue.Queue[outcome]{Limit: cfg.MaxQueue, Every: cfg.StarvationEvery},
	}
	l.queue.Left = l.dropLocked
	l.tenants.Most, l.weight = cfg.Tenants.keys(), cfg.Tenants.Weight
	l.start(initial.Sanitized(), cfg.Mode)
	return l, nil
}

// start puts the first decision and the first mode in force.
func (l *Limiter) start(d decision.ControlDecision, m decision.Mode) {
	l.mu.Lock()
	l.adoptLocked(d, decision.Initial, m)
	l.enterLocked(m)
	l.mu.Unlock()
	if m != decision.Enforce {
		l.observeMode()
	}
}

// check returns the initial decision, or an error for the first invalid field.
func (cfg *Config) check() (decision.ControlDecision, error) {
	const orMore = "0 or more"
	switch {
	case cfg.MaxQueue < 0:
		return cfg.Initial, invalidField("Config.MaxQueue", cfg.MaxQueue, "0 (nobody waits) or more")
	case cfg.Mode > decision.Bypass:
		return cfg.Initial, invalidField("Config.Mode", uint8(cfg.Mode), validModes)
	case cfg.StarvationEvery < 0:
		return cfg.Initial, invalidField("Config.StarvationEvery", cfg.StarvationEvery, orMore)
	case cfg.Recent < 0:
		return cfg.Initial, invalidField("Config.Recent", cfg.Recent, orMore)
	}
	if err := checkObserver("Config.Observer", cfg.Observer); err != nil {
		return cfg.Initial, err
	}
	if err := cfg.Tenants.check("Config.Tenants"); err != nil {
		return cfg.Initial, err
	}
	var invalid *decision.InvalidError
	if errors.As(cfg.Initial.Validate(), &invalid) {
		return cfg.Initial, invalidField("Config.Initial"+strings.TrimPrefix(invalid.Field, "decision"), invalid.Value, invalid.Allowed)
	}
	if cfg.Initial.Seq != 0 {
		return cfg.Initial, nil
	}
	initial := decision.Default()
	if !reflect.DeepEqual(cfg.Initial, decision.ControlDecision{}) && !reflect.DeepEqual(cfg.Initial, initial) {
		return cfg.Initial, invalidField("Config.Initial.Seq", 0, "1 or more; 0 only in a zero decision or decision.Default()")
	}
	return initial, nil
}

func (l *Limiter) valid() bool { return l != nil && l.draw != nil }

func errNotMade() error { return invalidField("Limiter", "nil or zero", "a limiter made by New") }

// clock returns the limiter's age by the monotonic clock, which is never 0; all internal times are such ages.
func (l *Limiter) clock() time.Duration { return time.Since(l.epoch) }

// Stats is a consistent snapshot of a limiter's counters.
type Stats struct {
	Tally // of all tasks
	// Target is the concurrency limit in force (TargetConcurrency).
	Target int
	// DecisionState is the kind of decision in force. Stale means that control has been silent for longer than its last decision
	// was valid.
	DecisionState decision.DecisionState
	// Mode is the mode in force.
	Mode decision.Mode
	// OldestRunning is how long the oldest running task has held its slot, at least (Q21); 0: none runs, or was seen to
	// run.
	OldestRunning time.Duration
	// ObserverPanics counts recovered panics of the Observer or of a context. It never falls.
	ObserverPanics uint64

	classes [classes]Tally
}

// Of returns the Tally of the tasks in p's class: see [decision.Priority.Class]. The four classes add up to the total.
func (s Stats) Of(p decision.Priority) Tally { return s.classes[class(p)] }

// Tally counts tasks: Submitted = Executed + Rejected + Canceled + Queued + Running + Parked. Submitted, Executed, Rejected, Canceled,
// Abandoned, Failed and RejectedFor never fall. Without an answer, of those submitted, are Rejected + Canceled + Abandoned; with a
// bad one, or none because the work panicked, Failed.
type Tally struct {
	Submitted uint64 // valid calls of Acquire, TryAcquire and Do
	Executed  uint64 // tasks whose permit was released
	Rejected  uint64 // tasks rejected for any reason but Canceled
	Canceled  uint64 // tasks whose context was canceled before they started
	Abandoned uint64 // of those executed, tasks that ended without an answer: see Permit.Abandon
	Failed    uint64 // of those executed, tasks that failed: see Permit.Fail
	Queued    int    // tasks waiting now: QueueLen of an explanation
	Running   int    // tasks holding a slot now: InFlight of an explanation
	Parked    int    // tasks that run without a slot now: see Permit.Park
	// WouldReject counts tasks that a dry run started although Enforce would have rejected them (Q17). They count as Executed
	// or Running, not as Rejected. It never falls.
	WouldReject uint64

	byReason, wouldReject [queue.Rejections]uint64
}

// Reasons returns all reasons that a limiter rejects for, in a fixed order. It allocates the slice.
func Reasons() []decision.RejectionReason { return queue.Reasons() }

// RejectedFor returns the number of tasks rejected for this reason.
func (t Tally) RejectedFor(r decision.RejectionReason) uint64 {
	return t.byReason[queue.RejectedFor(r)]
}

// WouldRejectFor returns the number of tasks that a dry run started although Enforce would have rejected them for this
// reason.
func (t Tally) WouldRejectFor(r decision.RejectionReason) uint64 {
	return t.wouldReject[queue.RejectedFor(r)]
}

func (t Tally) plus(o Tally) Tally {
	t.Submitted += o.Submitted
	t.Executed += o.Executed
	t.Rejected += o.Rejected
	t.Canceled += o.Canceled
	t.Abandoned += o.Abandoned
	t.Failed += o.Failed
	t.Running += o.Running
	t.Parked += o.Parked
	t.WouldReject += o.WouldReject
	for r, n := range o.byReason {
		t.byReason[r] += n
		t.wouldReject[r] += o.wouldReject[r]
	}
	return t
}

// waiting returns the number of submitted tasks that have neither started nor left.
func (t Tally) waiting() int {
	return int(t.Submitted-t.Executed-t.Rejected-t.Canceled) - t.Running - t.Parked //nolint:gosec // no more than wait
}

// Stats returns a snapshot of the counters; all are 0 for a nil or zero Limiter. It may wait microseconds for a mutex and
// allocates nothing.
func (l *Limiter) Stats() Stats {
	if !l.valid() {
		return Stats{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Stats{Target: l.rule.decision.TargetConcurrency, DecisionState: l.rule.decisionState, Mode: l.rule.mode,
		OldestRunning: l.oldestLocked(l.clock()), ObserverPanics: l.observerPanics, classes: l.classes}
	for i := range s.classes {
		s.classes[i].Queued = s.classes[i].waiting()
		s.Tally = s.plus(s.classes[i])
	}
	s.Queued = l.queue.Len()
	return s
}

// SetMaxQueue changes Config.MaxQueue for later tasks. Those that wait go on waiting: where they are more, a task enters only
// in the place of another until enough have left. The error is an [*decision.InvalidError] if n is negative, or the Limiter nil
// or zero. SetMaxQueue does not block.
func (l *Limiter) SetMaxQueue(n int) error {
	switch {
	case !l.valid():
		return errNotMade()
	case n < 0:
		return invalidField("MaxQueue", n, "0 (nobody waits) or more")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue.Limit = n
	return nil
}

// Recent returns the explanations of the last rejected tasks, in a dry run of those that would have been, and of the last tasks
// that started after waiting, oldest first, at most Config.Recent of each. It does not block and allocates the copy.
func (l *Limiter) Recent() []decision.Explanation {
	if !l.valid() {
		return nil
	}
	all := append(l.rejections.All(), l.delayed.All()...)
	slices.SortStableFunc(all, func(a, b decision.Explanation) int { return a.At.Compare(b.At) })
	return all
}
