// SPDX-License-Identifier: Apache-2.0

// What the ledger weighs (L11).

package lease_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/stopbank/stopbank/lease"
)

// heap returns the bytes that are live after a collection.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

// weigh returns how many bytes of heap do leaves behind, per n.
func weigh(n int, do func()) float64 {
	before := heap()
	do()
	return (float64(heap()) - float64(before)) / float64(n)
}

// light demands that do, of n of these, leaves at most so many bytes of each beside what was there before, and returns how many.
func light(t *testing.T, n int, what string, before, most float64, do func()) float64 {
	t.Helper()
	bytes := before + weigh(n, do)
	if t.Logf("%s: %.2f bytes", what, bytes); bytes > most {
		t.Errorf("L11: %s: %.2f bytes, limit %.1f", what, bytes, most)
	}
	return bytes
}

// key writes the i-th of a great many distinct names of size bytes into buf.
func key(buf []byte, i int) string {
	const digits = "0123456789abcdef"
	for j := range buf {
		buf[j] = digits[(uint64(i)>>(4*(j%8)))&15]
	}
	return string(buf)
}

// once carries an offset through.
func once(t tb, m *lease.Memory, domain string, offset int64) {
	succeed(t, m, acquire(t, m, domain, offset), lease.Completion{Status: lease.NoBacklog})
}

// An idle domain is one that has done its only offset. Its name, given up by the caller, is part of the weight.
func TestBytesPerIdleDomain(t *testing.T) {
	const domains = 200_000
	for size, limit := range map[int]float64{8: 125, 16: 135, 36: 160} {
		m := open(t, lease.Config{})
		buf := make([]byte, size)
		bytes := light(t, domains, fmt.Sprintf("an idle domain with a name of %d bytes", size), 0, limit, func() {
			for i := range domains {
				once(t, m, key(buf, i), int64(i))
			}
		})
		if n := m.Domains(); n != domains {
			t.Fatalf("L11: %d domains, want %d", n, domains)
		}
		light(t, domains, "after a Compact above all", bytes, 10, func() { noError(t, m.Compact(ctx, math.MaxInt64)) })
		if n := m.Domains(); n != 0 {
			t.Errorf("L11: after a Compact above all %d domains are left", n)
		}
		runtime.KeepAlive(m)
	}
}

// Done offsets above the floor, sparse and not quite in order: eight bytes each and some slack, and none below the floor.
func TestBytesPerDoneOffset(t *testing.T) {
	const n = 200_000
	m := open(t, lease.Config{})
	rnd := rand.New(rand.NewPCG(1, 2))
	bytes := light(t, n, "a done offset", 0, 16, func() {
		for i := range int64(n) {
			once(t, m, "A", 1000*(i^1)+rnd.Int64N(1000)) // neighbours swapped
		}
	})
	light(t, n, "left of one after Compact", bytes, 0.5, func() { noError(t, m.Compact(ctx, 1000*(n-10))) })
	if v := inspect(t, m, "A"); v.Processed == 0 || v.Processed > 20 {
		t.Errorf("L11: %+v", v)
	}
	runtime.KeepAlive(m)
}

// A first offset far above the later ones keeps nothing alive once the floor has passed those, failed or processed.
func TestAHighFirstOffsetPinsNothing(t *testing.T) {
	const n, domains = 200_000, 500
	m := open(t, lease.Config{})
	light(t, n, "left of an offset below the floor", 0, 0.1, func() {
		once(t, m, "A", 1<<40)
		for offset := range int64(n) {
			fail(t, m, acquire(t, m, "A", offset), lease.Failure{Status: lease.GiveUpNoBacklog})
		}
		noError(t, m.Compact(ctx, n))
	})
	if v := inspect(t, m, "A"); v.Processed != 1 || v.Failed != 0 {
		t.Errorf("L11: %+v", v)
	}
	noError(t, m.Audit())
	m = open(t, lease.Config{})
	light(t, domains, "a domain with one done offset left", 0, 400, func() {
		for i := range domains {
			domain := fmt.Sprint("domain ", i)
			once(t, m, domain, 1_000_000)
			for offset := range int64(500) {
				once(t, m, domain, offset)
			}
		}
		noError(t, m.Audit())
		noError(t, m.Compact(ctx, 999_999))
	})
	runtime.KeepAlive(m)
}

// Long names that are gone leave no room behind them, though the short ones that took their slots never ask for more.
func TestLongNamesAreGivenBack(t *testing.T) {
	const domains, long = 2000, 10_000
	m := open(t, lease.Config{})
	light(t, domains, "a long name that came and went", 0, 2000, func() {
		buf := make([]byte, long)
		for i := range domains {
			once(t, m, key(buf, i), 1)
		}
		for i := range domains / 2 { // these keep the slab from being given back as a whole
			once(t, m, fmt.Sprint("stays ", i), 1000)
		}
		noError(t, m.Compact(ctx, 100))
		for i := range domains {
			once(t, m, fmt.Sprint("short ", i), 1000)
		}
		noError(t, m.Compact(ctx, 101))
	})
	noError(t, m.Audit())
	for i := range domains {
		wantStatus(t, m, fmt.Sprint("short ", i), 1000, lease.AlreadyProcessed)
	}
	runtime.KeepAlive(m)
}

// Names of all lengths come and go while a floor follows. They are packed on the way, and every domain is still found by its own.
func TestNamesOfAllLengthsRoll(t *testing.T) {
	const live = 4000
	m := open(t, lease.Config{})
	rnd := rand.New(rand.NewPCG(5, 6))
	var names []string
	packed := 0
	for offset := range int64(40_000) {
		name := fmt.Sprintf("%d %s", offset, strings.Repeat("x", rnd.IntN(1+rnd.IntN(2000))))
		names = append(names, name)
		wasted := m.WastedNames()
		once(t, m, name, offset)
		if m.WastedNames() < wasted {
			packed++
		}
		if offset%1000 != 999 {
			continue
		}
		noError(t, m.Compact(ctx, offset-live))
		noError(t, m.Audit())
		for at := max(0, offset-live); at <= offset; at++ {
			if a := wantStatus(t, m, names[at], at, lease.AlreadyProcessed); a.BelowFloor {
				t.Fatalf("L11: %d is below the floor", at)
			}
		}
	}
	if t.Logf("packed %d times on insertion", packed); packed == 0 {
		t.Error("L11: nothing was packed: this run shows nothing")
	}
}

func TestBacklogIsGivenBack(t *testing.T) {
	const n = 200_000
	m := open(t, lease.Config{})
	bytes := light(t, n, "a waiting offset", 0, 48, func() {
		for i := range int64(n) {
			must(m.Offer(ctx, "A", i*i))(t)
		}
	})
	light(t, n, "left of one when ten wait", bytes, 0.5, func() {
		for range n - 10 {
			a, err := m.AcquireNext(ctx, "A")
			if err != nil || a.Status != lease.Acquired {
				t.Fatal(a, err)
			}
			must(m.Succeed(ctx, "A", a.Lease.Token))(t)
		}
		noError(t, m.Compact(ctx, math.MaxInt64))
	})
	runtime.KeepAlive(m)
}

// In a steady state, with names that come and go, nothing is allocated.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	m := open(t, lease.Config{})
	names := make([]string, 20_000)
	for i := range names {
		names[i] = fmt.Sprintf("some-domain-of-usual-length-%08d", i)
	}
	rnd := rand.New(rand.NewPCG(3, 4))
	offset := int64(0)
	turn := func() {
		for range 1000 {
			offset++
			domain := names[rnd.IntN(len(names))]
			held := acquire(t, m, domain, offset)
			if offset%4 == 0 {
				offset++
				wantStatus(t, m, domain, offset, lease.Enqueued)
				succeed(t, m, held, lease.Completion{Status: lease.NextHint, Next: offset})
				held = acquire(t, m, domain, offset)
			}
			succeed(t, m, held, lease.Completion{Status: lease.NoBacklog})
		}
		noError(t, m.Compact(ctx, offset-5000))
	}
	for range 100 {
		turn()
	}
	if allocs := testing.AllocsPerRun(100, turn); allocs > 50 {
		t.Errorf("L11: %.0f allocations in a thousand cycles", allocs)
	}
	if n := m.WastedNames(); n > 0 {
		t.Errorf("L11: %d bytes of names are wasted, though a new one always fits the room of an old one", n)
	}
}
