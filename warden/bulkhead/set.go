// The set: what is asked of it.

package bulkhead

import (
	"context"
	"errors"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
)

// Set is a number of compartments that share a total. All its methods may be called by any number of goroutines. It
// starts no goroutine but for functions with a Timeout, and needs no cleaning up. It must come from [New] and must not be copied.
type Set struct{}

// Compartment is one part of a [Set], or one tenant of such a part. Its methods may be called by any number of
// goroutines, and on nil, which stands for a compartment that is not known.
type Compartment struct{}

// Plan says how the places are shared. It is what [Set.Resize] changes.
type Plan struct {
	// Revision is the revision that the plan was made from: what [Set.Plan] returned.
	Revision     uint64  `json:"revision"`
	Total        int     `json:"total"`
	Compartments []Share `json:"compartments"` // each one of the set once, in any order
}

// Share is one compartment's part of a [Plan]; see [CompartmentConfig].
type Share struct {
	Name       string `json:"name"`
	Guaranteed int    `json:"guaranteed"`
	Lendable   int    `json:"lendable"`
	Max        int    `json:"max"`
}

var errNotBuilt = errors.New("bulkhead: not built yet")

// New returns a set that is ready to be used. The error, an [*InvalidError], names the field of cfg that is wrong.
func New(cfg Config) (*Set, error) { return nil, errNotBuilt }

// Compartment is the compartment of that name, nil if there is none. It does not block and allocates nothing.
func (s *Set) Compartment(name string) *Compartment { return nil }

// Compartments are all of them, in the order of Config, without tenants. It allocates the slice.
func (s *Set) Compartments() []*Compartment { return nil }

// Plan is how the places are shared now, before any decision. It allocates.
func (s *Set) Plan() Plan { return Plan{} }

// Resize shares the places anew, all at once, and returns the new revision, which is one more than that of p. What runs
// goes on: where fewer places are left, the number in flight shrinks as functions return, and until then nobody is
// admitted in place of them. The error is a [*StaleError] if p was made from another revision than the present one, or an
// [*InvalidError]; nothing has changed then. It does not block.
func (s *Set) Resize(p Plan) (revision uint64, err error) { return 0, errNotBuilt }

// Apply makes d.TargetConcurrency the bound of the sum, as far as it is below Total, unless d.Seq is less than that of the
// decision applied last. First lending stops, then the places that nobody is guaranteed go, then guarantees shrink, those
// of the lowest Criticality first. It is what warden.Config.Also asks for. It does not block.
func (s *Set) Apply(d decision.ControlDecision) {}

// Snapshot is the state of the set. It may wait for mutexes that are held for microseconds, longer with many tenants; it
// allocates.
func (s *Set) Snapshot() Snapshot { return Snapshot{} }

// Recent are the explanations of the last calls that were refused or had to wait, of all compartments, the oldest first.
// Their Limiter is the name of the compartment; their Task.Name the key of the tenant, if there is one. It allocates.
func (s *Set) Recent() []limiter.Explanation { return nil }

// Name is the name of the compartment, "" of nil. A tenant has the name of its compartment.
func (c *Compartment) Name() string { return "" }

// Criticality is as configured.
func (c *Compartment) Criticality() limiter.Priority { return 0 }

// Timeout is as configured.
func (c *Compartment) Timeout() time.Duration { return 0 }

// Tenant is the compartment of the tenant with this key, made on demand: it has the settings of c, Tenants.Max places at
// most, and a queue of its own. Freed places of c go to the waiting tenant that has the fewest. The tenant of an unknown
// compartment is nil; that of one without tenants is c itself; and c itself, as if it were one tenant, stands for
// all keys beyond Tenants.Keys and for all that are longer than 256 bytes. It does not block. It allocates only when it makes
// a tenant.
func (c *Compartment) Tenant(key string) *Compartment { return nil }

// TenantKey is the key of a tenant; false: this is no tenant.
func (c *Compartment) TenantKey() (string, bool) { return "", false }

// Snapshot is the state of the compartment, or of the one that the tenant is of; zero of nil.
func (c *Compartment) Snapshot() CompartmentSnapshot { return CompartmentSnapshot{} }

// Stats are the counters of the limiter of this compartment, or of this one tenant.
func (c *Compartment) Stats() limiter.Stats { return limiter.Stats{} }

// Permit is one place held without a function to return: for adapters, such as an HTTP response whose body is still being
// read. It is free to copy and to release from any goroutine: all copies together release once. The zero Permit releases nothing.
type Permit struct{}

// Acquire waits for a place as [Do] does, and returns a permit and the context to go on with: it knows that the
// compartment has been entered, and ends when Timeout has passed, or the permit is released. Who gets a permit must
// release it. The errors are those of Do that mean that fn was not called. There is no fallback and nobody is told a
// *TimeoutError in phase Running: who holds the place is to watch the context.
func (c *Compartment) Acquire(ctx context.Context) (context.Context, Permit, error) {
	return ctx, Permit{}, errNotBuilt
}

// Release gives the place back and reports true to exactly one caller: the first. err is what came of the work, for the
// breaker and the statistics; nil: it succeeded.
func (p Permit) Release(err error) bool { return false }

// Do runs fn in c. It waits for a place, asks the breaker, and calls fn with a context that knows the compartment; without
// a Timeout on the caller's goroutine, with one on a goroutine of its own, where a panic or runtime.Goexit of fn reaches
// the caller as long as it waits.
//
// The error is fn's own; or a [*limiter.Rejection], a [*TimeoutError], a [*BreakerOpenError], a [*ReentryError],
// [ErrUnknownCompartment] if c is nil, the context's error if it ended while fn ran with a Timeout, or an [*InvalidError]
// if ctx or fn is nil. Without breaker and timeouts, one allocation if nobody waits.
func Do[T any](ctx context.Context, c *Compartment, fn func(context.Context) (T, error)) (T, error) {
	var zero T
	return zero, errNotBuilt
}

// DoOr is Do with a fallback, which is called on the caller's goroutine, outside the compartment, when the call was
// refused, timed out, found the breaker open, or fn returned an error. It is not called when the caller's context has ended, fn
// panicked, the compartment is unknown, is re-entered, or MaxFallback fallbacks run already: then the cause is returned. cause is the
// error that Do would have returned; what fallback returns is the answer.
func DoOr[T any](ctx context.Context, c *Compartment, fn func(context.Context) (T, error),
	fallback func(ctx context.Context, cause error) (T, error)) (T, error) {
	var zero T
	return zero, errNotBuilt
}
