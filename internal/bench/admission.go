// SPDX-License-Identifier: Apache-2.0

// Benchmark rows of the admission gate.

package main

import (
	"errors"
	"runtime"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/bulkhead"
	"golang.org/x/sync/semaphore"

	"github.com/stopbank/stopbank/admission"
)

const (
	places = 100  // the limit in these rows unless stated otherwise
	asSync = 1.15 // target ratio to x/sync: both are a mutex and a counter
)

var (
	errFull = errors.New("full")
	nop     = func() error { return nil }
)

func newGate() *admission.Gate {
	return must(admission.New(admission.Config{Name: "bench", Limit: places}))
}

// sharings are the numbers of goroutines on one instance in the rows of cheap operations.
func sharings() []int { return []int{1, runtime.GOMAXPROCS(0)} }

func admissionRows() []row {
	var rows []row
	for _, goroutines := range sharings() {
		rows = append(rows,
			row{layer: "admission", title: "Do, no-op", goroutines: goroutines, variants: []variant{
				{"admission Do", 0, func() instance {
					g := newGate()
					return shared(func() { _ = g.Do(nop) })
				}},
				{"x/sync", asSync, func() instance {
					s := semaphore.NewWeighted(places)
					return shared(func() { _ = semaphoreDo(s, nop) })
				}},
				{"failsafe-go bulkhead", 0, func() instance {
					e := failsafe.With[any](bulkhead.New[any](places))
					return shared(func() { _ = e.Run(nop) })
				}},
			}},
			row{layer: "admission", title: "TryAcquire + Release", goroutines: goroutines, variants: []variant{
				{"admission TryAcquire + Release", 0, func() instance {
					g := newGate()
					return shared(func() {
						p, _ := g.TryAcquire()
						p.Release()
					})
				}},
				semaphorePair(asSync),
				{"failsafe-go bulkhead", 0, func() instance {
					b := bulkhead.New[any](places)
					return shared(func() {
						if b.TryAcquirePermit() {
							b.ReleasePermit()
						}
					})
				}},
			}},
			row{layer: "admission", title: "refusal", goroutines: goroutines, variants: []variant{
				{"admission TryAcquire", 0, func() instance {
					g := newGate()
					for range places {
						must(g.TryAcquire())
					}
					return shared(func() { _, _ = g.TryAcquire() })
				}},
				{"x/sync", asSync, func() instance {
					s := semaphore.NewWeighted(places)
					_ = s.TryAcquire(places)
					return shared(func() { _ = s.TryAcquire(1) })
				}},
				{"failsafe-go bulkhead", 0, func() instance {
					b := bulkhead.New[any](places)
					for range places {
						_ = b.TryAcquirePermit()
					}
					e := failsafe.With[any](b)
					return shared(func() { _ = e.Run(nop) })
				}},
			}},
		)
	}
	return rows
}

// semaphoreDo also releases when fn panics.
func semaphoreDo(s *semaphore.Weighted, fn func() error) error {
	if !s.TryAcquire(1) {
		return errFull
	}
	defer s.Release(1)
	return fn()
}

func semaphorePair(most float64) variant {
	return variant{"x/sync", most, func() instance {
		s := semaphore.NewWeighted(places)
		return shared(func() {
			if s.TryAcquire(1) {
				s.Release(1)
			}
		})
	}}
}
