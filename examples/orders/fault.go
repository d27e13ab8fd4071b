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

// The faults, all but handlersFail and handlersPostpone of one partition that the replica has when they come.
const (
	handlersHang     = "handlers=hang"     // they never return, whatever their context says
	handlersFail     = "handlers=fail"     // each of the replica fails at once: what it calls refuses
	handlersPostpone = "handlers=postpone" // each of the replica asks to be called a minute later: a provider limits its rate
	orderPoison      = "order=poison"      // the handler of one order always fails
	lettersRejected  = "letters=rejected"  // one order is given up at once, and the dead-letter queue accepts nothing
	partitionIdle    = "partition=idle"    // it is held, and nobody works on it
	leasesTaken      = "leases=taken"      // another program takes the leases of running handlers, which are slow
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
	known := []string{handlersHang, handlersFail, handlersPostpone, orderPoison, lettersRejected, partitionIdle, leasesTaken}
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

// chosen reports whether a partition is the ill one: the first to ask once the faults are there.
func (f *faults) chosen(p dispatch.Partition) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ill.Name == "" {
		f.ill = p
		fmt.Println(illLine + p.Name)
	}
	return f.ill.Name == p.Name
}

// illLine begins the line with the name of the ill partition.
const illLine = "ill: "

// hold works on a partition until ctx ends, or does what the faults say.
func (f *faults) hold(ctx context.Context, p dispatch.Partition, work func(context.Context, dispatch.Partition)) {
	if len(f.given) == 0 {
		work(ctx, p)
		return
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	defer time.AfterFunc(time.Until(f.from), func() {
		if working.Err() != nil || !f.chosen(p) {
			return
		}
		if f.on(partitionIdle) {
			stop()
		}
		if f.on(leasesTaken) {
			f.take(working, p.Ledger)
		}
	}).Stop()
	work(working, p)
	if working.Err() != nil && f.on(partitionIdle) {
		<-ctx.Done()
	}
}

// take takes each lease that somebody holds, until ctx ends.
func (f *faults) take(ctx context.Context, ledger lease.Ledger) {
	ticks := time.NewTicker(500 * time.Millisecond)
	defer ticks.Stop()
	for ctx.Err() == nil {
		select {
		case <-ticks.C:
		case <-ctx.Done():
		}
		for held, err := range ledger.Held(ctx) {
			if err == nil {
				_, _ = ledger.Reclaim(ctx, held.Domain, held.Token) // fails if it has just ended
			}
		}
	}
}

var (
	errPoison  = errors.New("the order has a product that does not exist")
	errRefused = errors.New("the payment provider refuses the connection")
)

// handle fails or hangs as the faults say.
func (f *faults) handle(job dispatch.Job, order int64) error {
	f.mu.Lock()
	ill := f.ill.Name != "" && f.ill.Ledger == job.Ledger
	if ill && f.poison == 0 && (f.on(orderPoison) || f.on(lettersRejected)) {
		f.poison = order
	}
	poisoned := ill && f.poison == order
	f.mu.Unlock()
	switch {
	case f.on(handlersFail):
		return errRefused
	case f.on(handlersPostpone):
		return dispatch.Later(time.Minute)
	case ill && f.on(handlersHang):
		select {}
	case ill && f.on(leasesTaken):
		time.Sleep(2 * time.Second)
	case poisoned && f.on(lettersRejected):
		return fmt.Errorf("%w: %w", dispatch.ErrPermanent, errPoison)
	case poisoned:
		return errPoison
	}
	return nil
}
