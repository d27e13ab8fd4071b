// A permit is one admission, and ends it once.

package admission

// Permit is one admission. It is a small value, free to copy and to release from any goroutine: all copies together
// release once. The zero Permit releases nothing.
type Permit struct {
	g *Gate
	s *slot  // the slot that identifies this admission, in a line of g or from g's pool
	w uint64 // what the slot's word was made by this admission; no other admission ever makes it the same
}

// Release ends the admission. It reports true to exactly one caller per admission: the first. False means that the permit
// was released before, is being released by another goroutine, or is the zero Permit; nothing has changed then, also
// if the place has long been given to somebody else (A3). Release allocates nothing and waits for nothing but, while somebody drains or
// counts exactly, a mutex that is held for microseconds.
func (p Permit) Release() bool {
	if p.s == nil {
		return false
	}
	if p.g.observer != nil {
		return p.end(Unknown, nil)
	}
	return p.w&state == held && p.s.w.CompareAndSwap(p.w, p.w+release) || p.g.giveBack(p.s, p.w)
}

// end releases and, if it was this call that did, tells the observer how the admission ended.
func (p Permit) end(how Outcome, err error) bool {
	if !p.g.giveBack(p.s, p.w) {
		return false
	}
	if p.g.observer != nil {
		p.g.observe(Event{Kind: Released, Outcome: how, Err: err})
	}
	return true
}

// leave ends an admission that Do made.
func (g *Gate) leave(s *slot, w uint64) {
	if s == nil || !s.w.CompareAndSwap(w, w+release) {
		g.giveBack(s, w)
	}
}
