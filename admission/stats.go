// What a gate knows about itself, exact at one instant although no single word holds it.

package admission

// Stats are a gate's counters.
type Stats struct {
	Limit    int // Config.Limit
	InFlight int // admitted and not yet released
	// Admitted counts admissions, Released those that ended: Admitted = Released + InFlight, always.
	Admitted, Released uint64
	// Rejected counts refusals, RejectedClosed those of them that a closed gate made. Once all calls have returned,
	// calls = Admitted + Rejected.
	Rejected, RejectedClosed uint64
	// ObserverPanics counts panics of the Observer that were contained.
	ObserverPanics uint64
}

// InFlight is how many admissions had not been released at one instant during the call: exact, also under contention,
// and never more than Limit. It allocates nothing and may wait for a mutex that is held for microseconds; see [Gate.Stats].
func (g *Gate) InFlight() int {
	if c := g.central.Load(); c&spread == 0 {
		return int(g.total - c&credits)
	}
	return g.Stats().InFlight
}

// Stats counts admissions, releases and what is in flight as of one instant during the call; refusals, which change no
// capacity, as it goes. It allocates nothing and may wait for a mutex that is held for microseconds. Called once a second
// it costs nothing to speak of; called for every operation it makes the gate slower.
func (g *Gate) Stats() Stats {
	s := Stats{Limit: g.limit, ObserverPanics: g.observerPanics.Load()}
	for i := range g.lines {
		s.RejectedClosed += g.lines[i].closed.Load()
		s.Rejected += g.lines[i].saturated.Load()
	}
	s.Rejected += s.RejectedClosed

	g.mu.Lock()
	defer g.mu.Unlock()
	// A8. Admissions only grow, in each word alone: two equal sums mean that no word granted any in between. Then free
	// credits only grew, one by one, so whatever sum of them was read, it was the right one at some instant. On a gate too
	// busy for that, all credits are gathered for a moment: the slots grant nothing then, and the central word is read
	// in one piece.
	_, before := g.count()
	free, admitted := g.count()
	for try := 1; admitted != before; try++ {
		if try == countTries {
			g.gather()
			free, admitted = g.count()
			g.spreadOut()
			break
		}
		before = admitted
		free, admitted = g.count()
	}
	s.InFlight = int(g.total - free)
	s.Admitted = admitted
	s.Released = admitted - uint64(s.InFlight)
	return s
}

// count adds up the free credits and all admissions there have been, word by word. The caller holds g.mu.
func (g *Gate) count() (free, admitted uint64) {
	for i := range g.used {
		for j := range g.perLine {
			w := g.lines[i].slots[j].w.Load()
			admitted += w / generation
			switch w & state {
			case available:
				free++
			case held, recalled:
				admitted++
			}
		}
	}
	c := g.central.Load()
	return free + c&credits, admitted + g.spilled + c&grantedIn/granted
}
