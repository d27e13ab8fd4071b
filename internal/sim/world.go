// SPDX-License-Identifier: Apache-2.0

// A world as plain data: kinds of work, a service, its load, and what disturbs both.

package sim

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"
)

// World is a service and its users. Times are in seconds, rates per second.
type World struct {
	Seed  uint64
	Name  string
	Kinds []Kind
	// Cores is the number of processors of a server, Places the number of calls that the dependency of all servers serves at a time;
	// 0: unlimited. More are the places of further dependencies. Behind is how many of the calls that have one of Places are served
	// at a time; 0: all.
	Cores, Places int
	More          []int
	Behind        int
	// Holders are requests that never end and come from From on, a hundred a second. They are not counted.
	Holders int
	From    float64
	Cut     bool // the run ends with the load, whatever is still inside
	// Peak is the highest rate of users, without retries and without Spells; Low is the rate between peaks.
	Peak, Low float64
	Shape     string // of the load: steady, step, pulse, sawtooth, waves
	// Length is how long users arrive. Those before Warm are not counted, nor those whose patience outlasts the load: they may be
	// answered in the calm after it.
	Warm, Length float64
	Spells       []Spell
	Heap         *Heap // nil: memory does not matter
	Retry        Retry
	Static       []int // the constant concurrency limits among which the oracle is the best; nil: seven around the right one

	// Servers is the number of servers in each hop; 0: one. Each hop but the last computes for its time in Front before it calls the
	// next one. With Propagate that call carries the user's deadline and priority; without, it has normal priority and the timeout
	// Inner.
	Servers   int
	Front     []float64
	Propagate bool
	Inner     float64
	Network   float64 // latency of a message between user and server, and between hops
	Entry     float64 // processor time of an attempt before its guard sees it; 0: arrival
}

// Kind is a kind of work.
type Kind struct {
	Of float64 // share of the users, relative to the other kinds'
	// Service is the mean execution time, Share the fraction of it that is computing; the rest is a call of the dependency.
	Service, Share float64
	Spread         string // of the execution time: exact, 20%, exponential, 1:40, pareto
	// Patience is the median time that a user waits, Vary the standard deviation of its logarithm.
	Patience, Vary float64
	Knows          string // what the server knows of Patience: told (a deadline), cancel, hidden
	// Critical and Normal are the fractions of users with these priorities; the others have background priority.
	Critical, Normal float64
	From, Until      float64 // users ask for it only then; both 0: always
	// Pool is the dependency that it calls: 0 the first, 1 the first of More; -1: one without a bound. A call takes Twice the
	// places.
	Pool  int
	Twice bool
	// Outlives: if the server knows that a user has left, it ends the execution while the dependency goes on with the call.
	Outlives bool
	Deaf     bool   // the dependency even begins the calls that wait for it when the user has left
	Outside  bool   // beside the guard, which does not see it; not counted
	Tenant   string // whose users ask for it; "": the guard is not told
	// Holds is the mean number of bytes that an execution holds from its start to its end; if it Varies, exponentially distributed.
	Holds  float64
	Varies bool
}

// Spell is a disturbance for a while. A zero field changes nothing.
type Spell struct {
	From, Until float64
	Rate        float64 // of users
	Slow        float64 // factor on the time of calls that start now
	Cores       int     // processors of each server
	Stolen      int     // processors that a neighbor uses, of which the server does not know
	Pause       bool    // no goroutine gets a processor; running ones continue
	Blind       bool    // no sample is taken
	Down        bool    // servers reject everything
}

// during returns the sum of all disturbances at a time, with all fields set but Rate.
func (w *World) during(at float64) Spell {
	now := Spell{Slow: 1, Cores: w.Cores}
	for _, s := range w.Spells {
		if at < s.From || at >= s.Until {
			continue
		}
		now.Rate = cmp.Or(s.Rate, now.Rate)
		now.Slow *= cmp.Or(s.Slow, 1)
		now.Cores = min(now.Cores, cmp.Or(s.Cores, now.Cores))
		now.Stolen = max(now.Stolen, s.Stolen)
		now.Pause, now.Blind, now.Down = now.Pause || s.Pause, now.Blind || s.Blind, now.Down || s.Down
	}
	return now
}

// rate is the arrival rate of users at a time.
func (w *World) rate(at float64) float64 {
	if r := w.during(at).Rate; r > 0 {
		return r
	}
	part := at / w.Length
	switch w.Shape {
	case "step":
		if part < 1./3 {
			return w.Low
		}
	case "pulse":
		if part < 1./4 || part >= 3./4 {
			return w.Low
		}
	case "waves":
		return w.Low + (w.Peak-w.Low)*(1-math.Cos(6*math.Pi*part))/2
	case "sawtooth":
		return w.Low + (w.Peak-w.Low)*(4*part-math.Floor(4*part))
	}
	return w.Peak
}

// outlast is how long before the end of the load a user of that patience must have come to count.
func (w *World) outlast(patience time.Duration) time.Duration {
	return time.Duration(max(1, w.Retry.Attempts)) * patience
}

// counts reports whether a user is counted in a steady world.
func (w *World) counts(u *user) bool {
	return u.at >= seconds(w.Warm) && u.at+w.outlast(u.patience) <= seconds(w.Length)
}

// sum integrates a function of time.
func sum(from, until float64, parts int, f func(at float64) float64) (n float64) {
	for i := range parts {
		n += f(from+(float64(i)+0.5)*(until-from)/float64(parts)) * (until - from) / float64(parts)
	}
	return n
}

// possible is how many of the users of a time the service can serve at most.
func (w *World) possible(from, until float64, parts int) float64 {
	return sum(from, until, parts, func(at float64) float64 { return min(w.rate(at), w.capacity(at)) })
}

// asked reports whether users ask for this kind at a time.
func (k *Kind) asked(at float64) bool { return k.Until == 0 || at >= k.From && at < k.Until }

// mean returns the mean execution time of the kinds of a time, and its parts: computing, and at each dependency, times the
// places.
func (w *World) mean(at float64) (service, computes float64, calls []float64) {
	var all float64
	calls = make([]float64, 1+len(w.More))
	for i := range w.Kinds {
		if k := &w.Kinds[i]; k.asked(at) {
			all += k.Of
			service += k.Of * k.Service
			computes += k.Of * k.Share * k.Service
			if k.Pool >= 0 {
				calls[k.Pool] += k.Of * (1 - k.Share) * k.Service * float64(k.takes())
			}
		}
	}
	for i := range calls {
		calls[i] /= all
	}
	return service / all, computes / all, calls
}

// takes is how many places a call takes.
func (k *Kind) takes() int { return 1 + one(k.Twice) }

// places are those of a dependency, as far as they are served.
func (w *World) places(i int) int {
	switch {
	case i > 0:
		return w.More[i-1]
	case w.Behind > 0 && w.Places > 0:
		return min(w.Places, w.Behind)
	}
	return w.Places
}

// service is the mean execution time at the start.
func (w *World) service() float64 {
	s, _, _ := w.mean(0)
	return s
}

// capacity is the rate of executions that the last hop can serve at a time.
func (w *World) capacity(at float64) float64 {
	now := w.during(at)
	_, computes, calls := w.mean(at)
	can := float64(max(1, w.Servers)*max(1, now.Cores-now.Stolen)) / (computes + (w.entry() + arrival).Seconds())
	for i, c := range calls {
		if n := w.places(i); n > 0 && c > 0 {
			can = min(can, float64(n)/(c*now.Slow))
		}
	}
	return can
}

func (w *World) entry() time.Duration { return cmp.Or(seconds(w.Entry), arrival) }

// Load is the peak load relative to the capacity at the start.
func (w *World) Load() float64 { return w.Peak / w.capacity(0) }

// dependent reports whether the dependency is the bottleneck.
func (w *World) dependent() bool {
	_, _, calls := w.mean(0)
	for i, c := range calls {
		if n := w.places(i); n > 0 && c > 0 && float64(n)/c <= w.capacity(0)*1.000001 {
			return true
		}
	}
	return false
}

// constant reports whether the work and the service never change; a pause is no change.
func (w *World) constant() bool {
	return !slices.ContainsFunc(w.Kinds, func(k Kind) bool { return k.Until > 0 }) &&
		!slices.ContainsFunc(w.Spells, func(s Spell) bool { return s.Slow+float64(s.Cores+s.Stolen) > 0 })
}

// typical is the shortest median execution time of a kind, so that it rules out nobody falsely; 0: it changes.
func (w *World) typical() time.Duration {
	if !w.constant() {
		return 0
	}
	shortest := math.Inf(1)
	for i := range w.Kinds {
		if w.Kinds[i].Of > 0 {
			shortest = min(shortest, w.Kinds[i].median())
		}
	}
	return seconds(shortest)
}

// needs is the typical time of every kind, whatever its name.
func (w *World) needs() map[string]time.Duration {
	needs := map[string]time.Duration{}
	for i := range w.Kinds {
		needs[strconv.Itoa(i)] = w.typical()
	}
	return needs
}

func (k *Kind) median() float64 {
	return k.Service * map[string]float64{"exact": 1, "20%": 0.98, "exponential": math.Ln2, "1:40": 1 / 4.9,
		"pareto": 0.567}[k.Spread]
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
