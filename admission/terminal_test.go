// SPDX-License-Identifier: Apache-2.0

// What a gate leaves as it is: the stack of a panic, and those that wait until it is empty.

package admission_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stopbank/stopbank/admission"
)

// TestPanicKeepsItsStack: the gate does not recover, so the trace shows where the caller's code panicked.
func TestPanicKeepsItsStack(t *testing.T) {
	g := mustNew(t, admission.Config{Limit: 1})
	for _, call := range []func(){
		func() { _ = g.Do(panicsHere) },
		func() { _ = g.Submit(func(func()) error { return panicsHere() }) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Fatal("A9: the panic did not come through")
				}
				buf := make([]byte, 1<<16)
				if s := string(buf[:runtime.Stack(buf, false)]); !strings.Contains(s, "panicsHere") {
					t.Fatalf("A9: the stack lost its origin:\n%s", s)
				}
			}()
			call()
		}()
	}
}

//go:noinline
func panicsHere() error { panic("here") }

// TestDrainOfAnOpenGate: a Drain that gives up leaves nothing behind, all that wait are let go together, and the gate
// may be used and drained again afterwards.
func TestDrainOfAnOpenGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustNew(t, admission.Config{Limit: 3})
		for range 2 {
			p, _ := g.TryAcquire()
			q, _ := g.TryAcquire()
			ended, cancel := context.WithCancel(t.Context())
			gaveUp, drained := make(chan error), make(chan error)
			go func() { gaveUp <- g.Drain(ended) }()
			for _, ctx := range []context.Context{nil, t.Context(), t.Context()} { // a nil ctx never ends
				go func() { drained <- g.Drain(ctx) }()
			}
			synctest.Wait()
			cancel()
			if err := <-gaveUp; !errors.Is(err, context.Canceled) {
				t.Fatalf("A10: a Drain whose ctx ended: %v", err)
			}
			p.Release()
			synctest.Wait()
			select {
			case err := <-drained:
				t.Fatalf("A10: Drain returned (%v) with one in flight", err)
			default:
			}
			q.Release()
			for range 3 {
				noError(t, <-drained)
			}
			noError(t, g.Do(func() error { return nil }))
		}
	})
}

// endsWith is a context that has ended, and runs a function as soon as somebody asks.
type endsWith struct {
	context.Context
	then func()
}

func (c endsWith) Done() <-chan struct{} { c.then(); return c.Context.Done() }

// TestDrainPrefersEmpty: when the gate has become empty and ctx has ended, Drain says that it is empty.
func TestDrainPrefersEmpty(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 {
		g := mustNew(t, admission.Config{Limit: 1})
		p, _ := g.TryAcquire()
		noError(t, g.Drain(endsWith{ended, func() { p.Release() }}))
	}
}
