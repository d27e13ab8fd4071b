// SPDX-License-Identifier: Apache-2.0

// The records and the store in memory opened to their tests.

package durable

// Ledger is what New returns.
type Ledger = kept

// MemStore is what NewMemStore returns.
type MemStore = memStore

// Open is New.
func Open(cfg Config) (*Ledger, error) {
	l, err := New(cfg)
	if err != nil {
		return nil, err
	}
	return l.(*Ledger), nil
}

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
	return r.encode(name), nil
}

// Tamper puts state under name behind every Ledger's back, as a hand would; nil takes the record away.
func (m *memStore) Tamper(name string, state []byte) {
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
func (k *kept) Cached() (all, idle int) {
	k.engine.cache.mu.Lock()
	defer k.engine.cache.mu.Unlock()
	return len(k.engine.cache.entries), k.engine.cache.idle.Len()
}

// SetClock moves the clock of tokens, and SetWriters says how many numbers have been given.
func (k *kept) SetClock(now uint64) { k.engine.clock.Store(now) }

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
