// What a set is made of.

package bulkhead

import (
	"fmt"
	"reflect"
	"time"

	"github.com/stopbank/stopbank/warden/limiter"
)

// Config describes a Set.
type Config struct {
	// Total is how many functions may run at once over all compartments, 1 to 1,000,000.
	Total int
	// Compartments, at least one; their Guaranteed add up to Total at most.
	Compartments []CompartmentConfig
	// Observer, if not nil, is told what happens.
	Observer Observer
}

// CompartmentConfig describes one compartment. Each field but Name may be zero.
type CompartmentConfig struct {
	// Name is unique in the set and not empty.
	Name string
	// Guaranteed is how many places are this compartment's own, 0 or more.
	Guaranteed int
	// Lendable is how many of them others may use while they are idle, 0 to Guaranteed. The others, Guaranteed - Lendable,
	// are kept free at all times. More than 0 needs a MaxQueue: an owner whose place is lent has to wait for it.
	Lendable int
	// Max is how many places it may have, borrowed ones included, Guaranteed to Total; 0: Guaranteed.
	Max int
	// Mode is limiter.Enforce to begin with. In limiter.DryRun and limiter.Bypass no call waits, or is refused, for want of a place
	// (B12, B13); Timeout, breaker and the rule about re-entry go on as ever. [Set.Resize] changes it.
	Mode limiter.Mode
	// MaxQueue is how many calls may wait, 0 or more; with tenants, of each tenant. 0: nobody waits.
	MaxQueue int
	// MaxWait is how long a call may wait, 0 or more; 0: as Timeout; if both are 0, its context alone bounds the wait.
	MaxWait time.Duration
	// Timeout is how long a function may run until its caller is told a [*TimeoutError], 0 or more, counted from its
	// start. The function's context ends then; its place is given back when it returns. 0: none.
	Timeout time.Duration
	// Criticality decides who gets a place first among those that are below their guarantee, and whose guarantee shrinks
	// last. Every value is one. At limiter.Critical, refusing more than 5 % is a state of ill health.
	Criticality limiter.Priority
	// MaxFallback is how many fallbacks may run at once, 0 or more; 0: as many as Max.
	MaxFallback int
	// Breaker, if not nil, is asked before each function is called; several compartments may share one.
	Breaker Breaker
	// Tenants, if not zero, divides the compartment among tenants: see [Compartment.Tenant].
	Tenants TenantsConfig
}

// TenantsConfig describes the tenants of a compartment.
type TenantsConfig struct {
	// Max is how many places one tenant may have, 1 or more; 0: the compartment has no tenants.
	Max int
	// Keys is how many tenants are told apart at one time, 1 to 1,000,000; 0: 10,000. Those beyond share the compartment
	// itself, as if they were one tenant.
	Keys int
}

// Breaker is a circuit breaker. Allow answers an error while it is open; else the function it returns is called exactly
// once, with the error of what was then done. TwoStepCircuitBreaker of github.com/sony/gobreaker/v2 is one as it is, with
// [NoVerdict] for its Settings.IsExcluded.
//
// A breaker that also has a method State whose result prints as "open" while it is, as gobreaker's does, is asked that before a
// call waits for a place: so a dependency that is stuck, and holds all places, is refused at once.
type Breaker interface {
	Allow() (done func(error), err error)
}

// absent is whether b is a nil pointer in an interface that is not nil.
func absent(b Breaker) bool {
	v := reflect.ValueOf(b)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// saysOpen is how to ask b whether it is open, nil if it has no way to say so. It goes through reflection because the type of a
// State is the breaker's own.
func saysOpen(b Breaker) func() bool {
	if b == nil {
		return nil
	}
	state := reflect.ValueOf(b).MethodByName("State")
	if !state.IsValid() || state.Type().NumIn() != 0 || state.Type().NumOut() != 1 {
		return nil
	}
	return func() bool { return fmt.Sprint(state.Call(nil)[0]) == "open" }
}
