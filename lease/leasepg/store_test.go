// SPDX-License-Identifier: Apache-2.0

package leasepg_test

// This file is about the three calls of a store.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
)

func load(t testing.TB, s durable.Store, name string) ([]byte, uint64) {
	t.Helper()
	state, version, err := s.Load(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return state, version
}

func swap(t testing.TB, s durable.Store, name string, old uint64, state string, index durable.Index) uint64 {
	t.Helper()
	version, err := s.Swap(t.Context(), name, old, []byte(state), index)
	if err != nil || version <= old {
		t.Fatalf("Swap(%q, %d) = %d, %v", name, old, version, err)
	}
	return version
}

func list(t testing.TB, s durable.Store, index durable.Index) []string {
	t.Helper()
	var names []string
	for name, err := range s.List(t.Context(), index) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// inEveryMode runs a test in each of the ways in which pgx sends a statement: what stands between may ask for any. The pool has
// one connection, so that a call which kept it while it wanted another would wait for ever.
func inEveryMode(t *testing.T, test func(t *testing.T, s durable.Store)) {
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) { test(t, open(t, migrated(t, 1, "default_query_exec_mode="+mode))) })
	}
}

func TestSwapAndLoad(t *testing.T) { inEveryMode(t, swapAndLoad) }

func swapAndLoad(t *testing.T, s durable.Store) {
	if state, version := load(t, s, "A"); state != nil || version != 0 {
		t.Fatalf("%q, %d of a name never seen", state, version)
	}
	one := swap(t, s, "A", 0, "one", durable.Held)
	two := swap(t, s, "A", one, "", durable.Neither)
	if state, version := load(t, s, "A"); len(state) != 0 || version != two {
		t.Fatalf("%q, %d, want the empty state at %d", state, version, two)
	}
	for _, old := range []uint64{0, one, two - 1, two + 1, 1<<63 - 1, 1 << 63, 1<<64 - 1} {
		if _, err := s.Swap(t.Context(), "A", old, []byte("stale"), durable.Held); !errors.Is(err, durable.ErrConflict) ||
			errors.Is(err, durable.ErrNotApplied) {
			t.Errorf("Swap at %d: %v, want a conflict", old, err)
		}
	}
	if _, err := s.Swap(t.Context(), "B", 1, []byte("x"), durable.Held); !errors.Is(err, durable.ErrConflict) {
		t.Errorf("Swap of what is not there: %v", err)
	}
	if state, version := load(t, s, "A"); len(state) != 0 || version != two {
		t.Fatalf("%q, %d after conflicts", state, version)
	}
	if v, err := s.Swap(t.Context(), "nil", 0, nil, durable.Neither); err != nil || v == 0 {
		t.Fatalf("Swap of nil: %d, %v", v, err)
	}
	if _, version := load(t, s, "nil"); version == 0 {
		t.Fatal("nil is not there")
	}
}

// Names are bytes; the long ones, which no index takes, as well.
func TestNamesAreBytes(t *testing.T) { inEveryMode(t, namesAreBytes) }

func namesAreBytes(t *testing.T, s durable.Store) {
	long := strings.Repeat("n", 1024)
	hashed := string([]byte(long)) + strings.Repeat("\x00", 32)
	names := []string{
		"", "\x00", "a\x00", "a\x00b", "a", "A", "\xff", "\xff\xff", "'; DROP TABLE x; --", `\x41`, `\\`, "\u00e9", "e\u0301",
		long[:1023], long, long + "1", long + "2", hashed, strings.Repeat("\xff", 1024), strings.Repeat("\xff", 1025),
		strings.Repeat("z", 65535),
	}
	versions := map[string]uint64{}
	for i, name := range names {
		versions[name] = swap(t, s, name, 0, fmt.Sprint(i), durable.Ready)
	}
	for i, name := range names {
		if state, version := load(t, s, name); string(state) != fmt.Sprint(i) || version != versions[name] {
			t.Errorf("%.20q…: %q, %d", name, state, version)
		}
	}
	if got, want := list(t, s, durable.Ready), slices.Sorted(slices.Values(names)); !slices.Equal(got, want) {
		t.Errorf("%d names listed, want %d", len(got), len(want))
	}
	for _, name := range names {
		versions[name] = swap(t, s, name, versions[name], "more", durable.Held)
	}
	if got := list(t, s, durable.Ready); got != nil {
		t.Errorf("%d names listed, want none", len(got))
	}
	if got, want := list(t, s, durable.Held), slices.Sorted(slices.Values(names)); !slices.Equal(got, want) {
		t.Errorf("%d names listed, want %d", len(got), len(want))
	}

	over := strings.Repeat("z", 65536)
	if _, err := s.Swap(t.Context(), over, 0, nil, durable.Ready); !errors.Is(err, durable.ErrNotApplied) {
		t.Errorf("a name of 65,536 bytes: %v", err)
	}
	if _, _, err := s.Load(t.Context(), over); !errors.Is(err, lease.ErrInvalid) {
		t.Errorf("a name of 65,536 bytes: %v", err)
	}
}

// Of writers that know the same version one wins, whatever the default isolation of the database is.
func TestOneOfManyWins(t *testing.T) {
	for _, isolation := range []string{"read committed", "repeatable read", "serializable"} {
		t.Run(isolation, func(t *testing.T) {
			s := open(t, migrated(t, 8, "default_transaction_isolation="+isolation))
			version := uint64(0)
			for round := range 30 {
				var mu sync.Mutex // guards won
				var won []uint64
				var group sync.WaitGroup
				for writer := range 8 {
					group.Go(func() {
						v, err := s.Swap(context.Background(), "A", version, fmt.Appendf(nil, "%d by %d", round, writer), durable.Held)
						if err == nil {
							mu.Lock()
							won = append(won, v)
							mu.Unlock()
						} else if !errors.Is(err, durable.ErrConflict) {
							t.Errorf("neither won nor met a conflict: %v", err)
						}
					})
				}
				group.Wait()
				if len(won) == 0 && isolation == "serializable" {
					continue // there all of them may be refused
				}
				if len(won) != 1 || won[0] <= version {
					t.Fatalf("round %d: %d won after %d", round, won, version)
				}
				version = won[0]
			}
		})
	}
}

func TestListPages(t *testing.T) { inEveryMode(t, listPages) }

func listPages(t *testing.T, s durable.Store) {
	const many = 440 // of which 264 are held: more than a page
	versions := make([]uint64, many)
	var held, ready []string
	for i := range many {
		name := fmt.Sprintf("%03d", i)
		index := []durable.Index{durable.Held, durable.Ready, durable.Held, durable.Held, durable.Neither}[i%5]
		versions[i] = swap(t, s, name, 0, "", index)
		switch index {
		case durable.Held:
			held = append(held, name)
		case durable.Ready:
			ready = append(ready, name)
		}
	}
	if got := list(t, s, durable.Held); !slices.Equal(got, held) {
		t.Errorf("%d held, want %d", len(got), len(held))
	}
	if got := list(t, s, durable.Ready); !slices.Equal(got, ready) {
		t.Errorf("%d ready, want %d", len(got), len(ready))
	}
	seen := 0
	for name, err := range s.List(t.Context(), durable.Held) {
		if err != nil {
			t.Fatal(err)
		}
		_, version := load(t, s, name)
		swap(t, s, name, version, "", durable.Neither)
		seen++
	}
	if seen != len(held) || list(t, s, durable.Held) != nil {
		t.Errorf("a body that files what it sees away saw %d, want %d", seen, len(held))
	}
	for range s.List(t.Context(), durable.Ready) {
		break
	}
	load(t, s, "000")
}

// A version that a failover lost is not given out again: who still believes in it meets a conflict.
func TestLostVersionsDoNotReturn(t *testing.T) {
	pool := migrated(t, 2)
	s := open(t, pool)
	kept := swap(t, s, "A", 0, "kept", durable.Neither)
	for range 20 {
		lost := swap(t, s, "A", kept, "lost", durable.Held)
		must(pool.Exec(t.Context(), "UPDATE stopbank.lease_domains SET version = $1, state = 'kept' WHERE version = $2", int64(kept),
			int64(lost)))(t)
		now := swap(t, s, "A", kept, "another", durable.Held)
		if _, err := s.Swap(t.Context(), "A", lost, []byte("on somebody else's state"), durable.Neither); !errors.Is(err,
			durable.ErrConflict) {
			t.Fatalf("a swap at the lost version %d, now %d: %v", lost, now, err)
		}
		kept = now
	}
}

// A row that no program has written so is an error, and not a domain that is not there.
func TestARowOfVersionZeroIsAnError(t *testing.T) {
	pool := migrated(t, 2)
	s := open(t, pool)
	swap(t, s, "A", 0, "state", durable.Held)
	must(pool.Exec(t.Context(), "UPDATE stopbank.lease_domains SET version = 0"))(t)
	if state, version, err := s.Load(t.Context(), "A"); err == nil || state != nil || version != 0 ||
		!strings.Contains(err.Error(), "version 0") {
		t.Errorf("%q at %d, %v", state, version, err)
	}
}

// Swaps that are made side by side have their own outcomes: created, replaced, in conflict.
func TestSideBySide(t *testing.T) { inEveryMode(t, sideBySide) }

func sideBySide(t *testing.T, s durable.Store) {
	const names = 100
	var versions [names]uint64
	for round := range 4 {
		var group sync.WaitGroup
		for i := range names {
			group.Go(func() {
				name := fmt.Sprint("n", i)
				if i%10 == 0 {
					name = strings.Repeat(name, 700) // filed under its hash
				}
				old := versions[i]
				if stale := i%7 == round && round > 0; stale {
					if _, err := s.Swap(context.Background(), name, old+1, []byte("stale"), durable.Ready); kind(err) != "conflict" {
						t.Errorf("stale: %v", err)
					}
				}
				v, err := s.Swap(context.Background(), name, old, fmt.Appendf(nil, "%d in %d", i, round),
					[]durable.Index{durable.Neither, durable.Ready, durable.Held}[i%3])
				if err != nil || v <= old {
					t.Errorf("%d after %d: %v", v, old, err)
				}
				versions[i] = v
				state, at, err := s.Load(context.Background(), name)
				if err != nil || at != v || string(state) != fmt.Sprintf("%d in %d", i, round) {
					t.Errorf("%q at %d, want version %d: %v", state, at, v, err)
				}
				if _, at, err := s.Load(context.Background(), name+" of nobody"); at != 0 || err != nil {
					t.Errorf("of a name never seen: %d, %v", at, err)
				}
			})
		}
		group.Wait()
	}
	if held, ready := len(list(t, s, durable.Held)), len(list(t, s, durable.Ready)); held != 33 || ready != 33 {
		t.Errorf("%d held, %d ready", held, ready)
	}
}

// A row that somebody else's transaction has locked delays its own swaps, not those that are sent beside them.
func TestLockedRowDelaysNobody(t *testing.T) {
	s := named(t, migrated(t, 16), t.Name())
	versions := map[string]uint64{}
	for i := range 12 {
		name := string(rune('A' + i))
		versions[name] = swap(t, s, name, 0, "x", durable.Neither)
	}
	for i := range 50 {
		name := fmt.Sprint(i)
		versions[name] = swap(t, s, name, 0, "x", durable.Neither)
	}
	tx := must(migrated(t, 1).Begin(t.Context()))(t)
	must(tx.Exec(t.Context(), `SELECT 1 FROM stopbank.lease_domains WHERE ledger = $1 AND domain >= 'A' FOR UPDATE`, t.Name()))(t)
	var locked, free sync.WaitGroup
	for name, version := range versions {
		group := &free
		if name >= "A" {
			group = &locked
		}
		group.Go(func() {
			if _, err := s.Swap(context.Background(), name, version, []byte("y"), durable.Held); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	free.Wait() // while the others cannot
	if state, version := load(t, s, "A"); string(state) != "x" || version != versions["A"] {
		t.Errorf("A is %q at %d under the lock", state, version)
	}
	noError(t, tx.Rollback(t.Context()))
	locked.Wait()
}
