// SPDX-License-Identifier: Apache-2.0

// A Consumer that counts what it takes and handles.

package ownertest

import (
	"testing"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// Handles runs a Consumer until it has handled n records, and returns how often a partition was taken. It calls half when half of
// them are handled, and all when all are, before the Consumer ends.
func Handles(t *testing.T, member dispatch.Ownership, n int, half, all func()) int {
	t.Helper()
	x := follow(t, member, nil, func(cfg *dispatch.Config) { // with all defaults
		*cfg = dispatch.Config{DeadLetter: cfg.DeadLetter, Observer: cfg.Observer, Handler: cfg.Handler}
	})
	for _, at := range []struct {
		count int
		then  func()
	}{{n / 2, half}, {n, all}} {
		x.until("L20: the records are handled", func() bool { return len(x.over) >= at.count })
		at.then()
	}
	x.cancel()
	if err := x.ends(); err != nil {
		t.Error(err)
	}
	return x.events[string(dispatch.Taken)]
}
