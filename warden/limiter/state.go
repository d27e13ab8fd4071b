// The state word: how many run, how many may, and whether anybody has to be asked before that changes.

package limiter

// From the low end: tasks that hold a place, the target, which ruling the target belongs to (modulo 2^16), two flags.
//
// As long as no flag is set, starting and ending a task are one compare-and-swap each. Whoever makes the first task
// wait sets the flag queued in the same step that finds no place free; from then on every change of the word is made
// under Limiter.mu, so nobody can end without seeing the waiter, and nobody can overtake it.
const (
	placeBits = 22
	maxPlaces = 1<<placeBits - 1

	targetShift = placeBits
	rulingShift = 2 * placeBits
	rulingMask  = 1<<16 - 1

	queued = 1 << 62 // somebody waits; changes under mu only
	closed = 1 << 63 // nothing starts any more; set once, under mu
)

func running(w uint64) int       { return int(w & maxPlaces) }
func target(w uint64) int        { return int(w >> targetShift & maxPlaces) }
func generation(w uint64) uint16 { return uint16(w >> rulingShift & rulingMask) }

// hasRoom is whether one more may run, as far as the target goes.
func hasRoom(w uint64) bool { return w&maxPlaces < w>>targetShift&maxPlaces }

// enter takes a place for a task that nobody waits before, under the ruling that the caller has read: one that has
// been replaced meanwhile grants nothing. The word returned is the one after.
func (l *Limiter) enter(r *ruling) (uint64, bool) {
	for {
		w := l.state.Load()
		if w&(queued|closed) != 0 || !hasRoom(w) || generation(w) != r.generation {
			return w, false
		}
		if l.state.CompareAndSwap(w, w+1) {
			return w + 1, true
		}
	}
}

// exit gives a place back and, if somebody waits, hands it on.
func (l *Limiter) exit() {
	for {
		w := l.state.Load()
		if w&queued != 0 {
			l.mu.Lock()
			l.leavePlace()
			l.serve()
			l.mu.Unlock()
			return
		}
		if l.state.CompareAndSwap(w, w-1) {
			return
		}
	}
}

// takePlace is enter under mu: what rules cannot change, and the flag queued does not stop it. Without a place, the word
// returned is the one that had none.
func (l *Limiter) takePlace() (uint64, bool) {
	for {
		w := l.state.Load()
		if w&closed != 0 || !hasRoom(w) {
			return w, false
		}
		if l.state.CompareAndSwap(w, w+1) {
			return w + 1, true
		}
	}
}

// leavePlace undoes takePlace or enter. The caller holds mu, and sees to the waiters.
func (l *Limiter) leavePlace() { l.state.Add(^uint64(0)) }

// rule puts another target and its ruling's number into the word. The caller holds mu.
func (l *Limiter) rule(target int, generation uint16) {
	const both = maxPlaces<<targetShift | rulingMask<<rulingShift
	next := uint64(min(target, maxPlaces))<<targetShift | uint64(generation)<<rulingShift
	for {
		w := l.state.Load()
		if l.state.CompareAndSwap(w, w&^uint64(both)|next) {
			return
		}
	}
}
