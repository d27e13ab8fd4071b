// SPDX-License-Identifier: Apache-2.0

package dispatch

// This file notices a log that is not the one that was read before, and keeps its records from being taken for done (D13).

import (
	"context"
	"errors"
	"fmt"
)

// binder is a ledger that keeps which log it is of: Bind replaces was by is, if was is what it keeps, and returns what it keeps now.
type binder interface {
	Bind(ctx context.Context, was, is string) (string, error)
}

// identify compares the log with the one that the ledger is of, and with the one of the last call.
func (d *Dispatcher) identify(ctx context.Context) error {
	source, ok := d.partition.Source.(Identified)
	if !ok {
		return nil
	}
	is, err := source.Identity(ctx)
	if err != nil || is == "" || is == d.log {
		return err
	}
	of := d.log
	if ledger, ok := d.partition.Ledger.(binder); ok {
		if of, err = ledger.Bind(ctx, "", is); err != nil {
			return err
		}
	}
	if of != "" && of != is {
		return Rewound(d.partition.Name, fmt.Errorf("the position and the ledger are of the log %q, and this is %q: "+
			"if it has the same records at the same offsets, let leasectl adopt it; else begin a new ledger", of, is))
	}
	d.log = is
	return nil
}

// askLog asks which log it is and where it ends, and notes whether it is rewound.
func (d *Dispatcher) askLog(ctx context.Context) {
	if err := d.identify(ctx); err != nil {
		d.noteRewound(err)
		return
	}
	source, ok := d.partition.Source.(Ended)
	if !ok {
		if d.tells() {
			d.clearRewound()
		}
		return
	}
	d.mu.Lock()
	read := d.position
	d.mu.Unlock()
	end, err := source.End(ctx)
	if err != nil {
		_ = d.endIfLost(err)
		d.noteRewound(err)
		return
	}
	d.mu.Lock()
	short, again := end < read, d.floors.short
	d.floors.end, d.floors.short = mark{true, end}, short
	d.mu.Unlock()
	switch {
	case !short:
		d.clearRewound()
	case again: // the first time the end may have been an old one
		d.noteRewound(Rewound(d.partition.Name, fmt.Errorf("the log ends at %d, and was read to %d: it was made anew, put back or "+
			"cut off, and what comes below would be taken for done. Put its records back, or begin a new position and ledger", end, read)))
	}
}

// noteRewound stops reading and committing if err is an ErrRewound.
func (d *Dispatcher) noteRewound(err error) {
	if !errors.Is(err, ErrRewound) {
		return
	}
	d.mu.Lock()
	first := d.rewound == nil
	d.rewound = err
	if d.cancelFetch != nil {
		d.cancelFetch()
	}
	e := d.stalledLocked("rewound")
	d.mu.Unlock()
	if first {
		d.observe(e)
	}
}

// clearRewound goes on where the log is the right one again.
func (d *Dispatcher) clearRewound() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.rewound != nil {
		d.rewound = nil
		d.signalRoom()
	}
}

// tells reports whether the Source tells when a log is right again without a Fetch.
func (d *Dispatcher) tells() bool {
	_, ended := d.partition.Source.(Ended)
	_, identified := d.partition.Source.(Identified)
	return ended || identified
}

// mayRead reports whether Fetch may be called: of a rewound log, if only that can tell that it is right again.
func (d *Dispatcher) mayRead() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rewound == nil || !d.tells()
}
