// SPDX-License-Identifier: Apache-2.0

// A Consumer that counts what it takes and handles.

package ownertest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// Handles runs a Consumer until it has handled n records, and returns how often a partition was taken. It calls half when half of
// them are handled, and all when all are, before the Consumer ends.
func Handles(t *testing.T, member dispatch.Ownership, n int, half, all func()) int32 {
	t.Helper()
	var seen sync.Map
	var handled, taken atomic.Int32
	c, err := dispatch.NewConsumer(member, dispatch.Config{
		DeadLetter: dispatch.Discard,
		Observer: watching(func(e dispatch.Event) {
			if e.Kind == dispatch.Taken {
				taken.Add(1)
			}
		}),
		Handler: func(_ context.Context, job dispatch.Job) error {
			if _, again := seen.LoadOrStore(fmt.Sprint(job.Partition, " ", job.Record.Offset), nil); !again {
				handled.Add(1)
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	for _, at := range []struct {
		count int
		then  func()
	}{{n / 2, half}, {n, all}} {
		if !poll(func() bool { return int(handled.Load()) >= at.count }) {
			t.Errorf("L20: %d of %d records have come", handled.Load(), n)
			break
		}
		at.then()
	}
	cancel()
	if err := within(t, "the consumer ends", ended); err != nil {
		t.Error(err)
	}
	return taken.Load()
}
