// The ledger: who holds which place, and whether there is one more for whoever asks.

package bulkhead

import (
	"sync"
	"sync/atomic"

	"github.com/stopbank/stopbank/warden/limiter"
)

// A ledger keeps two rules: stock = total - sum of max(held, kept) over all accounts, changed in the same step as its
// parts; and nobody takes a place beyond kept but from a stock above 0. So as long as stock is not negative, no more than
// total are held, and whoever holds fewer than kept can have one more.
type ledger struct {
	mu       sync.Mutex // guards all below, and what accounts and members say it does; no foreign code runs while it is held
	total    int
	stock    int        // negative after a shrink, until enough was given back
	short    int        // places by which accounts keep fewer than they should
	accounts []*account // the most critical first
	claims   uint64     // numbers them
	serving  bool       // somebody is in serve: who else wants a place that is not kept for him claims it
	turn     *member    // who is being served and has not taken a place yet
}

// account is what one compartment holds, with all its tenants.
type account struct {
	ledger      *ledger
	criticality limiter.Priority
	divided     bool // among tenants

	// word holds two numbers: how many places are held, in the low half, and kept, how many no other account can take.
	// Undivided accounts that hold fewer than they keep change it without the lock: that changes no max(held, kept).
	// All else is done under ledger.mu.
	word atomic.Uint64

	// Guarded by ledger.mu: what rules, and who was refused since he was last woken.
	guaranteed, lendable, max int
	waiting                   claimants
}

const one, keptShift, heldMask = 1, 32, 1<<32 - 1

func held(w uint64) int { return int(w & heldMask) }
func kept(w uint64) int { return int(w >> keptShift) }

// should is how many places the account ought to keep.
func (a *account) should() int { return a.guaranteed - a.lendable }

// member is one limiter that takes its places from an account.
type member struct {
	account *account
	limiter *limiter.Limiter

	// Guarded by ledger.mu. Without tenants, only the claim is used.
	max, held int
	claim     uint64 // when it was refused; 0: it has no claim
	index     int    // in account.waiting
}

// TryTake is asked by the member's limiter.
func (m *member) TryTake() bool {
	a := m.account
	if !a.divided {
		for w := a.word.Load(); held(w) < kept(w); w = a.word.Load() {
			if a.word.CompareAndSwap(w, w+one) {
				return true
			}
		}
	}
	return a.ledger.take(m)
}

// Give is told by the member's limiter. What an undivided account gives back of the places that it keeps, its own limiter
// will hand on.
func (m *member) Give() {
	a := m.account
	if !a.divided {
		for w := a.word.Load(); held(w) <= kept(w); w = a.word.Load() {
			if a.word.CompareAndSwap(w, w-one) {
				return
			}
		}
	}
	a.ledger.give(m)
}

// take grants m a place if there is one; else m has a claim afterwards.
func (l *ledger) take(m *member) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := m.account
	if l.serving && l.turn != m || a.divided && m.held >= m.max || !a.take() {
		l.enlist(m)
		return false
	}
	l.turn = nil // one place a turn: then it is again decided who is next
	m.held++
	a.waiting.fix(m) // a claim stays: more of m may wait than one
	return true
}

// take takes a place that is kept, or one of the stock. The caller holds ledger.mu.
func (a *account) take() bool {
	for {
		w := a.word.Load()
		fromStock := held(w) >= kept(w)
		if fromStock && !a.stocked(w) {
			return false
		}
		if a.word.CompareAndSwap(w, w+one) {
			if fromStock {
				a.ledger.stock--
			}
			return true
		}
	}
}

// stocked is whether the account may have one more of the stock's places. The caller holds ledger.mu.
func (a *account) stocked(w uint64) bool { return held(w) < a.max && a.ledger.stock > 0 }

// give takes a place back, and serves those who have claims before it returns.
func (l *ledger) give(m *member) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := m.account
	for {
		w := a.word.Load()
		if a.word.CompareAndSwap(w, w-one) {
			if held(w) > kept(w) {
				l.stock++
			}
			break
		}
	}
	m.held--
	a.waiting.fix(m)
	l.serve()
}

// share puts new shares in force: shares[i] is that of accounts[i].
func (l *ledger) share(total int, shares []Share) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, a := range l.accounts {
		a.guaranteed, a.lendable, a.max = shares[i].Guaranteed, shares[i].Lendable, shares[i].Max
		l.keep(a, func(_, _ int) int { return 0 }) // and so whatever comes back pays what is owed
	}
	l.stock += total - l.total
	l.total = total
	l.refill()
	l.serve()
}

// keep changes how many places the account keeps, and the stock with it. The caller holds mu.
func (l *ledger) keep(a *account, change func(held, kept int) int) {
	for {
		w := a.word.Load()
		h, k := held(w), kept(w)
		next := change(h, k)
		if a.word.CompareAndSwap(w, uint64(next)<<keptShift|uint64(h)) {
			l.stock += max(h, k) - max(h, next)
			return
		}
	}
}

// refill lets accounts keep what they should, the most critical first, as far as the stock goes. It goes before everybody
// else's wishes: isolation is what the others pay for. While more are held than there are places, nobody keeps any. The
// caller holds mu.
func (l *ledger) refill() {
	l.short = 0
	for _, a := range l.accounts {
		if l.stock >= 0 {
			l.keep(a, func(held, kept int) int { return min(a.should(), max(held, kept)+l.stock) })
		}
		l.short += a.should() - kept(a.word.Load())
	}
}
