// A gate's capacity: credits that lie in one central word, or spread over slots near the cores that use them.

package admission

// A credit is the right to be in flight. There are exactly g.total of them, and each is, at every instant, in one place:
//
//   - in the central word, as a count;
//   - in a slot that is available;
//   - with an admission that has not been released;
//   - on its way from one of these to another, which counts as in flight.
//
// Taking a credit out of an available slot is one compare-and-swap on a word that other cores seldom touch, and giving
// it back is another. That is the whole of the fast path. The gate is then "spread": no single word knows how many
// credits are left, so nothing may be refused. To refuse, a caller first gathers every credit into the central word
// (under the mutex, so that none is half way); from then on that one word is the truth and a refusal is a load. When the
// gate has been calm for a while, credits are spread again. Linux' percpu_ref has the same two modes.

// The central word, from the top: three flags, how many admissions it has granted (modulo 2^29; Gate.spilled holds the
// rest), how many credits lie in it.
const (
	closed   = 1 << 63 // no admission ever again; set once, with all credits gathered
	draining = 1 << 62 // somebody waits for in-flight zero: releases go through the mutex
	spread   = 1 << 61 // slots may hold credits; changes only under the mutex

	credits   = 1<<32 - 1
	granted   = 1 << 32 // one central admission
	grantedIn = 1<<61 - 1<<32
)

// A slot's word: its generation above, its state in the two low bits. The generation grows by one whenever an admission
// through this slot is released, so (slot, word) names one admission for ever.
const (
	withdrawn = 0 // no credit here
	available = 1 // a credit, free to take
	held      = 2 // an admission; its credit comes back here
	recalled  = 3 // an admission; its credit goes to the central word
	state     = 3
	pooled    = 4 // set for life in slots that come from Gate.pool

	generation = 8

	// What a transition adds to the word.
	take        = held - available
	release     = generation + available - held
	releaseHome = generation + withdrawn - recalled
	identify    = recalled - withdrawn
)

type slot struct{ w word }

const (
	maxLines     = 16
	slotsPerLine = 8
	namesPerLine = 6
	// calmReleases is how many releases must find at most half the limit in flight before credits are spread again:
	// it bounds what changing modes can cost per operation.
	calmReleases = 64
)

// A line is two cache lines (adjacent ones are fetched together) that, with luck, one core has to itself.
type line struct {
	slots [slotsPerLine]slot // credits, and the admissions made with them
	// names never hold a credit: they give central admissions an identity, as long as there are enough of them here.
	// Their generations do not count admissions; the central word does.
	names     [namesPerLine]slot
	saturated word // refusals counted here, by reason
	closed    word
}

// line is one of the lines; any number names one.
func (g *Gate) line(n uint64) *line { return &g.lines[n&(maxLines-1)] }

// near is the line that the calling goroutine prefers: of those that hold credits while any does.
func (g *Gate) near() *line { return g.line(here() & (g.home.Load() - 1)) }

// take takes the slot's credit, if it has one: the word to release with, and whether.
func (s *slot) take() (uint64, bool) {
	w := s.w.Load()
	return w + take, w&state == available && s.w.CompareAndSwap(w, w+take)
}

// admit finds a credit for a caller whose first slot had none: in another slot of its line, or in the central word
// (the slot is nil then). Refused means that at one instant of this call no credit was anywhere, or the gate was closed.
func (g *Gate) admit() (s *slot, w uint64, refused *RejectedError) {
	for {
		c := g.central.Load()
		l := g.near()
		if c&spread != 0 {
			for i := range l.slots {
				if w, ok := l.slots[i].take(); ok {
					return &l.slots[i], w, nil
				}
			}
		}
		switch {
		case c&closed != 0:
			l.closed.Add(1)
			return nil, 0, &g.refusals[Closed]
		case c&credits != 0:
			if c&grantedIn == grantedIn {
				g.spill()
			} else if g.central.CompareAndSwap(c, c+granted-1) {
				return nil, 0, nil
			}
		case c&spread != 0:
			g.mu.Lock()
			g.gather()
			g.mu.Unlock()
		default: // as in full, but seen by this load
			l.saturated.Add(1)
			return nil, 0, &g.refusals[Saturated]
		}
	}
}

// full is whether the limit is reached and the gate open: all credits are central, and none is there (A5).
func (g *Gate) full() bool { return g.central.Load()&(spread|closed|credits) == 0 }

// name finds an identity for an admission whose credit came from the central word.
func (g *Gate) name() (*slot, uint64) {
	l := g.line(here())
	for i := range l.names {
		s := &l.names[i]
		if w := s.w.Load(); w&state == withdrawn && s.w.CompareAndSwap(w, w+identify) {
			return s, w + identify
		}
	}
	s := g.pool.Get().(*slot)
	w := s.w.Load() + identify
	s.w.Store(w)
	return s, w
}

// giveBack ends the admission that (s, w) names and reports whether it was this call that did (A2, A3). Without a slot there is
// nothing that could have ended it before.
func (g *Gate) giveBack(s *slot, w uint64) bool {
	if s == nil {
		g.putCentral()
		return true
	}
	for {
		switch now := s.w.Load(); {
		case now/generation != w/generation:
			return false
		case now&state == held:
			if s.w.CompareAndSwap(now, now+release) {
				return true
			}
		default:
			if s.w.CompareAndSwap(now, now+releaseHome) {
				g.putCentral()
				if w&pooled != 0 {
					g.pool.Put(s)
				}
				return true
			}
		}
	}
}

// putCentral puts one credit into the central word. The release that it belongs to takes effect here.
func (g *Gate) putCentral() {
	for {
		c := g.central.Load()
		if c&draining != 0 {
			g.putDraining()
			return
		}
		if g.central.CompareAndSwap(c, c+1) {
			if c&(spread|closed) == 0 && c&credits >= g.total/2 {
				g.calm()
			}
			return
		}
	}
}

// calm counts a release that found the gate at most half full, and spreads the credits after enough of them. It never
// waits: whoever holds the mutex is changing modes already.
func (g *Gate) calm() {
	if !g.mu.TryLock() {
		return
	}
	defer g.mu.Unlock()
	if g.calmed++; g.calmed >= calmReleases {
		g.spreadOut()
	}
}

// spreadOut moves credits from the central word into slots, perLine to a line. The caller holds g.mu. The flag goes up
// before the first credit moves: from then on an empty central word refuses nobody.
func (g *Gate) spreadOut() {
	if g.used == 0 || g.central.Load()&(spread|closed|draining) != 0 {
		return
	}
	g.central.Or(spread)
	for i := range g.used {
		for j := range g.perLine {
			if !g.endow(&g.lines[i].slots[j]) {
				break
			}
		}
	}
	g.home.Store(uint64(g.used))
}

// endow gives a credit to a withdrawn slot and lets a recalled one keep the credit that is out; false when the central
// word has none left.
func (g *Gate) endow(s *slot) bool {
	w := s.w.Load()
	if w&state == recalled && s.w.CompareAndSwap(w, w+held-recalled) {
		return true
	}
	for {
		c := g.central.Load()
		if c&credits == 0 {
			return false
		}
		if g.central.CompareAndSwap(c, c-1) {
			break
		}
	}
	// Only the holder of g.mu touches a withdrawn slot that may hold credits.
	s.w.Store(s.w.Load() + available - withdrawn)
	return true
}

// gather brings every credit that lies in a slot into the central word and recalls those that are out. The caller holds
// g.mu (A5, A1). No slot becomes available once it was visited, and the flag falls in the same step that adds the credits: whoever
// reads the central word without the flag sees all of them.
func (g *Gate) gather() {
	g.calmed = 0
	if g.central.Load()&spread == 0 {
		return
	}
	g.home.Store(0)
	var found uint64
	for i := range g.used {
		for j := range g.perLine {
			if g.lines[i].slots[j].recall() {
				found++
			}
		}
	}
	g.central.Add(found - spread)
}

// recall reports whether it took a credit out of the slot; one that is in flight is told to go to the central word.
func (s *slot) recall() bool {
	for {
		w := s.w.Load()
		switch w & state {
		case available:
			if s.w.CompareAndSwap(w, w+withdrawn-available) {
				return true
			}
		case held:
			if s.w.CompareAndSwap(w, w+recalled-held) {
				return false
			}
		default:
			return false
		}
	}
}

// spill makes room in the central word's count of admissions.
func (g *Gate) spill() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		c := g.central.Load()
		if g.central.CompareAndSwap(c, c&^grantedIn) {
			g.spilled += c & grantedIn / granted
			return
		}
	}
}
