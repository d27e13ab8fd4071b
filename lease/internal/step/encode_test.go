// SPDX-License-Identifier: Apache-2.0

// The encoding of a State: what is written is read back, and nothing else is read.

package step_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/lease/internal/step"
)

func encoded(t interface{ Fatalf(string, ...any) }, s *step.State) []byte {
	b := s.Append([]byte("prefix"))
	if !bytes.HasPrefix(b, []byte("prefix")) {
		t.Fatalf("Append: %q", b)
	}
	return b[len("prefix"):]
}

// steps makes a state by n random operations on offsets around base.
func steps(t *rapid.T, s *step.State, base int64, n int) {
	var token uint64
	for range n {
		op := step.Op{
			Kind:   step.Kind(rapid.IntRange(int(step.TryAcquire), int(step.Compact)).Draw(t, "kind")),
			Domain: "A", Offset: base + rapid.Int64Range(-40, 40).Draw(t, "offset"), Token: token,
			Fresh: token + uint64(rapid.IntRange(1, 1<<20).Draw(t, "fresh")), MaxRetries: rapid.IntRange(0, 2).Draw(t, "retries"),
			Now: rapid.Int64().Draw(t, "now"), Floor: math.MinInt64,
		}
		if op.Kind == step.Compact {
			op.Floor = base + rapid.Int64Range(-45, 20).Draw(t, "floor")
		}
		before, r := s.Append(nil), step.Result{}
		s.Step(&op, &r)
		if r.Changed == bytes.Equal(before, s.Append(nil)) {
			t.Fatalf("%+v: Changed is %t, but the state was %x and is %x", op, r.Changed, before, s.Append(nil))
		}
		if held, ok := s.Leased(); ok {
			token = held.Token
		}
	}
}

// What was written down answers as what it was written from, now and later, and is written down in the same way again.
// Only the room of a list is not written down, and a full list forgets what lies below the floor when it has to grow: so one
// of the two may have left less for a Compact to change.
func TestPropertyStateEncodingRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.SampledFrom([]int64{0, 100, -1 << 40, math.MinInt64 + 50, math.MaxInt64 - 50}).Draw(t, "base")
		var s, back step.State
		steps(t, &s, base, rapid.IntRange(0, 150).Draw(t, "before"))
		b := encoded(t, &s)
		if err := back.Decode(b); err != nil {
			t.Fatalf("%x: %v", b, err)
		}
		if err := back.Audit(); err != nil {
			t.Fatal(err)
		}
		if again := encoded(t, &back); !bytes.Equal(again, b) {
			t.Fatalf("%x was read and written as %x", b, again)
		}
		for range rapid.IntRange(0, 60).Draw(t, "after") {
			op := step.Op{
				Kind:   step.Kind(rapid.IntRange(int(step.TryAcquire), int(step.Compact)).Draw(t, "kind")),
				Domain: "A", Offset: base + rapid.Int64Range(-40, 40).Draw(t, "offset"), Fresh: math.MaxUint64, Floor: base - 30,
			}
			if held, ok := s.Leased(); ok {
				op.Token = held.Token
			}
			var r, rb step.Result
			s.Step(&op, &r)
			back.Step(&op, &rb)
			if op.Kind == step.Compact {
				r.Changed, rb.Changed = false, false
			}
			if r != rb {
				t.Fatalf("%+v: %+v of the original, %+v of what was read", op, r, rb)
			}
		}
		if diff := cmp.Diff(s.Snapshot(base), back.Snapshot(base)); diff != "" {
			t.Fatalf("read back (-original +read):\n%s", diff)
		}
	})
}

// The bytes of formats 1 and 2, so that no later change of the code changes what lies in somebody's store.
func TestStateEncodingIsWrittenInStone(t *testing.T) {
	var s step.State
	check := func(what, want string) {
		t.Helper()
		if got := hex.EncodeToString(encoded(t, &s)); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	apply := func(op step.Op) {
		op.MaxRetries, op.Now, op.Floor = 1, 1000, math.MinInt64
		s.Step(&op, new(step.Result))
	}
	check("never seen", "0100")
	apply(step.Op{Kind: step.TryAcquire, Offset: 7, Fresh: 300})
	check("leased", "0101"+"0e"+"ac02"+"d00f"+"00")
	apply(step.Op{Kind: step.Offer, Offset: 9})
	apply(step.Op{Kind: step.Offer, Offset: 8})
	apply(step.Op{Kind: step.Fail, Token: 300})
	check("retried, two wait", "0105"+"0e"+"ac02"+"d00f"+"01"+"02"+"04"+"01")
	apply(step.Op{Kind: step.Fail, Token: 300})
	check("given up", "0107"+"0e"+"ac02"+"02"+"04"+"01")
	apply(step.Op{Kind: step.AcquireNext, Fresh: 301})
	apply(step.Op{Kind: step.Succeed, Token: 301})
	check("processed, one failed before", "0116"+"12"+"ad02"+"01"+"01"+"01"+"0e")
	apply(step.Op{Kind: step.AcquireNext, Fresh: 302})
	apply(step.Op{Kind: step.Succeed, Token: 302})
	apply(step.Op{Kind: step.TryAcquire, Offset: 12, Fresh: 303})
	check("leased, two processed, one failed", "0119"+"18"+"af02"+"d00f"+"00"+"02"+"10"+"01"+"01"+"0e")
	apply(step.Op{Kind: step.Release, Token: 303})
	check("the same, released", "0219"+"18"+"af02"+"d00f"+"00"+"02"+"10"+"01"+"01"+"0e")
	apply(step.Op{Kind: step.Reclaim, Token: 303, Fresh: 304})
	check("the same, reclaimed", "0119"+"18"+"b002"+"d00f"+"00"+"02"+"10"+"01"+"01"+"0e")
}

func TestStateEncodingRefuses(t *testing.T) {
	for what, c := range map[string]struct {
		hex    string
		format int
	}{
		"nothing":                      {"", -1},
		"format 0":                     {"0000", 0},
		"a newer format":               {"0300", 3},
		"no lease, released":           {"0200", 2},
		"a completion, released":       {"02020e01", 2},
		"a released lease cut off":     {"02010e", 2},
		"no content":                   {"01", 1},
		"unknown content":              {"0120", 1},
		"a lease cut off":              {"01010e", 1},
		"token 0":                      {"01020e00", 1},
		"too many retries":             {"01010e01008080808008", 1},
		"bytes left over":              {"010000", 1},
		"a number longer than need be": {"01028e0001", 1},
		"a number beyond 64 bits":      {"0102ffffffffffffffffff7f01", 1},
		"an empty backlog":             {"010400", 1},
		"a backlog that is too long":   {"0104ffffffff0f0202", 1},
		"a duplicate in the backlog":   {"0104020200", 1},
		"what is leased waits":         {"01050e010000010000", 1},
		"what is leased is processed":  {"01090e01000001" + "0e", 1},
		"what waits is processed":      {"010c" + "0102" + "0102", 1},
		"what waits is failed":         {"0114" + "0102" + "0102", 1},
		"what failed is processed":     {"0118" + "0102" + "0102", 1},
		"done offsets that stand":      {"010802" + "0200", 1},
		"done offsets beyond the last": {"010802" + "feffffffffffffffff01" + "01", 1},
		"failed cut off":               {"0118" + "0102" + "02", 1},
	} {
		b, err := hex.DecodeString(c.hex)
		if err != nil {
			t.Fatal(err)
		}
		var s step.State
		s.Step(&step.Op{Kind: step.Offer, Offset: 5}, new(step.Result))
		err = s.Decode(b)
		var refused *step.DecodeError
		if !errors.As(err, &refused) || refused.Format != c.format {
			t.Errorf("%s: %v", what, err)
		}
		if v := s.Snapshot(0); len(v.Backlog) != 1 {
			t.Errorf("%s: the state became %+v", what, v)
		}
	}
}

// A length that the bytes do not bear out costs nothing.
func TestStateDecodingAllocatesByWhatIsThere(t *testing.T) {
	for _, content := range []byte{4, 8, 16} {
		b := binary.AppendUvarint([]byte{1, content}, 1<<40)
		b = append(b, make([]byte, 100)...)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := new(step.State).Decode(b)
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; err == nil || used > 1<<16 {
			t.Errorf("content %d: %v, with %d bytes allocated", content, err, used)
		}
	}
}

func FuzzStateDecode(f *testing.F) {
	for _, seed := range []string{
		"0100", "01050eac02d00f01020401", "0119" + "18af02d00f00" + "021001" + "010e", "0201" + "18af02d00f00", "0300",
		"0104ffffffff0f0202", "010802feffffffffffffffff0101",
	} {
		b, err := hex.DecodeString(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var s step.State
		if err := s.Decode(b); err != nil {
			if refused := (*step.DecodeError)(nil); !errors.As(err, &refused) {
				t.Fatalf("%x: %v", b, err)
			}
			return
		}
		if err := s.Audit(); err != nil {
			t.Fatalf("%x: %v", b, err)
		}
		if again := encoded(t, &s); !bytes.Equal(again, b) {
			t.Fatalf("%x was read, and written as %x", b, again)
		}
		var r step.Result
		s.Step(&step.Op{Kind: step.TryAcquire, Domain: "A", Offset: 3, Fresh: math.MaxUint64, Floor: math.MinInt64}, &r)
		if err := s.Audit(); err != nil {
			t.Fatalf("%x, stepped: %v", b, err)
		}
	})
}
