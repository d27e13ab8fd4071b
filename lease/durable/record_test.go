// SPDX-License-Identifier: Apache-2.0

// The records: every damage is an error, nothing is overwritten, and a newer format is left alone.

package durable_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
)

// put overwrites a record behind the ledger's back.
func put(t *testing.T, store *durable.MemStore, name string, b []byte) {
	t.Helper()
	_, version, err := store.Load(ctx, name)
	if err == nil {
		_, err = store.Swap(ctx, name, version, b, durable.Neither)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, store *durable.MemStore, name string) ([]byte, uint64) {
	t.Helper()
	b, version, err := store.Load(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	return b, version
}

// fill makes a ledger with a busy domain A, which has done something of everything, and a floor.
func fill(t *testing.T, store durable.Store) {
	t.Helper()
	l := open(t, durable.Config{Store: store})
	noError(t, l.Compact(ctx, -5))
	for offset := int64(1); offset < 5; offset++ {
		held := acquire(t, l, "A", offset)
		if offset%2 == 0 {
			succeed(t, l, held)
		} else if _, err := l.Fail(ctx, "A", held.Token); err != nil {
			t.Fatal(err)
		}
	}
	acquire(t, l, "A", 9)
	for _, offset := range []int64{8, 7} {
		must(l.Offer(ctx, "A", offset))(t)
	}
}

func TestDamageIsNoticed(t *testing.T) {
	for _, name := range []string{"A", ""} {
		store := &durable.MemStore{}
		fill(t, store)
		whole, _ := get(t, store, name)
		damaged := func(what string, b []byte, want func(error) bool) {
			t.Helper()
			put(t, store, name, b)
			_, version := get(t, store, name)
			l := open(t, durable.Config{Store: store})
			_, err := l.TryAcquire(ctx, "A", 77)
			either := errors.Is(err, durable.ErrCorrupt) || errors.Is(err, durable.ErrNewer)
			if !either || want != nil && !want(err) {
				t.Fatalf("%q, %s: %v", name, what, err)
			}
			for what, err := range map[string]error{
				"Inspect": func() error { _, err := l.Inspect(ctx, "A"); return err }(),
				"Fail":    func() error { _, err := l.Fail(ctx, "A", 3); return err }(),
			} {
				if err == nil || errors.Is(err, lease.ErrTokenMismatch) {
					t.Fatalf("%s of what is damaged: %v", what, err)
				}
			}
			if after, at := get(t, store, name); at != version || !bytes.Equal(after, b) {
				t.Fatalf("%q, %s: overwritten", name, what)
			}
		}
		for bit := range len(whole) * 8 {
			b := bytes.Clone(whole)
			b[bit/8] ^= 1 << (bit % 8)
			damaged(fmt.Sprint("bit ", bit), b, nil)
		}
		for n := range whole {
			damaged(fmt.Sprint("cut to ", n), whole[:n], corrupt)
		}
		damaged("longer", append(bytes.Clone(whole), 0), corrupt)
		damaged("newer", append([]byte{3}, whole[1:]...), newer)
		other, _ := get(t, store, map[string]string{"A": "", "": "A"}[name])
		damaged("another's", other, corrupt)
		put(t, store, name, whole)
		l := open(t, durable.Config{Store: store})
		if v := inspect(t, l, "A"); v.Lease == nil || v.Lease.Offset != 9 || v.Floor != -5 {
			t.Fatalf("repaired: %+v", v)
		}
	}
}

// A whole record that came to lie under another name belongs to somebody else.
func TestRecordOfAnotherDomain(t *testing.T) {
	store := &durable.MemStore{}
	fill(t, store)
	b, _ := get(t, store, "A")
	put(t, store, "B", b)
	if a, err := open(t, durable.Config{Store: store}).TryAcquire(ctx, "B", 77); !corrupt(err) ||
		!strings.Contains(err.Error(), `"B", version 1`) {
		t.Errorf("%+v, %v", a, err)
	}
}

// Sums that are right do not make a record right.
func TestSealedNonsense(t *testing.T) {
	marks := "01" + "0101" // one mark
	for what, c := range map[string]struct {
		name, hex string
		want      func(error) bool
	}{
		"an empty record": {"A", "01", corrupt},
		"no state":        {"A", "01" + "01" + "02" + "00" + marks, corrupt},
		"seventeen marks": {"A", "01" + "01" + "02" + "00" + "11" +
			"0101010101010101010101010101010101010101010101010101010101010101" + "0101" + "0100", corrupt},
		"a broken state":               {"A", "01" + "01" + "02" + "00" + marks + "0120", corrupt},
		"a newer state":                {"A", "01" + "01" + "02" + "00" + marks + "0300", newer},
		"a token above the greatest":   {"A", "01" + "01" + "02" + "00" + marks + "0101" + "0e" + "03" + "00" + "00", corrupt},
		"a number cut off":             {"A", "01" + "80", corrupt},
		"a root with something behind": {"", "01" + "01" + "00" + "00", corrupt},
		"a root with too many writers": {"", "01" + "ffffffff7f" + "00", corrupt},
		"a root cut off":               {"", "01" + "01", corrupt},
	} {
		b := must(hex.DecodeString(c.hex))(t)
		if _, err := durable.Redo(durable.Seal(b, c.name), c.name); !c.want(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	good, _ := hex.DecodeString("01" + "01" + "03" + "00" + marks + "0101" + "0e" + "03" + "00" + "00")
	if b, err := durable.Redo(durable.Seal(good, "A"), "A"); err != nil || !bytes.Equal(b, durable.Seal(good, "A")) {
		t.Errorf("%x, %v", b, err)
	}
}

// The bytes of format 1, so that no later change of the code changes what lies in somebody's store.
func TestRecordsAreWrittenInStone(t *testing.T) {
	store := &durable.MemStore{}
	l := open(t, durable.Config{Store: store})
	noError(t, l.Compact(ctx, -5))
	must(l.Offer(ctx, "A", 8))(t)
	for name, want := range map[string]string{
		"":  "01" + "01" + "09",
		"A": "01" + "01" + "00" + "09" + "01" + "0101" + "0104" + "01" + "10",
	} {
		b, _ := get(t, store, name)
		if got := hex.EncodeToString(b[:len(b)-4]); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
}

// A record of what was released differs from the others in the format of its state alone: 2, which a program that knows only
// 1 refuses.
func TestReleasedIsWrittenInStone(t *testing.T) {
	const before, state = "01" + "03" + "8180800c" + "00" + "01" + "0103", "01" + "0e" + "8180800c" + "d00f" + "01"
	for format, released := range map[string]bool{"01": false, "02": true} {
		store := &durable.MemStore{}
		put(t, store, "", durable.RootOf(1, 0))
		b := must(hex.DecodeString(before + format + state))(t)
		put(t, store, "A", durable.Seal(b, "A"))
		if again, err := durable.Redo(durable.Seal(b, "A"), "A"); err != nil || !bytes.Equal(again, durable.Seal(b, "A")) {
			t.Errorf("format %s: %x, %v", format, again, err)
		}
		want := lease.Lease{Domain: "A", Offset: 7, Token: 0x1800001, AcquiredAt: time.Unix(0, 1000).UTC(), RetryCount: 1,
			Released: released}
		if v := inspect(t, open(t, durable.Config{Store: store}), "A"); v.Lease == nil || *v.Lease != want {
			t.Errorf("format %s: %+v, want %+v", format, v.Lease, want)
		}
	}
}

func TestExhausted(t *testing.T) {
	store := &durable.MemStore{}
	put(t, store, "", durable.RootOf(durable.MaxWriter-1, 0))
	l := open(t, durable.Config{Store: store})
	l.SetClock(durable.MaxClock - 1)
	held := acquire(t, l, "A", 1)
	if held.Token != 1<<63-1 {
		t.Errorf("token %x", held.Token)
	}
	if _, err := l.Reclaim(ctx, "A", held.Token); !errors.Is(err, durable.ErrExhausted) ||
		!strings.Contains(err.Error(), "tokens") {
		t.Error(err)
	}
	succeed(t, l, held) // needs no token
	if _, err := open(t, durable.Config{Store: store}).Offer(ctx, "B", 2); !errors.Is(err, durable.ErrExhausted) ||
		!strings.Contains(err.Error(), "writers") {
		t.Error(err)
	}
}

func FuzzRecordDecode(f *testing.F) {
	store := &durable.MemStore{}
	l, err := durable.Open(durable.Config{Store: store})
	if err != nil {
		f.Fatal(err)
	}
	for offset := range int64(4) {
		if _, err := l.TryAcquire(ctx, "A", offset); err != nil {
			f.Fatal(err)
		}
		b, _, _ := store.Load(ctx, "A")
		f.Add(b[:len(b)-4], true)
	}
	b, _, _ := store.Load(ctx, "")
	f.Add(b[:len(b)-4], false)
	f.Fuzz(func(t *testing.T, body []byte, domain bool) {
		name := ""
		if domain {
			name = "A"
		}
		for _, b := range [][]byte{body, durable.Seal(bytes.Clone(body), name)} {
			again, err := durable.Redo(b, name)
			if err != nil {
				if !errors.Is(err, durable.ErrCorrupt) && !errors.Is(err, durable.ErrNewer) {
					t.Fatalf("%x: %v", b, err)
				}
				continue
			}
			if twice, err := durable.Redo(again, name); err != nil || !bytes.Equal(twice, again) {
				t.Fatalf("%x became %x became %x, %v", b, again, twice, err)
			}
		}
	})
}

func corrupt(err error) bool { return errors.Is(err, durable.ErrCorrupt) }

func newer(err error) bool { return errors.Is(err, durable.ErrNewer) }
