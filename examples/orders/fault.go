// -fault: faults of one replica, to see the alert rules at work on a real pipeline.

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
)

// The faults, all of them of the first partition that the replica gets.
const (
	handlersHang    = "handlers=hang"    // they never return, whatever their context says
	orderPoison     = "order=poison"     // the handler of one order always fails
	lettersRejected = "letters=rejected" // the dead-letter queue accepts nothing
	partitionIdle   = "partition=idle"   // it is held, and nobody works on it
	leasesTaken     = "leases=taken"     // another program takes the leases of running handlers, which are slow
)

// faults are what -fault injects, and the partition that is ill.
type faults struct {
	given []string
	from  time.Time

	mu     sync.Mutex // guards what follows
	ill    dispatch.Partition
	poison int64 // number of the order; 0: none yet
}

func newFaults(list string, after time.Duration) (*faults, error) {
	f := &faults{from: time.Now().Add(after)}
	known := []string{handlersHang, orderPoison, lettersRejected, partitionIdle, leasesTaken}
	if list == "" {
		return f, nil
	}
	for name := range strings.SplitSeq(list, ",") {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("-fault is %q; allowed: a list of %q", name, known)
		}
		f.given = append(f.given, name)
	}
	return f, nil
}

// on reports whether a fault is injected.
func (f *faults) on(name string) bool {
	return slices.Contains(f.given, name) && time.Now().After(f.from)
}

// hold works on a partition until ctx ends, or does what the faults say.
func (f *faults) hold(ctx context.Context, p dispatch.Partition, work func(context.Context, dispatch.Partition)) {
	f.mu.Lock()
	if f.ill.Name == "" {
		f.ill = p
	}
	ill := f.ill.Name == p.Name
	f.mu.Unlock()
	working, stop := context.WithCancel(ctx)
	defer stop()
	if ill && slices.Contains(f.given, partitionIdle) {
		defer time.AfterFunc(time.Until(f.from), stop).Stop()
	}
	if ill && slices.Contains(f.given, leasesTaken) {
		go f.take(working, p.Ledger)
	}
	work(working, p)
	if ill && f.on(partitionIdle) {
		<-ctx.Done()
	}
}

// take takes each lease that somebody holds, once the fault is there.
func (f *faults) take(ctx context.Context, ledger lease.Ledger) {
	for ticks := time.NewTicker(500 * time.Millisecond); ; {
		select {
		case <-ticks.C:
		case <-ctx.Done():
			ticks.Stop()
			return
		}
		if !f.on(leasesTaken) {
			continue
		}
		for held, err := range ledger.Held(ctx) {
			if err == nil {
				_, _ = ledger.Reclaim(ctx, held.Domain, held.Token) // fails if it has just ended
			}
		}
	}
}

var errPoison = errors.New("the order has a product that does not exist")

// handle fails or hangs as the faults say.
func (f *faults) handle(job dispatch.Job, order int64) error {
	f.mu.Lock()
	ill := f.ill.Ledger == job.Ledger
	if ill && f.poison == 0 && f.on(orderPoison) {
		f.poison = order
	}
	poisoned := ill && f.poison == order
	f.mu.Unlock()
	switch {
	case ill && f.on(handlersHang):
		select {}
	case ill && f.on(leasesTaken):
		time.Sleep(2 * time.Second)
	case poisoned:
		return errPoison
	}
	return nil
}
