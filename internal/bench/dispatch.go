// Benchmark rows of the dispatcher: its time, beside the least time in which the same handlers could have run.

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
)

const (
	// dispatchRecords is the number of records of a run.
	dispatchRecords = 10_000
	// dispatchRuns is small: a run over so many records is an average by itself.
	dispatchRuns = 3
)

// dispatchRows is the table of keys and workers. With few keys the longest key bounds the time, with many workers the handlers
// do.
func dispatchRows() []row {
	var rows []row
	for _, keys := range []int{10, 100, 1000} {
		for _, workers := range []int{8, 64} {
			rows = append(rows, dispatchRow(fmt.Sprintf("%d keys", keys), keys, 0, workers))
		}
	}
	for _, workers := range []int{8, 64} {
		rows = append(rows, dispatchRow("1000 keys, a tenth of the records of one", 1000, 0.1, workers))
	}
	return rows
}

// dispatchRow is one cell of the table. Its bound comes from the same run: handlers measure how long they really slept, and no
// schedule can be faster than their sum divided by the workers, or than the longest key.
func dispatchRow(title string, keys int, hot float64, workers int) row {
	r := row{layer: "lease/dispatch", title: fmt.Sprintf("dispatch: %d records of 0 to 5 ms, %s, %d workers", dispatchRecords, title, workers)}
	wholes[r.title] = func() []cell {
		took, bound, ratio := make([]float64, dispatchRuns), make([]float64, dispatchRuns), make([]float64, dispatchRuns)
		for i := range dispatchRuns {
			took[i], bound[i] = runDispatch(keys, hot, workers)
			ratio[i] = took[i] / bound[i]
		}
		slices.Sort(ratio)
		return []cell{
			{name: "dispatch.Dispatcher over lease.Memory", ns: summary(took).Center},
			{name: "max(measured work / workers, the longest key's)", ns: summary(bound).Center, ratio: ratio[dispatchRuns/2], low: ratio[0], high: ratio[dispatchRuns-1], most: 1.05},
		}
	}
	return r
}

// runDispatch processes the records and returns nanoseconds per record, from Run to the end of the last handler, and the bound.
func runDispatch(keys int, hot float64, workers int) (took, bound float64) {
	rnd := rand.New(rand.NewPCG(uint64(keys), uint64(workers)))
	log := new(dispatch.Log)
	sleeps, of := make([]time.Duration, dispatchRecords), make([]int, dispatchRecords)
	for i := range sleeps {
		sleeps[i] = time.Duration(rnd.Int64N(int64(5 * time.Millisecond)))
		if of[i] = rnd.IntN(keys); rnd.Float64() < hot {
			of[i] = 0
		}
		log.Append(fmt.Sprint("key-", of[i]), nil)
	}
	ledger, err := lease.NewMemory(lease.Config{MaxRetries: lease.DefaultRetries})
	if err != nil {
		exit("%v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	work := make([]atomic.Int64, keys)
	var done atomic.Int64
	var end time.Time // of the last handler; written before cancel
	d, err := dispatch.New(dispatch.Config{Ledger: ledger, Source: log, MaxInFlight: workers, DeadLetter: dispatch.Discard, Handler: func(_ context.Context, job dispatch.Job) error {
		began := time.Now()
		time.Sleep(sleeps[job.Record.Offset])
		work[of[job.Record.Offset]].Add(int64(time.Since(began)))
		if done.Add(1) == dispatchRecords {
			end = time.Now()
			cancel()
		}
		return nil
	}})
	if err != nil {
		exit("%v", err)
	}
	began := time.Now()
	if err := d.Run(ctx); err != nil {
		exit("%v", err)
	}
	if s := d.Stats(); s.Succeeded != dispatchRecords {
		exit("%d of %d records done", s.Succeeded, dispatchRecords)
	}
	var all, longest int64
	for i := range work {
		all += work[i].Load()
		longest = max(longest, work[i].Load())
	}
	return float64(end.Sub(began)) / dispatchRecords, max(float64(all)/float64(workers), float64(longest)) / dispatchRecords
}
