// The limiter: what it is made of, and what is configured.

package limiter

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/queue"
)

// Config describes a limiter. The zero value is one without a queue, under [decision.Default].
type Config struct {
	// Name appears in explanations; it may be empty.
	Name string
	// MaxQueue is how many tasks may wait, 0 or more. 0: none.
	MaxQueue int
	// Initial rules until the first Apply. The zero decision, or one with Seq 0 that is otherwise Default's, means
	// [decision.Default]; any other one needs a Seq, so that a target of 0, with which nothing runs, is never an oversight.
	Initial decision.ControlDecision
	// Mode is the mode to begin with; see [Limiter.SetMode].
	Mode Mode
	// StarvationEvery N: one in N grants from the queue goes to the task that has waited longest, whatever its priority,
	// and one in N of those that would be refused for want of importance is let into the queue and stays there. 0: none.
	StarvationEvery int
	// Recent is how many refusals [Limiter.Recent] keeps, and how many delayed starts besides, 0 or more; 0: 128.
	Recent int
	// Rand draws numbers in [0, 1) and may be called by many goroutines at once; nil: math/rand/v2. It decides who of the
	// boundary priority is shed.
	Rand func() float64
	// Observer, if not nil, is told every outcome.
	Observer Observer
}

// Limiter runs tasks as the decision says that was applied last. All its methods may be called by any number of
// goroutines. It starts no goroutine that outlives a call, and needs no cleaning up. A nil or zero Limiter refuses every call
// with an [*InvalidError]. A Limiter must not be copied.
type Limiter struct {
	name     string
	epoch    time.Time
	observer Observer
	draw     func() float64
	refusals *queue.Recent[Explanation]
	delayed  *queue.Recent[Explanation] // tasks that started after waiting: they must not push refusals out
	waiters  queue.Pool[outcome]

	mu     sync.Mutex // guards all below; no foreign code runs while it is held
	rule   *rule      // what rules
	seq    uint64     // of the decision applied last
	expiry *time.Timer
	closed bool
	direct bool // a free place is all that a task needs: not closed, and no dry run
	queue  queue.Queue[outcome]
	idle   *seat // those that nobody has

	running                  int
	unwanted                 int // of them: those who would have been refused, in a dry run
	submitted, foreignPanics uint64
	classes                  [classes]Tally // but Queued
}

// New returns an open limiter. The error, an [*InvalidError], names the field of cfg that is wrong.
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
		name: cfg.Name, epoch: time.Now(), observer: cfg.Observer, draw: cfg.Rand,
		refusals: queue.NewRecent[Explanation](cfg.Recent), delayed: queue.NewRecent[Explanation](cfg.Recent),
		queue: queue.Queue[outcome]{Limit: cfg.MaxQueue, Every: cfg.StarvationEvery},
	}
	l.queue.Left = l.dismiss
	l.begun(initial.Sanitized(), cfg.Mode)
	return l, nil
}

// begun puts the first decision in force, and the first mode.
func (l *Limiter) begun(d decision.ControlDecision, m Mode) {
	l.mu.Lock()
	l.adopt(d, Initial, m)
	l.enter(m)
	l.mu.Unlock()
	if m != Enforce {
		l.tellMode()
	}
}

// check returns the decision to begin with, or what is wrong.
func (cfg *Config) check() (decision.ControlDecision, error) {
	const orMore = "0 or more"
	switch {
	case cfg.MaxQueue < 0:
		return cfg.Initial, &InvalidError{"Config.MaxQueue", cfg.MaxQueue, "0 (nobody waits) or more"}
	case cfg.Mode >= modes:
		return cfg.Initial, &InvalidError{"Config.Mode", uint8(cfg.Mode), validModes}
	case cfg.StarvationEvery < 0:
		return cfg.Initial, &InvalidError{"Config.StarvationEvery", cfg.StarvationEvery, orMore}
	case cfg.Recent < 0:
		return cfg.Initial, &InvalidError{"Config.Recent", cfg.Recent, orMore}
	}
	var invalid *decision.InvalidError
	if errors.As(cfg.Initial.Validate(), &invalid) {
		return cfg.Initial, &InvalidError{"Config.Initial." + invalid.Field, invalid.Value, invalid.Allowed}
	}
	if cfg.Initial.Seq != 0 {
		return cfg.Initial, nil
	}
	initial := decision.Default()
	if !reflect.DeepEqual(cfg.Initial, decision.ControlDecision{}) && !reflect.DeepEqual(cfg.Initial, initial) {
		return cfg.Initial, &InvalidError{"Config.Initial.Seq", 0, "1 or more, in a decision that is neither zero nor decision.Default()"}
	}
	return initial, nil
}

func (l *Limiter) made() bool { return l != nil && l.draw != nil }

func notMade() error { return &InvalidError{"Limiter", "nil or zero", "a limiter made by New"} }

// Inside, time is how long the limiter has existed, by the monotonic clock.
func (l *Limiter) clock() time.Duration { return time.Since(l.epoch) }

// Stats are a limiter's counters, all of one instant.
type Stats struct {
	Tally // of all tasks
	// Target is the TargetConcurrency that rules.
	Target int
	// Standing is the kind of decision that rules: Stale means that control has been silent for longer than its last decision was to hold.
	Standing Standing
	// Mode is the mode in force.
	Mode Mode
	// ForeignPanics counts panics of the Observer, or of a context, that were contained. It never falls.
	ForeignPanics uint64

	classes [classes]Tally
}

// Of is the Tally of the tasks whose priority is of the same class as p: see [Priority.Class]. Those of the four classes add up to that of all.
func (s Stats) Of(p Priority) Tally { return s.classes[p.class()] }

// Tally counts tasks: Submitted = Executed + Rejected + Canceled + Queued + Running. The first four, and RejectedFor, never fall.
type Tally struct {
	Submitted uint64 // calls of Acquire, TryAcquire and Do that were no mistake of the caller's
	Executed  uint64 // tasks whose permit was released
	Rejected  uint64 // tasks refused for any reason but Canceled
	Canceled  uint64 // tasks whose context was canceled before they started
	Queued    int    // tasks that wait now: QueueLen of an explanation
	Running   int    // tasks that hold a place now: InFlight of an explanation
	// WouldReject is how many tasks were started in a dry run that would have been refused (Q17). They are among the Executed and the
	// Running, and not among the Rejected. It never falls.
	WouldReject uint64

	byReason, wouldReject [reasons]uint64
}

// RejectedFor is how many tasks were refused for this reason.
func (t Tally) RejectedFor(r Reason) uint64 {
	if r >= reasons {
		return 0
	}
	return t.byReason[r]
}

// WouldRejectFor is how many tasks were started in a dry run that would have been refused for this reason.
func (t Tally) WouldRejectFor(r Reason) uint64 {
	if r >= reasons {
		return 0
	}
	return t.wouldReject[r]
}

func (t Tally) plus(o Tally) Tally {
	t.Submitted += o.Submitted
	t.Executed += o.Executed
	t.Rejected += o.Rejected
	t.Canceled += o.Canceled
	t.Running += o.Running
	t.WouldReject += o.WouldReject
	for r, n := range o.byReason {
		t.byReason[r] += n
		t.wouldReject[r] += o.wouldReject[r]
	}
	return t
}

// waiting is how many of those who asked have neither begun nor left.
func (t Tally) waiting() int {
	return int(t.Submitted-t.Executed-t.Rejected-t.Canceled) - t.Running //nolint:gosec // no more than wait
}

// Stats reads the counters; those of a nil or zero Limiter are 0. It may wait for a mutex that is held for microseconds, and
// allocates nothing.
func (l *Limiter) Stats() Stats {
	if !l.made() {
		return Stats{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Stats{Target: l.rule.decision.TargetConcurrency, Standing: l.rule.standing, Mode: l.rule.mode, ForeignPanics: l.foreignPanics, classes: l.classes}
	for i := range s.classes {
		s.classes[i].Queued = s.classes[i].waiting()
		s.Tally = s.plus(s.classes[i])
	}
	s.Queued = l.queue.Len()
	return s
}

// Recent returns the explanations of the last tasks that were refused, and of the last ones that started after waiting: Config.Recent of
// each at most, the oldest first. It does not block and allocates the copy.
func (l *Limiter) Recent() []Explanation {
	if !l.made() {
		return nil
	}
	all := append(l.refusals.All(), l.delayed.All()...)
	slices.SortStableFunc(all, func(a, b Explanation) int { return a.At.Compare(b.At) })
	return all
}
