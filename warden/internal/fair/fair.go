// SPDX-License-Identifier: Apache-2.0

// Package fair keeps the tenants among whom slots are shared, and says who is next: of those that wait the one with the fewest slots in
// use, then the one that has used the least slot time, both per weight. A limiter and a compartment have a [Table] each.
//
// The second is start-time fair queueing (Goyal, Vin, Cheng 1996; with several slots Jin, Chase, Kaur 2004). How long a call takes is known
// at its end, and charged then; that is why what is in flight comes first: without it, a call of a minute would look free for that minute.
// It needs no guess of how long a call will take, and where each tenant waits, each has as many slots.
//
// A Table has no lock: its owner's mutex guards it and its tenants.
package fair

import (
	"cmp"
	"hash/maphash"
	"math"
	"strings"
	"time"
)

// LongestKey is the longest key of a tenant of its own, in bytes: client input must not determine how much memory is kept.
const LongestKey = 256

// MostOwed is the most slot time that a tenant owes where nothing else bounds it: who had more, while others were idle, starts anew.
const MostOwed = time.Minute

const (
	mostShared = 64 // tenants for the keys without one of their own
	mostWeight = 1000
)

// Table are the tenants of one owner. A tenant is idle while it has no waiting or running call. Only idle tenants are evicted: when the table
// is full, the one that has been idle longest.
//
// now, the virtual time, is what the tenant served last had used by then. A tenant that was idle continues at now at least, so it has saved
// nothing; and what it has used beyond now it owes.
type Table[T any] struct {
	Most              int // tenants that have one of their own, 1 or more
	Active            int // of these, those that are not idle
	Weights           int // of all that are not idle
	Evicted, Overflow uint64

	byKey  map[string]*Tenant[T]
	oldest *Tenant[T] // of the idle tenants
	newest *Tenant[T]
	now    float64      // in seconds of slot time per weight. It never falls
	shared []*Tenant[T] // by hash of the key, created on demand
	seed   maphash.Seed
}

// Tenant is one tenant, or what several keys share.
type Tenant[T any] struct {
	Of       T      // its owner's
	Key      string // never changes
	Named    bool   // it has its key for itself
	Gone     bool   // evicted: another Tenant may have the key now
	Weight   int    // 1 or more
	InFlight int    // slots in use
	Waiting  int    // calls that wait for one

	used         float64 // slot time per weight, in seconds
	active       bool
	older, newer *Tenant[T]
}

// Weigh returns the weight of a key by a function of the user's, 1 to 1,000. It calls foreign code; contain recovers from its panics.
func Weigh(weight func(key string) int, key string, contain func()) (n int) {
	if weight == nil || len(key) > LongestKey {
		return 1
	}
	defer func() { n = min(max(n, 1), mostWeight) }()
	defer contain()
	return weight(key)
}

// All are the tenants, and what several keys share.
func (ts *Table[T]) All(yield func(*Tenant[T]) bool) {
	for _, t := range ts.byKey {
		if !yield(t) {
			return
		}
	}
	for _, t := range ts.shared {
		if t != nil && !yield(t) {
			return
		}
	}
}

// Len returns how many tenants have one of their own.
func (ts *Table[T]) Len() int { return len(ts.byKey) }

// Find returns the tenant of a key; nil: there is none, or it shares one.
func (ts *Table[T]) Find(key string) *Tenant[T] { return ts.byKey[key] }

// Tenant finds the tenant of a key or makes one, which is added to what it is made for. Keys that are too long, and new ones while the
// table is full and none of its tenants idle, share a few, by a hash that clients cannot predict: stochastic fairness queueing (McKenney
// 1990), so that a noisy key harms few others.
func (ts *Table[T]) Tenant(key string, weight int, added func(*Tenant[T])) *Tenant[T] {
	if t := ts.byKey[key]; t != nil {
		return t
	}
	if len(key) > LongestKey || len(ts.byKey) >= ts.Most && ts.oldest == nil {
		ts.Overflow++
		return ts.share(key, added)
	}
	for len(ts.byKey) >= ts.Most && ts.oldest != nil {
		ts.forget(ts.oldest)
	}
	t := &Tenant[T]{Key: strings.Clone(key), Named: true, Weight: weight, used: ts.now}
	if ts.byKey == nil {
		ts.byKey = map[string]*Tenant[T]{}
	}
	ts.byKey[t.Key] = t
	ts.rest(t)
	added(t)
	return t
}

func (ts *Table[T]) share(key string, added func(*Tenant[T])) *Tenant[T] {
	if ts.shared == nil {
		ts.shared, ts.seed = make([]*Tenant[T], min(ts.Most, mostShared)), maphash.MakeSeed()
	}
	t := &ts.shared[maphash.String(ts.seed, key)%uint64(len(ts.shared))]
	if *t == nil {
		*t = &Tenant[T]{Weight: 1, used: ts.now}
		added(*t)
	}
	return *t
}

// Present returns t, or the tenant that its key has now if it was evicted.
func (ts *Table[T]) Present(t *Tenant[T], added func(*Tenant[T])) *Tenant[T] {
	if t.Gone {
		return ts.Tenant(t.Key, t.Weight, added)
	}
	return t
}

// Reweigh changes the weight of t.
func (ts *Table[T]) Reweigh(t *Tenant[T], weight int) {
	if t.active {
		ts.Weights += weight - t.Weight
	}
	t.Weight = weight
}

// Serve says that t gets a slot.
func (ts *Table[T]) Serve(t *Tenant[T]) { ts.now = max(ts.now, t.used) }

// Charge adds the slot time of a call that has ended to what t has used, of which it owes most at most.
func (ts *Table[T]) Charge(t *Tenant[T], took, most time.Duration) {
	weight := float64(t.Weight)
	t.used = min(t.used+took.Seconds()/weight, ts.now+most.Seconds()/weight)
}

// Settle follows the calls of t: it becomes idle, or a tenant that has saved nothing.
func (ts *Table[T]) Settle(t *Tenant[T]) {
	active := t.InFlight > 0 || t.Waiting > 0
	if active == t.active {
		return
	}
	if t.active = active; active {
		t.used = max(t.used, ts.now)
		ts.Weights += t.Weight
	} else {
		ts.Weights -= t.Weight
	}
	switch {
	case !t.Named:
	case active:
		ts.Active++
		ts.unlink(t)
	default:
		ts.Active--
		ts.rest(t)
	}
}

// Rest says that t stands for those of whom nobody has said whose they are: so many are in flight, and what they use is not counted.
func (ts *Table[T]) Rest(t *Tenant[T], inFlight int) { t.InFlight, t.used = inFlight, ts.now }

// Compare says who of two tenants that wait is next: the one that is less. A tenant that has as many slots as one may have comes last; most 0:
// there is no such number.
func Compare[T any](a, b *Tenant[T], most int) int {
	return cmp.Or(cmp.Compare(a.load(most), b.load(most)), cmp.Compare(a.used, b.used))
}

// load returns the slots in use per weight, rounded down, so that a tenant of weight 3 may have three slots while one of weight 1 has none, if
// it has used less time per weight.
func (t *Tenant[T]) load(most int) int {
	if most > 0 && t.InFlight >= most {
		return math.MaxInt
	}
	return t.InFlight / t.Weight
}

// rest appends t to the idle tenants.
func (ts *Table[T]) rest(t *Tenant[T]) {
	t.older, t.newer = ts.newest, nil
	if ts.newest == nil {
		ts.oldest = t
	} else {
		ts.newest.newer = t
	}
	ts.newest = t
}

func (ts *Table[T]) unlink(t *Tenant[T]) {
	if t.older == nil {
		ts.oldest = t.newer
	} else {
		t.older.newer = t.newer
	}
	if t.newer == nil {
		ts.newest = t.older
	} else {
		t.newer.older = t.older
	}
	t.older, t.newer = nil, nil
}

// forget evicts an idle tenant.
func (ts *Table[T]) forget(t *Tenant[T]) {
	ts.unlink(t)
	delete(ts.byKey, t.Key)
	t.Gone = true
	ts.Evicted++
}
