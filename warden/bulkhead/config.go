// SPDX-License-Identifier: Apache-2.0

// The configuration of a set and of its compartments.

package bulkhead

import (
	"fmt"
	"reflect"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

// Config describes a Set.
type Config struct {
	// Total is the maximum number of functions running at once over all compartments, 1 to 1,000,000.
	Total int
	// Compartments has at least one element. The sum of their Guaranteed is at most Total.
	Compartments []CompartmentConfig
	// Observer, if not nil, receives every event.
	Observer Observer
}

// CompartmentConfig describes one compartment: its Name and its slots, Guaranteed, Max or both. The other fields may be zero.
// [Set.Resize] changes the fields that [Share] has as well.
type CompartmentConfig struct {
	// Name is unique in the set and not empty.
	Name string
	// Guaranteed is the number of slots that belong to this compartment, 0 to Total. A decision below Total lowers it, see
	// [Set.Apply].
	Guaranteed int
	// Lendable is the number of guaranteed slots that others may use while idle, 0 to Guaranteed; the rest, Guaranteed -
	// Lendable, is reserved. A Lendable above 0 needs a MaxQueue: the owner of a lent slot has to wait for it.
	Lendable int
	// Max is the maximum number of slots, borrowed ones included, 1 to Total, and at least Guaranteed; 0: Guaranteed.
	Max int
	// Mode is the initial mode; the zero value is decision.Enforce. In decision.DryRun and decision.Bypass no call waits or is
	// rejected for lack of a slot (B12, B13); Timeout, Breaker and the reentry check still apply.
	Mode decision.Mode
	// MaxQueue is the maximum number of waiting calls, 0 or more; with tenants, per tenant, and 1 or more. 0: no queue.
	MaxQueue int
	// MaxWait bounds the queue wait, 10 µs or more; 0: the Timeout; if both are 0, only the call's context bounds it, and in a
	// standing queue the decision's MaxWait. A MaxWait above 0 needs a MaxQueue.
	MaxWait time.Duration
	// Timeout bounds a function's running time, 10 µs or more, counted from its start. When it passes, the function's context
	// ends and the caller gets a [*TimeoutError]; the slot stays taken until the function returns. 0: none.
	Timeout time.Duration
	// Criticality decides which of the waiting compartments below their guarantee, and then which of the others, gets a slot
	// first, and which keep one where a decision leaves fewer slots than compartments. Every value is valid. A compartment at
	// decision.Critical that rejected more than 5 % of the calls of the last minute is reported unhealthy.
	Criticality decision.Priority
	// Fallback, if not nil, answers calls of [Do] that fail, as if each were a [DoOr] with it: see [FallbackOf]. Calls of
	// [Compartment.Acquire], and so the requests of adapters, do not use it: for HTTP requests set wardenhttp.Config.Fallback.
	Fallback Fallback
	// MaxFallback is the maximum number of fallbacks running at once, 0 or more; 0: as Max at New.
	MaxFallback int
	// Breaker, if not nil, is asked before each function call; several compartments may share one. With a MaxQueue it must be
	// able to say that it is open: see [Breaker].
	Breaker Breaker
	// Tenants, if not zero, divides the compartment into tenants: see [Compartment.Tenant].
	Tenants TenantsConfig
}

// TenantsConfig describes the tenants of a compartment.
type TenantsConfig struct {
	// Max is the maximum number of slots of one tenant, 1 to 1,000,000; 0: the compartment has no tenants.
	Max int
	// Keys is the maximum number of tenants tracked at a time, 1 to 1,000,000; 0: 10,000. Keys beyond share as many
	// compartments, at most 64.
	Keys int
	// Weight, if not nil, returns the weight of a new tenant, 1 to 1,000: while both wait, a tenant of weight 3 gets three
	// times the slot time of one of weight 1, within Max. Less counts as 1, and so does a panic; more counts as 1,000. Weight
	// may be called concurrently, and more than once for a key.
	Weight func(key string) int
}

// Breaker is a circuit breaker. Allow returns an error while the breaker is open; otherwise the returned function is called
// exactly once, with the error of the call. TwoStepCircuitBreaker of github.com/sony/gobreaker/v2 implements it from v2.4.0 on; set
// [IsExcluded] as its Settings.IsExcluded.
//
// In a compartment with a MaxQueue a breaker must be able to say that it is open, by a method IsOpen() bool or State, and so
// must a type that wraps one; [New] rejects others. A call that finds no slot asks it before it queues: with a dependency that
// hangs and holds all slots, calls are then rejected immediately. IsOpen must not block; false is never wrong, because Allow is
// asked in any case. State is that of gobreaker: its result prints as "open" while the breaker is open. Allow cannot say it to
// a call without a slot: it may let that call through, as the one that probes a half-open breaker, and then it has to hear how
// a call ended that never ran.
type Breaker interface {
	Allow() (done func(error), err error)
}

// breakerOpen returns a function that reports whether b is open, nil if b cannot say. Reflection is needed because the result
// type of State is the breaker's own.
func breakerOpen(b Breaker) func() bool {
	switch b := b.(type) {
	case nil:
		return nil
	case interface{ IsOpen() bool }:
		return b.IsOpen
	}
	state := reflect.ValueOf(b).MethodByName("State")
	if !state.IsValid() || state.Type().NumIn() != 0 || state.Type().NumOut() != 1 {
		return nil
	}
	return func() bool { return fmt.Sprint(state.Call(nil)[0]) == "open" }
}
