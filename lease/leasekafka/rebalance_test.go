package leasekafka_test

// This file moves partitions between members that work.

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// check compares what was done with what was produced.
func (k *kafka) check(t *testing.T, g *register, records int, partitions int32) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.effects != records {
		t.Errorf("%d effects of %d records", g.effects, records)
	}
	for key, done := range g.done {
		if !slices.IsSorted(done) {
			t.Errorf("key %s out of order: %v", key, done)
		}
	}
	ends := make([]int64, partitions)
	for p := range ends {
		ends[p] = int64(records) / int64(partitions)
	}
	if got := k.committed(t, partitions); !slices.Equal(got, ends) {
		t.Errorf("committed %v, the logs end at %v", got, ends)
	}
}

// A member joins at a third, another leaves at two thirds: every record is done once, those of a key in order, and the group's offsets end
// where the logs do.
func TestRebalance(t *testing.T) {
	const records, partitions = 10_000, 4
	k := start(t, partitions)
	k.produce(t, of(records, 1000, partitions)...)
	g := newRegister()
	var byA, byB atomic.Int64
	work := func(by *atomic.Int64) dispatch.Config {
		return dispatch.Config{
			MaxInFlight: 64,
			Handler: func(_ context.Context, job dispatch.Job) error {
				g.write(job, time.Duration(job.Record.Offset%30)*time.Millisecond)
				by.Add(1)
				return nil
			},
		}
	}
	a := run(t, k.config(), work(&byA))
	until(t, "a third", func() bool { return g.count() >= records/3 })
	b := run(t, k.config(), work(&byB))
	until(t, "two thirds, and work of both", func() bool { return g.count() >= 2*records/3 && byB.Load() > 0 })
	before := g.count()
	a.stop(t)
	if before == records {
		t.Error("nothing was left to do when a member left")
	}
	until(t, "all of them", func() bool { return g.count() >= records })
	b.stop(t)
	k.check(t, g, records, partitions)
	t.Logf("%d and %d records, %d handler runs, %d refused by the register, %d seeks", byA.Load(), byB.Load(), g.runs, g.refused, a.group.Seeks()+b.group.Seeks())
	if g.runs != records {
		t.Errorf("%d handler runs: a record was done twice", g.runs)
	}
	if seeks := a.group.Seeks() + b.group.Seeks(); seeks != 0 {
		t.Errorf("%d seeks", seeks)
	}
}
