package durable

// This file opens the records to their tests.

import (
	"bytes"
	"hash/crc32"

	"github.com/stopbank/stopbank/lease"
)

// Redo reads the record of name, or the root, and writes it again.
func Redo(b []byte, name string) ([]byte, error) {
	if name == "" {
		r, err := decodeRoot(b, 1)
		return r.encode(), err
	}
	r, err := decode(b, name, 1)
	if err != nil {
		return nil, err
	}
	return r.encode(name)
}

// Tamper puts state under name behind every Ledger's back, as a hand would; nil takes the record away.
func (m *MemStore) Tamper(name string, state []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if state == nil {
		delete(m.records, name)
		return
	}
	m.records[name] = memRecord{state, m.records[name].version + 100, Neither}
}

// Seal puts the checksum behind b.
func Seal(b []byte, name string) []byte { return appendChecksum(b, name) }

// Cached is how many domains are in memory, and how many of them are idle.
func (l *Ledger) Cached() (all, idle int) {
	l.cache.mu.Lock()
	defer l.cache.mu.Unlock()
	return len(l.cache.entries), l.cache.idle.Len()
}

// SetClock moves the clock of tokens, and SetWriters says how many numbers have been given.
func (l *Ledger) SetClock(now uint64) { l.clock.Store(now) }

// RootOf is the ledger's own record with that many writers.
func RootOf(writers uint64, floor int64) []byte {
	r := root{writers: writers, floor: floor}
	return r.encode()
}

const (
	MaxWriter = maxWriter
	MaxClock  = maxClock
	LateClock = lateClock
)

// Newer is the record b of name as it would be if its state had been written in the next format, where it is in the newest. So a Ledger
// stands to it as one of the version before stands to b.
func Newer(b []byte, name string) ([]byte, error) {
	r, err := decode(b, name, 1)
	if err != nil {
		return nil, err
	}
	state, err := r.state.AppendBinary(nil)
	if err != nil || state[0] < lease.StateFormat {
		return b, err
	}
	body := bytes.Clone(b[:len(b)-crc32.Size])
	body[len(body)-len(state)]++
	return appendChecksum(body, name), nil
}
