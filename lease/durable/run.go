// SPDX-License-Identifier: Apache-2.0

// One operation carried out: step, swap, and what to do when the swap is rejected or its outcome is unknown.

package durable

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/stopbank/stopbank/lease/internal/step"
)

const (
	// maxTries bounds the replays of one call after conflicts. Each conflict is another writer's success, so that the
	// writers of a domain together never stand still.
	maxTries = 128
	// maxSends bounds how often one swap is sent, and how often its outcome is asked for. It is the caller's ctx that bounds
	// the time.
	maxSends = 8
	// reserve is more than a record grows by working off what waits, beyond doubling. That can as good as double it: varints
	// tell each offset by its distance to the one before, and where every second one succeeds and the others fail, two sorted
	// lists span the distances that the backlog spanned once. A lease, write ids, counters and the beginnings of lists are
	// below 400 bytes.
	reserve = 512
)

// errStale is a Load that knows less than was known before.
var errStale = errors.New("an older version than one that was there before: a lagging read, or a record deleted by hand")

// errForgot is a root that is older than a record which was written under it.
var errForgot = errors.New("the ledger's own record was deleted or put back: it does not know who wrote the record of")

// run carries op out with the turn of its domain and leaves what came of it in r.
func (l *engine) run(ctx context.Context, e *entry, op *step.Op, r *step.Result) error {
	rec, version := e.take()
	current := false   // rec was read, or confirmed, during this call
	foundFull := false // it was found full once
	for range maxTries {
		if rec == nil {
			var err error
			if rec, version, err = l.load(ctx, l.store, e); err != nil {
				return err
			}
			current = true
		}
		// After the load: where that finds the root gone, none is made in its place.
		writer, err := l.number(ctx)
		if err != nil {
			return err
		}
		waits := rec.state.Index() == step.Ready
		*r = step.Result{}
		if err := l.step(rec, writer, op, r); err != nil {
			return err
		}
		if !r.Changed {
			// By the state in memory nothing changes. Another writer may have moved on since, so the store has the word.
			if !current {
				latest, at, err := l.load(ctx, l.store, e)
				if err != nil {
					return err
				}
				current = true
				if at != version {
					rec, version = latest, at
					continue
				}
			}
			e.keep(rec, version)
			return nil
		}
		m := writeID{writer, l.writes.Add(1)}
		rec.stamp(m)
		data := rec.encode(e.name)
		// What comes new to the domain must leave room. The head that TryAcquire takes was there.
		arrives := r.Status == step.Enqueued || op.Kind == step.TryAcquire && !waits
		if limit := l.store.Limit(e.name); limit > 0 && arrives && len(data) > (limit-reserve)/2 {
			if foundFull {
				return full(op.Domain, op.Offset, len(data), limit)
			}
			// By what is known here, which another writer, or a floor that this Ledger has not heard of, may have made smaller.
			foundFull = true
			if _, _, err := l.loadRoot(ctx, l.store); err != nil {
				return err
			}
			rec = nil
			continue
		}
		latest, at, applied, err := l.swap(ctx, e, version, rec, data, m)
		if err != nil {
			return err
		}
		if applied {
			e.keep(latest, at)
			return nil
		}
		rec, version = latest, at
		current = rec != nil
	}
	return contention(op.Domain)
}

// step trims rec to the floor and then carries op out on it. What is trimmed goes into the store with the next change. Error:
// ErrExhausted.
func (l *engine) step(rec *record, writer uint64, op *step.Op, r *step.Result) (err error) {
	op.Floor = l.floor.Load() // decode has seen to it that rec's is no greater
	if op.Floor > rec.floor {
		rec.state.Step(&step.Op{Kind: step.Compact, Floor: op.Floor}, new(step.Result))
		rec.floor = op.Floor
	}
	if op.Kind.Grants() || op.Kind == step.Reclaim {
		if op.Fresh, err = l.token(writer, rec.last); err != nil {
			return err
		}
	}
	rec.state.Step(op, r)
	if r.Changed && r.Token == op.Fresh && op.Fresh != 0 {
		rec.last = op.Fresh
	}
	return nil
}

// token makes a token: a Lamport clock (Lamport, "Time, clocks, and the ordering of events in a distributed system", 1978)
// above, the writer's number below. No two writers share a number and no writer uses a reading twice, so tokens are unique in
// the ledger; the clock passes the domain's last token, whoever made that, so they rise in the domain. It costs no round
// trip.
func (l *engine) token(writer uint64, last uint64) (uint64, error) {
	for {
		now := l.clock.Load()
		next := max(now, last>>writerBits) + 1
		if next > maxClock {
			return 0, exhausted("tokens")
		}
		if l.clock.CompareAndSwap(now, next) {
			return next<<writerBits | writer, nil
		}
	}
}

// swap sends rec, stamped with m and encoded as data, in place of the version old. It reports what the store holds now
// and whether m was applied. If not, by a conflict, that is nil when it has to be read again.
func (l *engine) swap(ctx context.Context, e *entry, old uint64, rec *record, data []byte,
	m writeID) (*record, uint64, bool, error) {
	var lost error // the first send whose fate is unknown makes all that follows a search for it
	for range maxSends {
		version, err := l.store.Swap(ctx, e.name, old, data, rec.index())
		switch {
		case err == nil:
			return rec, version, true, nil
		case errors.Is(err, ErrConflict):
			if lost == nil {
				return nil, 0, false, nil
			}
			return l.search(ctx, e, old, m, rec.swaps-1, lost)
		case errors.Is(err, ErrNotApplied):
			if lost == nil {
				return nil, 0, false, storeError("Swap", e.name, err)
			}
		default:
			lost = err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, 0, false, ambiguous(e.name, lost)
}

// search looks for m, made on the record that counted before swaps, in what the store holds, after a lost reply and a
// conflict: m itself or another write is in the way. A Load that still shows old is not believed: what is in the way has not
// come into sight yet, and it may be m.
func (l *engine) search(ctx context.Context, e *entry, old uint64, m writeID, before uint64,
	lost error) (*record, uint64, bool, error) {
	e.seen = max(e.seen, old+1)
	rec, version, err := l.load(ctx, l.store, e)
	for tries := 1; err != nil && tries < maxSends && ctx.Err() == nil; tries++ {
		rec, version, err = l.load(ctx, l.store, e)
	}
	if err != nil {
		return nil, 0, false, ambiguous(e.name, err)
	}
	if slices.Contains(rec.writeIDs, m) {
		return rec, version, true, nil
	}
	if rec.coversWritesAfter(before) {
		return rec, version, false, nil
	}
	return nil, 0, false, ambiguous(e.name, fmt.Errorf("%d writes came after it: %w", rec.swaps-before, lost))
}

// load reads a domain. Of one that is not there it makes an empty record, after it has read the ledger's floor: that the
// domain is not there says nothing about the offsets below.
func (l *engine) load(ctx context.Context, from Store, e *entry) (*record, uint64, error) {
	data, version, err := l.read(ctx, from, e.name, e.seen)
	if err != nil {
		return nil, 0, err
	}
	e.seen = version
	if version == 0 {
		if _, _, err := l.loadRoot(ctx, from); err != nil {
			return nil, 0, err
		}
		return &record{floor: noFloor}, 0, nil
	}
	rec, err := l.decode(ctx, from, data, e.name, version)
	return rec, version, err
}

// decode reads the record of a domain, and the root if the record was written by a Ledger that this one has not heard of.
// Whoever wrote has got a number from the root before, so a root that has not issued it has been deleted or put back since,
// and would number two Ledgers alike. So would a root that issued this Ledger's number again: the record then has a write id
// of it that this Ledger never made.
//
// A record says two things that would spread to other domains: a floor, below which all counts as done, and a token, whose
// clock this Ledger's clock has to pass. So a floor is believed only if the root has it, where it was written first, and a
// clock only if it leaves time. A record that fails is another ledger's, or a root that is older than it was put back; it is
// refused, and nothing is learned from it.
func (l *engine) decode(ctx context.Context, from Store, data []byte, name string, version uint64) (*record, error) {
	rec, err := decode(data, name, version)
	if err != nil {
		return nil, err
	}
	if rec.writer() > l.writersIssued.Load() || rec.floor > l.floor.Load() {
		if _, _, err := l.loadRoot(ctx, from); err != nil {
			return nil, err
		}
	}
	own := l.writer.Load()
	unknownWriter := func(m writeID) bool { return own != 0 && m.writer == own && m.n > l.writes.Load() }
	if rec.writer() > l.writersIssued.Load() || slices.ContainsFunc(rec.writeIDs, unknownWriter) {
		return nil, storeError("Load", "", fmt.Errorf("%w %q", errForgot, name))
	}
	if floor := l.floor.Load(); rec.floor > floor {
		return nil, corrupt(name, version, fmt.Errorf("floor %d is above the ledger's, %d", rec.floor, floor))
	}
	if clock := rec.last >> writerBits; clock > lateClock && l.clock.Load() < lateClock {
		return nil, corrupt(name, version, fmt.Errorf("token %d is among the last", rec.last))
	}
	return rec, nil
}

// read loads the bytes under a name, and again while they are older than seen.
func (l *engine) read(ctx context.Context, from Store, name string, seen uint64) ([]byte, uint64, error) {
	for range maxSends {
		data, version, err := from.Load(ctx, name)
		if err != nil {
			return nil, 0, storeError("Load", name, err)
		}
		if version >= seen {
			return data, version, nil
		}
	}
	return nil, 0, storeError("Load", name, errStale)
}
