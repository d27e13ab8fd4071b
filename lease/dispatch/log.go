// SPDX-License-Identifier: Apache-2.0

package dispatch

// This file is a Source in memory, for tests and for work that need not outlive its process.

import (
	"context"
	"sync"
)

// Log is a Source in memory, for tests and for work that need not outlive its process. The zero Log is empty and ready. It is
// safe for concurrent use. It keeps every record.
type Log struct {
	mu        sync.Mutex // guards all below; no foreign code runs under it
	records   []Record
	committed int64
	appended  chan struct{} // closed by the next Append; nil while no Fetch waits
}

var (
	_ Source = (*Log)(nil)
	_ Ended  = (*Log)(nil)
)

// Append adds a record and returns its offset, counted from 0.
func (l *Log) Append(domain string, payload []byte) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	offset := int64(len(l.records))
	l.records = append(l.records, Record{Domain: domain, Offset: offset, Payload: payload})
	if l.appended != nil {
		close(l.appended)
		l.appended = nil
	}
	return offset
}

// Committed implements Source.
func (l *Log) Committed(ctx context.Context) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.committed, ctx.Err()
}

// Fetch implements Source. It waits for an Append when from is the end.
func (l *Log) Fetch(ctx context.Context, from int64, limit int) ([]Record, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		l.mu.Lock()
		if first := max(from, 0); first < int64(len(l.records)) {
			rest := l.records[first:]
			records := append([]Record(nil), rest[:min(limit, len(rest))]...)
			l.mu.Unlock()
			return records, nil
		}
		if l.appended == nil {
			l.appended = make(chan struct{})
		}
		appended := l.appended
		l.mu.Unlock()
		select {
		case <-appended:
		case <-ctx.Done():
		}
	}
}

// Commit implements Source. A floor that goes down is ignored.
func (l *Log) Commit(ctx context.Context, floor int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	l.committed = max(l.committed, floor)
	return nil
}

// End implements Ended.
func (l *Log) End(ctx context.Context) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int64(len(l.records)), ctx.Err()
}
