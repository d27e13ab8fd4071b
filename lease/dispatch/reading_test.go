package dispatch_test

// This file counts how often the log is read: hot keys cost at most one reading more; all in virtual time.

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// readings works a log of 20,000 records off, of which share are of hot keys, and returns how many logs were read in how many calls.
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
	began, c := time.Now(), newCalls()
	var last atomic.Int64 // nanoseconds after began; in virtual time all at one instant write the same
	r := run(t, dispatch.Config{Ledger: memory(t, 0), Source: log, Handler: func(_ context.Context, job dispatch.Job) error {
		defer c.enter(job)()
		time.Sleep(time.Millisecond)
		last.Store(int64(time.Since(began)))
		return nil
	}})
	time.Sleep(time.Minute)
	r.mustStop(t)
	c.check(t)
	equal(t, "succeeded", r.Stats().Succeeded, n)
	// The hot key's chain, or all the work over 16 places: what it takes at least.
	if took, least := time.Duration(last.Load()), time.Duration(max(longest/hot, n/16))*time.Millisecond; took > least*23/20 {
		t.Errorf("took %v, at least %v", took, least)
	}
	return float64(log.records) / n, log.fetches
}

// The table of a review: at most two readings of the log, whatever the hot key's share of it is, and also of several that are hot alike.
func TestHotKeysCostOneMoreReading(t *testing.T) {
	for _, hot := range []int{1, 4} {
		for _, share := range []float64{1. / 64, 1. / 16, 1. / 4, 1. / 2, 0.9} {
			t.Run(fmt.Sprintf("%d hot with %.3f of the records", hot, share), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					logs, fetches := readings(t, share, hot)
					t.Logf("%.2f logs in %d fetches", logs, fetches)
					if most := 2 + 0.1*float64(hot-1)/3; logs > most { // keys that are hot alike drift apart by more than is kept, now and then
						t.Errorf("%.2f logs were read", logs)
					}
				})
			})
		}
	}
}
