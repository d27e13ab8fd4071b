// SPDX-License-Identifier: Apache-2.0

package dispatch_test

// This file is about readings: hot keys cost at most one more, and a record that none of them brings is not waited for; all in
// virtual time.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// counting is a Log that counts the records that it returned, and its calls.
type counting struct {
	*dispatch.Log
	fetches, records int
}

func (c *counting) Fetch(ctx context.Context, from int64, limit int) ([]dispatch.Record, error) {
	records, err := c.Log.Fetch(ctx, from, limit)
	if len(records) > 0 {
		c.fetches++
		c.records += len(records)
	}
	return records, err
}

// readings works a log of 20,000 records off, of which share are of hot keys, and returns how many logs were read in how many
// calls.
func readings(t *testing.T, share float64, hot int) (logs float64, fetches int) {
	const n = 20_000
	rnd := rand.New(rand.NewPCG(1, 2))
	log := &counting{Log: new(dispatch.Log)}
	longest := 0
	for i := range n {
		if rnd.Float64() < share {
			log.Append(fmt.Sprint("hot", rnd.IntN(hot)), nil)
			longest++
		} else {
			log.Append(fmt.Sprint("k", i%1000), nil)
		}
	}
	began := time.Now()
	r := run(t, dispatch.Partition{Ledger: memory(t, 0), Source: log}, dispatch.Config{Handler: taking(time.Millisecond)})
	time.Sleep(time.Minute)
	r.mustStop(t)
	equal(t, "succeeded", r.Stats().Succeeded, n)
	// The hot key's chain, or all the work over 16 places: what it takes at least.
	took, least := r.last.Sub(began), time.Duration(max(longest/hot, n/16))*time.Millisecond
	if took > least*23/20 {
		t.Errorf("D5: took %v, at least %v", took, least)
	}
	return float64(log.records) / n, log.fetches
}

// The table of a review: at most two readings of the log, whatever the hot key's share of it is, and also of several that are
// hot alike.
func TestHotKeysCostOneMoreReading(t *testing.T) {
	for _, hot := range []int{1, 4} {
		for _, share := range []float64{1. / 64, 1. / 16, 1. / 4, 1. / 2, 0.9} {
			bubble(t, fmt.Sprintf("%d hot with %.3f of the records", hot, share), func(t *testing.T) {
				logs, fetches := readings(t, share, hot)
				t.Logf("%.2f logs in %d fetches", logs, fetches)
				// keys that are hot alike drift apart by more than is kept, now and then
				if most := 2 + 0.1*float64(hot-1)/3; logs > most {
					t.Errorf("%.2f logs were read", logs)
				}
			})
		}
	}
}

// gappy is a Log that has lost a record.
type gappy struct {
	*dispatch.Log
	lost int64
}

func (g *gappy) Fetch(ctx context.Context, from int64, limit int) ([]dispatch.Record, error) {
	records, err := g.Log.Fetch(ctx, from, limit)
	left := slices.DeleteFunc(records, func(r dispatch.Record) bool { return r.Offset == g.lost })
	if err == nil && len(left) == 0 {
		return g.Fetch(ctx, g.lost+1, limit)
	}
	return left, err
}

// A key that waits for a record goes on when the reading has passed that and it was lost, whatever the key was when the
// partition was taken.
func TestLostRecordIsNotWaitedFor(t *testing.T) {
	for name, x := range map[string]struct {
		before, after []int64 // what others acquire
		next          string  // the domain of record 1
	}{
		"the next of the backlog":         {before: []int64{0, 3}, next: "b"},
		"that of another process's lease": {after: []int64{3}, next: "a"},
	} {
		bubble(t, name, func(t *testing.T) {
			ledger, log := memory(t, 3), &gappy{fill("a"), 3}
			hold := func(offsets []int64) {
				for _, offset := range offsets {
					if _, err := ledger.TryAcquire(t.Context(), "a", offset); err != nil {
						t.Fatal(err)
					}
				}
			}
			hold(x.before)
			r := run(t, dispatch.Partition{Ledger: ledger, Source: log}, dispatch.Config{})
			time.Sleep(time.Hour)
			hold(x.after)
			log.Append(x.next, nil)
			time.Sleep(time.Hour) // Grace is a minute
			for _, domain := range []string{"b", "a", "b"} {
				log.Append(domain, nil)
			}
			time.Sleep(time.Hour)
			r.mustStop(t)
			letters := r.letters()
			if floor, _ := log.Committed(t.Context()); floor != 5 {
				t.Errorf("D4: after a record that was lost, %d is committed, want 5", floor)
			}
			if len(letters) != 1 || letters[0].Record.Offset != 3 || !errors.Is(letters[0].Err, dispatch.ErrRecordGone) {
				t.Errorf("D4: dead letters %+v, want that of the record that was lost", letters)
			}
			if all := len(r.of("a")) + len(r.of("b")); all != 4 {
				t.Errorf("D4: %d records were handled, want the 4 that were not lost", all)
			}
		})
	}
}
