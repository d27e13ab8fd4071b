// SPDX-License-Identifier: Apache-2.0

package leasekafka_test

// Partitions move between working members.

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/leasekafka"
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

// A member joins at a third, another leaves at two thirds: every record is done once, those of a key in order, and the group's
// offsets end where the logs do.
func TestRebalance(t *testing.T) {
	virtually(t, func(t *testing.T) {
		const records, partitions = 10_000, 4
		k := start(t, partitions)
		all := of(records, 1000, partitions)
		k.produce(t, all[:records/2]...)
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
		until(t, "partitions of both", func() bool { // a broker takes its time, in which the first does all that there is
			ids, settled := k.members(t)
			return settled && len(ids) == 2
		})
		k.produce(t, all[records/2:]...)
		until(t, "two thirds, and work of both", func() bool { return g.count() >= 2*records/3 && byB.Load() > 0 })
		before := g.count()
		a.stop(t)
		if before == records {
			t.Error("nothing was left to do when a member left")
		}
		until(t, "all of them", func() bool { return g.count() >= records })
		b.stop(t)
		k.check(t, g, records, partitions)
		t.Logf("%d and %d records, %d handler runs, %d refused by the register, %d seeks",
			byA.Load(), byB.Load(), g.runs, g.refused, a.group.Seeks()+b.group.Seeks())
		if g.runs != records || g.overlaps != 0 {
			t.Errorf("%d handler runs, %d beside another of the same key", g.runs, g.overlaps)
		}
		if seeks := a.group.Seeks() + b.group.Seeks(); seeks != 0 {
			t.Errorf("%d seeks", seeks)
		}
	})
}

// A member that gave a partition away but is still in the group has a generation that the broker accepts. Its Source rejects the
// commit.
func TestZombieCommits(t *testing.T) {
	virtually(t, func(t *testing.T) {
		const records, partitions = 40, 2
		k := start(t, partitions)
		k.produce(t, of(records, 10, partitions)...)
		a := hold(t, k.config())
		first, second := <-a.taken, <-a.taken
		b := hold(t, k.config())
		var gone, kept held
		select { // one of the two goes to the other member
		case <-first.ctx.Done():
			gone, kept = first, second
		case <-second.ctx.Done():
			gone, kept = second, first
		}
		if cause := context.Cause(gone.ctx); !errors.Is(cause, context.Canceled) || errors.Is(cause, dispatch.ErrLost) {
			t.Errorf("the cause of a partition that is to be given back: %v", cause)
		}
		if err := gone.Source.Commit(t.Context(), 1); err != nil { // it is not given away yet
			t.Errorf("the last commit before: %v", err)
		}
		select {
		case <-b.taken:
			t.Error("a partition was given away while it was worked on")
		case <-time.After(200 * time.Millisecond):
		}
		close(gone.over)
		taken := <-b.taken
		if taken.Name != gone.Name {
			t.Errorf("%s was given, %s taken", gone.Name, taken.Name)
		}
		if floor, err := taken.Source.Committed(t.Context()); floor != 1 || err != nil {
			t.Errorf("it begins at %d, %v", floor, err)
		}
		if err := taken.Source.Commit(t.Context(), 15); err != nil {
			t.Error(err)
		}
		if err := gone.Source.Commit(t.Context(), 2); !errors.Is(err, dispatch.ErrLost) || !strings.Contains(err.Error(), gone.Name) ||
			!errors.Is(err, leasekafka.ErrRevoked) {
			t.Errorf("a late commit: %v", err)
		}
		if _, err := gone.Source.Fetch(t.Context(), 2, 1); !errors.Is(err, dispatch.ErrLost) {
			t.Errorf("a late fetch: %v", err)
		}
		if err := kept.Source.Commit(t.Context(), 3); err != nil {
			t.Errorf("the same member commits for what it kept: %v", err)
		}
		offsets := k.committed(t, partitions)
		slices.Sort(offsets)
		if !slices.Equal(offsets, []int64{3, 15}) {
			t.Errorf("committed: %v", offsets)
		}

		// Now it is forgotten: what it holds is lost at once, with its work still running.
		ids, _ := k.members(t)
		for _, id := range ids {
			noError(t, k.forget(t.Context(), id))
		}
		<-kept.ctx.Done()
		if cause := context.Cause(kept.ctx); !errors.Is(cause, dispatch.ErrLost) {
			t.Errorf("the cause of a partition that was lost: %v", cause)
		}
		if err := kept.Source.Commit(t.Context(), 4); !errors.Is(err, dispatch.ErrLost) {
			t.Errorf("a commit of a forgotten member: %v", err)
		}
		if _, err := kept.Source.Committed(t.Context()); !errors.Is(err, dispatch.ErrLost) {
			t.Errorf("Committed of a forgotten member: %v", err)
		}
		a.cancel()
		b.cancel()
		close(kept.over)
		close(taken.over)
		a.end(t)
		b.end(t)
	})
}

// A member freezes after its check that it holds the partition and before its commit reaches the broker. Later the commit
// arrives, after those of the new owner: it is rejected, and offset and metadata do not change.
func TestZombieFreezesBeforeItsCommitArrives(t *testing.T) {
	for name, cfg := range map[string]func(k *kafka) leasekafka.GroupConfig{
		"durable": (*kafka).config, "in memory": func(k *kafka) leasekafka.GroupConfig { return k.inMemory(3) },
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				k := start(t, 1)
				k.produce(t, of(40, 10, 1)...)
				line := k.line(t)
				own := cfg(k)
				own.Options = append(slices.Clip(own.Options), kgo.Dialer(line.DialContext))
				a := hold(t, own)
				old := <-a.taken
				noError(t, old.Source.Commit(t.Context(), 1))
				line.Cut()
				result := make(chan error, 1)
				go func() { result <- old.Source.Commit(context.Background(), 2) }() // its checks are behind it, and it was written
				b := hold(t, cfg(k))
				young := <-b.taken
				if floor, err := young.Source.Committed(t.Context()); floor != 1 || err != nil {
					t.Errorf("the new owner begins at %d, %v", floor, err)
				}
				if err := young.Source.Commit(t.Context(), 15); err != nil {
					t.Error(err)
				}
				_, before := k.committedMetadata(t)
				line.Mend()
				if err := <-result; !errors.Is(err, dispatch.ErrLost) {
					t.Errorf("the commit of the one that froze: %v", err)
				}
				<-old.ctx.Done()
				if floor, after := k.committedMetadata(t); floor != 15 || after != before {
					t.Errorf("committed: %d, %q, was 15, %q", floor, after, before)
				}
				a.cancel()
				b.cancel()
				close(old.over)
				close(young.over)
				a.end(t)
				b.end(t)
			})
		})
	}
}
