// SPDX-License-Identifier: Apache-2.0

// Package witness watches a check of a test suite fail: that is how a suite is tested.
package witness

import (
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// tb is a testing.TB that remembers failures instead of passing them on.
type tb struct {
	testing.TB
	mu       sync.Mutex // guards all below
	said     []string
	cleanups []func()
}

// Watch runs a check to its end, cleanups included, and returns what it said, "" for a check that passes. A check that ends its
// goroutine is watched all the same.
func Watch(t testing.TB, check func(testing.TB)) string {
	w := &tb{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		check(w)
	}()
	<-done
	for _, f := range slices.Backward(w.cleanups) {
		f()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.said, "; ")
}

func (w *tb) note(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, text)
}

func (w *tb) Helper()                           {}
func (w *tb) Log(...any)                        {}
func (w *tb) Logf(string, ...any)               {}
func (w *tb) Fail()                             { w.note("failed") }
func (w *tb) FailNow()                          { w.note("failed"); runtime.Goexit() }
func (w *tb) Error(args ...any)                 { w.note(fmt.Sprint(args...)) }
func (w *tb) Errorf(format string, args ...any) { w.note(fmt.Sprintf(format, args...)) }
func (w *tb) Fatal(args ...any)                 { w.Error(args...); runtime.Goexit() }
func (w *tb) Fatalf(format string, args ...any) { w.Errorf(format, args...); runtime.Goexit() }
func (w *tb) Cleanup(f func())                  { w.cleanups = append(w.cleanups, f) }

// Failed reports whether the check has failed so far.
func (w *tb) Failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.said) > 0
}

// WalkLimit spares a test of the suite a long wait for a lock that never opens.
func (w *tb) WalkLimit() time.Duration { return time.Second }

// Quiet keeps rapid from writing a file for what is meant to fail and from shrinking it for long, until the test ends.
func Quiet(t testing.TB) {
	for name, value := range map[string]string{"rapid.nofailfile": "true", "rapid.shrinktime": "10ms", "rapid.checks": "300"} {
		f := flag.Lookup(name)
		before := f.Value.String()
		if err := f.Value.Set(value); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Value.Set(before) })
	}
}
