// The rows of the admission gate.

package main

import (
	"errors"
	"fmt"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/bulkhead"
	"golang.org/x/sync/semaphore"

	"github.com/stopbank/stopbank/admission"
)

const places = 100 // every bound in these rows that is not said to be another

var (
	errFull = errors.New("full")
	nop     = func() error { return nil } // a variable: no compiler may call it inline
)

func newGate(limit int) *admission.Gate {
	g, err := admission.New(admission.Config{Name: "bench", Limit: limit})
	if err != nil {
		exit("%v", err)
	}
	return g
}

// taken takes n places and keeps them.
func taken(g *admission.Gate, n int) *admission.Gate {
	for range n {
		if _, err := g.TryAcquire(); err != nil {
			exit("%v", err)
		}
	}
	return g
}

func admissionRows() []row {
	var rows []row
	for _, parallel := range []bool{false, true} {
		rows = append(rows, doRow(parallel), acquireRow(parallel), rejectRow(parallel))
	}
	return append(rows, busyRow(false, 10, 6), busyRow(true, 10, 6), busyRow(false, 31, 20), busyRow(false, 100, 70), singleRow(false), singleRow(true))
}

// doRow: a function that does nothing, admitted.
func doRow(parallel bool) row {
	toFloor := 1.25
	if parallel {
		toFloor = 1 // cheaper than one shared counter
	}
	return row{"admission", "Do, no-op", parallel,
		variant{"admission Do", func() func(int) {
			g := newGate(places)
			return func(n int) {
				for range n {
					_ = g.Do(nop)
				}
			}
		}},
		[]peer{
			{casLoop(places), toFloor},
			{variant{"bare CAS counter with defer", func() func(int) {
				c := &counter{limit: places}
				return func(n int) {
					for range n {
						_ = c.doDeferred(nop)
					}
				}
			}}, 0},
			{semaphoreLoop(places, 0), 0},
			{channelLoop(places), 0},
			{variant{"failsafe-go With(bulkhead).Run", func() func(int) {
				e := failsafe.With[any](bulkhead.New[any](places))
				return func(n int) {
					for range n {
						_ = e.Run(nop)
					}
				}
			}}, 1.0 / 20},
		},
	}
}

// acquireRow: a permit taken and given back.
func acquireRow(parallel bool) row {
	return row{"admission", "TryAcquire + Release", parallel, gateLoop(places, 0), []peer{
		{semaphoreLoop(places, 0), 1.1},
		{casLoop(places), 0},
		{channelLoop(places), 0},
		{bulkheadLoop(places), 0},
	}}
}

// busyRow: many places held, so that the slots near the caller have no credit left, or few. It has no target of its own:
// here a permit that cannot be released twice costs what it costs.
func busyRow(parallel bool, limit, held int) row {
	return row{"admission", fmt.Sprintf("TryAcquire + Release, %d of %d places held", held, limit), parallel, gateLoop(limit, held), []peer{
		{semaphoreLoop(int64(limit), int64(held)), 0},
		{casLoop(int64(limit)), 0},
	}}
}

// singleRow: a gate with one place, in parallel mostly refusing.
func singleRow(parallel bool) row {
	return row{"admission", "TryAcquire + Release, limit 1", parallel, gateLoop(1, 0), []peer{
		{semaphoreLoop(1, 0), 0},
		{casLoop(1), 0},
	}}
}

// rejectRow: a full gate says no.
func rejectRow(parallel bool) row {
	return row{"admission", "refusal", parallel,
		variant{"admission TryAcquire", func() func(int) {
			g := taken(newGate(places), places)
			return func(n int) {
				for range n {
					_, _ = g.TryAcquire()
				}
			}
		}},
		[]peer{
			{variant{"load of a full counter + sharded count", func() func(int) {
				c, refused := &counter{limit: places}, new(sharded)
				c.n.Store(places)
				return func(n int) {
					for range n {
						if c.n.Load() >= c.limit {
							refused.count()
						}
					}
				}
			}}, 1.5},
			{variant{"x/sync semaphore TryAcquire", func() func(int) {
				s := semaphore.NewWeighted(places)
				_ = s.TryAcquire(places)
				return func(n int) {
					for range n {
						_ = s.TryAcquire(1)
					}
				}
			}}, 1.0 / 5},
			{variant{"failsafe-go With(bulkhead).Run", func() func(int) {
				b := bulkhead.New[any](places)
				for range places {
					_ = b.TryAcquirePermit()
				}
				e := failsafe.With[any](b)
				return func(n int) {
					for range n {
						_ = e.Run(nop)
					}
				}
			}}, 0},
		},
	}
}

func gateLoop(limit, held int) variant {
	return variant{"admission TryAcquire + Release", func() func(int) {
		g := taken(newGate(limit), held)
		return func(n int) {
			for range n {
				p, _ := g.TryAcquire()
				p.Release()
			}
		}
	}}
}

func casLoop(limit int64) variant {
	return variant{"bare CAS counter", func() func(int) {
		c := &counter{limit: limit}
		return func(n int) {
			for range n {
				if c.acquire() {
					_ = nop()
					c.release()
				}
			}
		}
	}}
}

func semaphoreLoop(limit, held int64) variant {
	return variant{"x/sync semaphore TryAcquire + Release", func() func(int) {
		s := semaphore.NewWeighted(limit)
		_ = s.TryAcquire(held)
		return func(n int) {
			for range n {
				if s.TryAcquire(1) {
					s.Release(1)
				}
			}
		}
	}}
}

func channelLoop(limit int) variant {
	return variant{"buffered channel", func() func(int) {
		c := make(chan struct{}, limit)
		return func(n int) {
			for range n {
				select {
				case c <- struct{}{}:
					<-c
				default:
				}
			}
		}
	}}
}

func bulkheadLoop(limit uint) variant {
	return variant{"failsafe-go bulkhead permit", func() func(int) {
		b := bulkhead.New[any](limit)
		return func(n int) {
			for range n {
				if b.TryAcquirePermit() {
					b.ReleasePermit()
				}
			}
		}
	}}
}
