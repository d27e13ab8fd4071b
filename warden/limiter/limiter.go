// The limiter: what is asked of it, and what it knows.

package limiter

import (
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
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
	// StarvationEvery N: one in N grants from the queue goes to the task that has waited longest, whatever its priority,
	// and one in N of those that would be refused for want of importance is let into the queue and stays there. 0: none.
	StarvationEvery int
	// StandAfter is how long the oldest of a priority may wait before that priority counts as one that cannot be served
	// in full, 0 or more; 0: half of the time that it had to its deadline, at most a second. What follows is Q4 and Q11.
	StandAfter time.Duration
	// Recent is how many explanations the flight recorder keeps, 0 or more; 0: 128.
	Recent int
	// Rand draws numbers in [0, 1) and may be called by many goroutines at once; nil: math/rand/v2. It decides who of the
	// boundary priority is shed.
	Rand func() float64
	// Observer, if not nil, is told every outcome.
	Observer Observer
	// Slots, if not nil, must grant each place as well.
	Slots Slots
}

// Slots is shared capacity of which a limiter takes its places one by one. It is what lets several limiters lend each
// other what they do not use.
//
// Both methods are called by many goroutines at once, holding no lock of the limiter, and must not block or end their
// goroutine; a panic in TryTake counts as a refusal. When TryTake has answered false, and later there is a place again, its owner calls
// [Limiter.Wake], from within Give or from anywhere but TryTake.
type Slots interface {
	// TryTake takes a place if there is one for this limiter.
	TryTake() bool
	// Give returns a place that TryTake granted. The limiter hands nothing on before: whoever the owner wants to have
	// the place can be given it first.
	Give()
}

// Limiter runs tasks as the decision says that was applied last. All its methods may be called by any number of
// goroutines. It starts no goroutine that outlives a call, and needs no cleaning up. The zero Limiter refuses every call with an
// [*InvalidError]. A Limiter must not be copied.
type Limiter struct {
	state  word          // see state.go
	ruling rulingPointer // what rules; written under mu
	came   word          // calls of Acquire while the ruling has yields
	ended  word          // releases of permits with a pooled seat
	seats  [seats]seat

	epoch    time.Time
	slots    Slots
	observer Observer
	name     string
	draw     func() float64
	maxQueue int
	every    int
	patience time.Duration
	recent   int

	seatPool   pool // of *seat
	waiterPool pool // of *waiter

	mu     mutex       // guards all below; no foreign code runs while it is held
	queue  *queue      // nil until somebody has to wait
	ranks  *ranks      // there if queue is
	seq    uint64      // of the decision applied last
	expiry *time.Timer // nil until a decision has ValidFor; runs expire
	asking int         // how many in serve ask Slots, without the lock
	again  bool        // one of them is to ask again

	refused  [reasons]atomic.Uint64
	panics   atomic.Uint64
	recorder atomic.Pointer[recorder] // nil until something is recorded
}

// New returns an open limiter. The error, an [*InvalidError], names the field of cfg that is wrong.
func New(cfg Config) (*Limiter, error) {
	initial, err := cfg.check()
	if err != nil {
		return nil, err
	}
	l := &Limiter{
		epoch: time.Now(),
		slots: cfg.Slots, observer: cfg.Observer, name: cfg.Name, draw: cfg.Rand,
		maxQueue: cfg.MaxQueue, every: cfg.StarvationEvery, patience: cfg.StandAfter, recent: cfg.Recent,
	}
	if l.draw == nil {
		l.draw = rand.Float64
	}
	if l.recent == 0 {
		l.recent = 128
	}
	l.seatPool.New = func() any { return new(seat) }
	l.waiterPool.New = func() any { return &waiter{ready: make(chan struct{}, 1)} }
	l.mu.Lock()
	l.adopt(initial.Sanitized(), Initial)
	l.mu.Unlock()
	return l, nil
}

// check returns the decision to begin with, or what is wrong.
func (cfg *Config) check() (decision.ControlDecision, error) {
	const orMore = "0 or more"
	switch {
	case cfg.MaxQueue < 0:
		return cfg.Initial, &InvalidError{"Config.MaxQueue", cfg.MaxQueue, "0 (nobody waits) or more"}
	case cfg.StarvationEvery < 0:
		return cfg.Initial, &InvalidError{"Config.StarvationEvery", cfg.StarvationEvery, orMore}
	case cfg.StandAfter < 0:
		return cfg.Initial, &InvalidError{"Config.StandAfter", cfg.StandAfter, orMore}
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

// Acquire lets the caller run: at once while a place is free, or after waiting in the queue; or it returns a [*Rejection].
// Who gets the permit must release it, whatever happens: defer p.Release().
//
// It blocks until the task is granted a place, is refused, its deadline comes, or ctx ends. ctx is not changed or wrapped, and
// ends nothing that runs. Without waiting it allocates nothing; a rejection is one allocation, and so is a start after
// waiting. The error is an [*InvalidError] if ctx is nil.
func (l *Limiter) Acquire(ctx context.Context, t Task) (Permit, error) {
	if ctx == nil {
		return Permit{}, &InvalidError{"ctx", nil, "a context"}
	}
	if r := l.ruling.Load(); r != nil && r.yields > 0 {
		l.came.Add(1)
	}
	asked := false
	if l.observer == nil && t.Deadline.IsZero() && ctx.Err() == nil {
		if _, bounded := ctx.Deadline(); !bounded {
			var v verdict
			if asked = true; l.start(&v) {
				if v.r.yields == 0 {
					return l.sit(t, &v), nil
				}
				return l.begin(ctx, t, never, v)
			}
		}
	}
	return l.acquireSlow(ctx, t, asked)
}

// TryAcquire is Acquire for a task that may not wait: neither in the queue nor for others that want to come first.
// It never blocks.
func (l *Limiter) TryAcquire(t Task) (Permit, error) {
	asked := false
	if l.observer == nil && t.Deadline.IsZero() {
		var v verdict
		if asked = true; l.start(&v) {
			return l.sit(t, &v), nil
		}
	}
	return l.tryAcquireSlow(t, asked)
}

// Do runs fn(ctx) once it was granted a place, and gives the place back when fn returns, panics or calls
// runtime.Goexit; a panic is not recovered, so its stack stays whole. The error is fn's own; or that of
// [Limiter.Acquire], and fn was not called; or an [*InvalidError] if fn or l is nil. It blocks and allocates as
// Acquire does.
func Do[T any](ctx context.Context, l *Limiter, t Task, fn func(context.Context) (T, error)) (T, error) {
	var zero T
	switch {
	case l == nil:
		return zero, notMade()
	case fn == nil:
		return zero, &InvalidError{"fn", nil, "a function"}
	}
	p, err := l.Acquire(ctx, t)
	if err != nil {
		return zero, err
	}
	defer p.Release()
	return fn(ctx)
}

func notMade() error { return &InvalidError{"Limiter", "nil or zero", "a limiter made by New"} }
