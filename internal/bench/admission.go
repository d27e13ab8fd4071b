// The rows of the admission gate.

package main

import (
	"errors"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/bulkhead"
	"golang.org/x/sync/semaphore"

	"github.com/stopbank/stopbank/admission"
)

const (
	places = 100  // every bound in these rows that is not said to be another
	asSync = 1.15 // the target beside x/sync: a mutex and a counter, as a gate is
)

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

func admissionRows() []row {
	var rows []row
	for _, parallel := range []bool{false, true} {
		rows = append(rows, doRow(parallel), acquireRow(parallel), refusalRow(parallel))
	}
	return rows
}

// doRow: a function that does nothing, admitted.
func doRow(parallel bool) row {
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
			{variant{"x/sync semaphore pair with a defer", func() func(int) {
				s := semaphore.NewWeighted(places)
				return func(n int) {
					for range n {
						_ = semaphoreDo(s, nop)
					}
				}
			}}, asSync},
			{variant{"failsafe-go With(bulkhead).Run", func() func(int) {
				e := failsafe.With[any](bulkhead.New[any](places))
				return func(n int) {
					for range n {
						_ = e.Run(nop)
					}
				}
			}}, 0},
		},
	}
}

// semaphoreDo gives back also when fn panics.
func semaphoreDo(s *semaphore.Weighted, fn func() error) error {
	if !s.TryAcquire(1) {
		return errFull
	}
	defer s.Release(1)
	return fn()
}

// acquireRow: a permit taken and given back.
func acquireRow(parallel bool) row {
	return row{"admission", "TryAcquire + Release", parallel, gateLoop(places), []peer{
		{semaphoreLoop(places), asSync},
		{channelLoop(places), 0},
		{bulkheadLoop(places), 0},
	}}
}

// refusalRow: a full gate says no.
func refusalRow(parallel bool) row {
	return row{"admission", "refusal", parallel,
		variant{"admission TryAcquire", func() func(int) {
			g := newGate(places)
			for range places {
				if _, err := g.TryAcquire(); err != nil {
					exit("%v", err)
				}
			}
			return func(n int) {
				for range n {
					_, _ = g.TryAcquire()
				}
			}
		}},
		[]peer{
			{variant{"x/sync semaphore TryAcquire", func() func(int) {
				s := semaphore.NewWeighted(places)
				_ = s.TryAcquire(places)
				return func(n int) {
					for range n {
						_ = s.TryAcquire(1)
					}
				}
			}}, asSync},
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

func gateLoop(limit int) variant {
	return variant{"admission TryAcquire + Release", func() func(int) {
		g := newGate(limit)
		return func(n int) {
			for range n {
				p, _ := g.TryAcquire()
				p.Release()
			}
		}
	}}
}

func semaphoreLoop(limit int64) variant {
	return variant{"x/sync semaphore TryAcquire + Release", func() func(int) {
		s := semaphore.NewWeighted(limit)
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
