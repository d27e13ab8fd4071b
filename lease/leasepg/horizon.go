// SPDX-License-Identifier: Apache-2.0

package leasepg

// This file is the horizon of the outbox: up to which id all is decided. Ids are drawn in the order in which records are enqueued
// and seen in the order in which transactions commit, so a reader that takes whatever it sees passes over the id of a transaction
// that commits late.
//
// Who enqueues holds a lock on the table of records (ROW EXCLUSIVE, as every INSERT) from before it draws its first id until its
// outcome is visible. So a look reads the greatest id drawn, L, and after it who holds the lock, W. Each id up to L was drawn by
// somebody in W, or by a transaction whose outcome shows to every statement that begins now. When nobody of W holds the lock any
// more, L is safe. Other transactions, however long and whatever they write, hold nothing up.

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// The greatest id drawn, on which run of which server. A promoted or restarted server may draw ids again that its predecessor
	// drew for nobody, so what was learned of one run is not true of the next.
	askDrawn = `SELECT last_value - (NOT is_called)::int, extract(epoch FROM pg_postmaster_start_time())::text, pg_is_in_recovery()
		FROM stopbank.outbox_ids`
	// Virtual transactions, because a transaction gets its xid only after it has drawn an id. A prepared one goes by -1/xid.
	askWriters = `SELECT DISTINCT virtualtransaction FROM pg_locks WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' AND granted
		AND relation = 'stopbank.outbox_records'::regclass AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
	prepared = "-1/"
)

// maxMarks bounds the marks that wait. To drop one costs time and nothing else.
const maxMarks = 16

// mark is an id and those who may still commit one up to it.
type mark struct {
	id      int64
	writers []string
	made    time.Time
}

// seen is what the last look found out.
type seen struct {
	number uint64    // of the look; 0: there was none
	run    string    // of the server
	drawn  int64     // no greater id has been drawn by then
	safe   int64     // every record up to here is committed and visible, or never will be
	held   time.Time // since when the oldest mark waits; zero: none does
}

// horizon is shared by all partitions that a process reads.
type horizon struct {
	pool  *pgxpool.Pool
	turn  chan struct{} // full while somebody looks
	marks []mark        // with the turn only: oldest first

	mu    sync.Mutex // guards all below; held for the length of an assignment
	begun uint64     // looks
	last  seen
}

// now returns what the last look found out, and the number of the last that was begun.
func (h *horizon) now() (seen, uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last, h.begun
}

// look returns what a look found out whose number is above after: somebody else's, or its own. It blocks for two statements.
func (h *horizon) look(ctx context.Context, after uint64) (seen, error) {
	select {
	case h.turn <- struct{}{}:
	case <-ctx.Done():
		return seen{}, ctx.Err()
	}
	defer func() { <-h.turn }()
	h.mu.Lock()
	was := h.last
	if was.number > after {
		h.mu.Unlock()
		return was, nil
	}
	h.begun++
	number := h.begun
	h.mu.Unlock()

	is, err := h.ask(ctx, was)
	if err != nil {
		return seen{}, err
	}
	is.number = number
	h.mu.Lock()
	h.last = is
	h.mu.Unlock()
	return is, nil
}

// ask asks the server. The order of the two statements matters, and neither looks through a snapshot.
func (h *horizon) ask(ctx context.Context, was seen) (is seen, err error) {
	var standby bool
	var writers []string
	batch := new(pgx.Batch)
	batch.Queue(askDrawn).QueryRow(func(row pgx.Row) error { return row.Scan(&is.drawn, &is.run, &standby) })
	batch.Queue(askWriters).Query(func(rows pgx.Rows) (err error) {
		writers, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	if err := h.pool.SendBatch(ctx, batch).Close(); err != nil {
		return is, err
	}
	if standby { // it does not know the locks of its primary
		return is, settingError("pg_is_in_recovery()", "true", "false: a standby is behind")
	}
	is.safe = was.safe
	if is.run != was.run || is.drawn < was.drawn {
		is.safe, h.marks = 0, nil
	}
	h.advance(&is, writers, time.Now())
	return is, nil
}

// advance clears the marks that wait for nobody of writers, and makes a new one if need be.
func (h *horizon) advance(is *seen, writers []string, now time.Time) {
	// A prepared transaction had another name when it wrote, by which a mark may know it.
	hidden := slices.ContainsFunc(writers, func(w string) bool { return strings.HasPrefix(w, prepared) })
	for i := len(h.marks) - 1; i >= 0 && !hidden; i-- {
		m := &h.marks[i]
		m.writers = slices.DeleteFunc(m.writers, func(w string) bool { return !slices.Contains(writers, w) })
		if len(m.writers) == 0 {
			is.safe = m.id
			h.marks = slices.Delete(h.marks, 0, i+1)
			break
		}
	}
	switch {
	case len(writers) == 0:
		is.safe, h.marks = is.drawn, nil
	case is.drawn > is.safe && (len(h.marks) == 0 || h.marks[len(h.marks)-1].id < is.drawn):
		if len(h.marks) == maxMarks {
			h.marks = h.marks[:maxMarks-1]
		}
		h.marks = append(h.marks, mark{is.drawn, writers, now})
	}
	if len(h.marks) > 0 {
		is.held = h.marks[0].made
	}
}
