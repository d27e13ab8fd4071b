// SPDX-License-Identifier: Apache-2.0

package journal

// This file writes: what has changed, in one batch at a time, by a goroutine that ends when there is nothing left.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/internal/step"
)

// flushLocked has everything written now, and returns what it is written with.
func (e *engine) flushLocked() *batch {
	e.asked = true
	if !e.writing {
		e.writing = true
		go e.write()
	}
	return e.next
}

// soonLocked has everything written soon.
func (e *engine) soonLocked() {
	if e.timer == nil {
		e.timer = time.AfterFunc(flushAfter, func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.timer = nil
			if len(e.success) > 0 && e.lost == nil {
				e.flushLocked()
			}
		})
	}
}

// awaitLocked waits until b is written. Errors: ctx's, why the ledger is lost, durable.ErrStore.
func (e *engine) awaitLocked(ctx context.Context, b *batch) error {
	e.mu.Unlock()
	defer e.mu.Lock()
	select {
	case <-b.over:
		return b.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// write writes until nothing is asked for.
func (e *engine) write() {
	e.mu.Lock()
	defer e.mu.Unlock()
	const first, most = 5 * time.Millisecond, time.Second
	pause := first
	for {
		if e.lost != nil {
			e.next.err = e.lost
			close(e.next.over)
			e.next = newBatch()
		}
		if e.lost != nil || !e.asked {
			e.writing = false
			return
		}
		b := e.next
		e.next, e.asked = newBatch(), false
		anew := e.size > max(e.cfg.Growth, 4*e.base)
		f, successes, giveUps := e.gatherLocked(anew)
		sent := time.Now()
		e.mu.Unlock()
		size, err := e.send(f, anew)
		e.mu.Lock()
		b.err = e.endLocked(b, err)
		close(b.over)
		if err == nil {
			pause = first
			e.accepted, e.begun = sent, f.begun
			e.success, e.giveUp = unless(e.success, successes), unless(e.giveUp, giveUps)
			if e.size += size; anew {
				e.size, e.base = size, size
			}
			continue
		}
		if e.lost == nil {
			e.mu.Unlock()
			timer := time.NewTimer(pause)
			select {
			case <-timer.C:
			case <-e.ctx.Done():
			}
			timer.Stop()
			pause = min(2*pause, most)
			e.mu.Lock()
			e.asked = e.asked || e.ctx.Err() == nil
		}
	}
}

// unless returns the offsets that are not written.
func unless(offsets []int64, written map[int64]bool) []int64 {
	return slices.DeleteFunc(offsets, func(offset int64) bool { return written[offset] })
}

// endLocked takes down what has become of a batch: its domains are written, or will be with the next one. It returns what its
// waiters are told.
func (e *engine) endLocked(b *batch, err error) error {
	for domain, with := range e.dirty {
		switch {
		case with != b:
		case err == nil:
			delete(e.dirty, domain)
		default:
			e.dirty[domain] = e.next
		}
	}
	switch {
	case err == nil:
		return nil
	case e.lost != nil:
	case errors.Is(err, ErrClaimed):
		e.lost = e.lostFor(err)
	case e.ctx.Err() != nil:
		e.lost = e.lostFor(errClosed)
	default:
		return fmt.Errorf("%w: ledger %q: %w", durable.ErrStore, e.cfg.Name, err)
	}
	return e.lost
}

// gatherLocked returns what is to be written; anew: everything that the next owner has to know.
func (e *engine) gatherLocked(anew bool) (f facts, successes, giveUps map[int64]bool) {
	f = facts{begun: e.begin, floor: e.floor, done: slices.Clone(e.success), given: slices.Clone(e.giveUp), live: map[string][]byte{}}
	successes, giveUps = map[int64]bool{}, map[int64]bool{}
	for _, offset := range f.done {
		successes[offset] = true
	}
	for _, offset := range f.given {
		giveUps[offset] = true
	}
	byName := func(domain string) {
		if f.live[domain] = new(step.State).AppendLive(nil); e.live[domain] { // else what came since is not by name
			f.live[domain] = e.mem.AppendLive(nil, domain)
		}
	}
	for domain := range e.dirty {
		byName(domain)
	}
	if !anew {
		return f, successes, giveUps
	}
	for domain := range e.live {
		byName(domain)
	}
	f.done, f.given = append(f.done, e.restored...), append(f.given, e.restoredGiven...)
	e.mem.DoneOffsets(func(processed, failed []int64) {
		f.done, f.given = append(f.done, processed...), append(f.given, failed...)
	})
	below := func(offset int64) bool { return offset < f.floor }
	f.done, f.given = slices.DeleteFunc(f.done, below), slices.DeleteFunc(f.given, below)
	return f, successes, giveUps
}

// send appends f to the journal. If that says everything, what was there before is deleted.
func (e *engine) send(f facts, anew bool) (size int, err error) {
	var first uint64
	for i, entry := range f.entries(e.cfg.Name, e.cfg.Store.Limit()) {
		ctx, cancel := context.WithTimeout(e.ctx, sendLimit)
		number, err := e.cfg.Store.Append(ctx, entry)
		cancel()
		if err != nil {
			return 0, err
		}
		if size += len(entry); i == 0 {
			first = number
		}
	}
	if anew {
		ctx, cancel := context.WithTimeout(e.ctx, sendLimit)
		defer cancel()
		return size, e.cfg.Store.Trim(ctx, first)
	}
	return size, nil
}
