// SPDX-License-Identifier: Apache-2.0

// The ledger's own record: the floor, the numbers of those who write, and the log that the ledger is of.

package durable

import (
	"context"
	"errors"
	"strconv"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/internal/step"
)

// loadRoot reads the ledger's own record and learns its floor.
func (l *engine) loadRoot(ctx context.Context, from Store) (root, uint64, error) {
	data, version, err := l.read(ctx, from, "", l.seen.Load())
	if err != nil {
		return root{}, 0, err
	}
	if version == 0 {
		return root{floor: noFloor}, 0, nil
	}
	r, err := decodeRoot(data, version)
	if err != nil {
		return root{}, 0, err
	}
	l.learnRoot(r, version)
	return r, version, nil
}

// learnRoot learns from the root that the store holds under version.
func (l *engine) learnRoot(r root, version uint64) {
	atomicMax(&l.floor, r.floor)
	atomicMax(&l.seen, version)
	atomicMax(&l.writersIssued, r.writers)
}

// atomicMax raises a to n, if n is more.
func atomicMax[N int64 | uint64](a interface {
	Load() N
	CompareAndSwap(old, new N) bool
}, n N) {
	for {
		was := a.Load()
		if n <= was || a.CompareAndSwap(was, n) {
			return
		}
	}
}

// updateRoot changes the ledger's own record; change says whether there is anything to write. lost is the error of the last
// write whose reply was lost: change looks at the record again after it, so what it asks for must be harmless to have twice.
func (l *engine) updateRoot(ctx context.Context, change func(r *root) (bool, error)) (lost, err error) {
	losses := 0
	for range maxTries {
		r, version, err := l.loadRoot(ctx, l.store)
		if err != nil {
			return lost, err
		}
		write, err := change(&r)
		if err != nil || !write {
			return nil, err
		}
		version, err = l.store.Swap(ctx, "", version, r.encode(), Neither)
		switch {
		case err == nil:
			l.learnRoot(r, version)
			return nil, nil
		case errors.Is(err, ErrConflict):
			continue
		case !errors.Is(err, ErrNotApplied):
			if lost, losses = err, losses+1; losses < maxSends && ctx.Err() == nil {
				continue
			}
		}
		return lost, storeError("Swap", "", err)
	}
	return lost, contention("")
}

// number returns this Ledger's writer number, and has the root issue one on first use. A number from a write whose reply was lost
// is not used: only an answered write says that no other Ledger has it.
func (l *engine) number(ctx context.Context) (uint64, error) {
	if writer := l.writer.Load(); writer != 0 {
		return writer, nil
	}
	var writer uint64
	err := l.exclusive(ctx, "", func(*entry) error {
		if writer = l.writer.Load(); writer != 0 {
			return nil
		}
		_, err := l.updateRoot(ctx, func(r *root) (bool, error) {
			if r.writers == maxWriter {
				return false, exhausted("writers")
			}
			r.writers++
			writer = r.writers
			return true, nil
		})
		if err == nil {
			l.writer.Store(writer)
		}
		return err
	})
	return writer, err
}

// mostLog is the length of the longest identity of a log, in bytes.
const mostLog = 1024

// Bind has the ledger keep the log is, if it keeps was ("": none), and returns which log it keeps now. package dispatch binds a
// ledger to the first log that it is used with, and lets it be used with no other one. is and was "" change nothing. At most
// 1,024 bytes. It costs a Load, and a Swap if the log changes. Errors: *lease.InvalidError, ErrStore, ErrAmbiguous, ErrCorrupt.
func (k *kept) Bind(ctx context.Context, was, is string) (log string, err error) {
	switch {
	case ctx == nil:
		return "", &lease.InvalidError{Field: "ctx", Value: "nil", Allowed: "a context"}
	case len(is) > mostLog:
		return "", &lease.InvalidError{Field: "is", Value: strconv.Itoa(len(is)) + " bytes", Allowed: "at most 1024"}
	}
	var lost error
	err = k.engine.exclusive(ctx, "", func(*entry) (err error) {
		lost, err = k.engine.updateRoot(ctx, func(r *root) (bool, error) {
			change := r.log == was && was != is
			if log = r.log; change {
				log, r.log = is, is
			}
			return change, nil
		})
		return err
	})
	if err != nil && lost != nil {
		err = ambiguous("", lost)
	}
	if err != nil {
		return "", err
	}
	return log, nil
}

// Compact implements step.Engine.
func (l *engine) Compact(ctx context.Context, floor int64) error {
	sent := false
	var lost error
	err := l.exclusive(ctx, "", func(*entry) (err error) {
		lost, err = l.updateRoot(ctx, func(r *root) (bool, error) {
			if floor < r.floor && !sent { // beside a write of this call another one may have gone further
				return false, &step.FloorError{Floor: r.floor, Got: floor}
			}
			sent = floor > r.floor
			r.floor = max(r.floor, floor)
			return sent, nil
		})
		return err
	})
	if err != nil && lost != nil {
		err = ambiguous("", lost)
	}
	return err
}
