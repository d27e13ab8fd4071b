// SPDX-License-Identifier: Apache-2.0

// Share (M11) against a scheduler that hands out every millisecond itself.

package monitor

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A kernel runs ready threads in turns on some processors, and counts as schedstat does.
type kernel struct {
	processors int
	quota      int // milliseconds of a period of 100 ms; 0: none
	others     int // threads of others, always ready
	next       int // whose turn it is: ours come first
}

// run has our threads run for some milliseconds, at each of which so many are ready, and returns what they counted, and what they
// would have used without the others.
func (k *kernel) run(ready []int) (d demand, wanted time.Duration) {
	const ms = time.Millisecond
	left, alone := k.quota, k.quota
	for i, n := range ready {
		if i%100 == 0 {
			left, alone = k.quota, k.quota
		}
		running, could := 0, min(n, k.processors)
		if k.quota > 0 {
			could = min(could, alone)
			alone -= could
		}
		wanted += time.Duration(could) * ms
		if k.quota > 0 && left == 0 {
			d.throttled += float64(min(n, k.processors)) / float64(len(ready))
		}
		candidates := n + k.others
		for range min(k.processors, candidates) {
			k.next = (k.next + 1) % candidates
			if k.next < n && (k.quota == 0 || left > 0) {
				left--
				running++
			}
		}
		d.waits.ran += time.Duration(running) * ms
		d.waits.waited += time.Duration(n-running) * ms
	}
	d.elapsed, d.used = time.Duration(len(ready))*ms, d.waits.ran
	d.available = float64(k.processors)
	if k.quota > 0 {
		d.available = min(d.available, float64(k.quota)/100)
	}
	return d, wanted
}

// M11: alone, a process gets all that it wants, however many threads it has, whatever its quota is, however long processors take
// to wake up, and whatever part of its threads is measured. Beside others, it gets what it used of what it would have used, if it
// has no more threads than processors.
func TestPropertyShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := &kernel{processors: rapid.IntRange(1, 8).Draw(t, "processors")}
		procs := rapid.IntRange(1, 16).Draw(t, "GOMAXPROCS")
		others := rapid.IntRange(0, 40).Draw(t, "others")
		if rapid.Bool().Draw(t, "quota") {
			k.quota = rapid.IntRange(5, 100*k.processors).Draw(t, "of")
		}
		if k.others = others; others > 0 {
			procs, k.quota = min(procs, k.processors), 0
		}
		// Work comes in bursts of up to as many threads as may run.
		var ready []int
		for len(ready) < 2000 {
			n := rapid.IntRange(0, procs).Draw(t, "ready")
			for range rapid.IntRange(1, 300).Draw(t, "for") {
				ready = append(ready, n)
			}
		}
		d, wanted := k.run(ready)
		d.procs = float64(procs)
		if part := rapid.IntRange(1, 5).Draw(t, "measured"); part > 1 {
			d.waits.ran /= time.Duration(part)
			d.waits.waited /= time.Duration(part)
		}
		if wakes := rapid.IntRange(0, 10_000).Draw(t, "wakes"); others == 0 {
			d.waits.turns += uint64(wakes)
			d.waits.waited += time.Duration(wakes) * wakeUp
		}
		got := d.share()
		if want := float64(wanted) / float64(d.elapsed); want < 0.02 || d.used == 0 {
			return // of next to nothing it is missing
		}
		want := float64(d.used) / float64(wanted)
		if others == 0 {
			want = 1
		}
		if !got.OK || math.Abs(got.Value-want) > 1e-6 {
			t.Fatalf("M11: share %+v, want %v, of %+v", got, want, d)
		}
	})
}

// M11: whatever counters say, a share is from 0 to 1 or missing, it is missing without a time, of next to nothing, and where the
// threads that are measured have hardly run; and it does not rise if they have waited for longer.
func TestPropertyShareOfAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		span := rapid.OneOf(rapid.Int64Range(0, 1e10), rapid.SampledFrom([]int64{0, 1, 1 << 62, -1e9, math.MinInt64}))
		number := rapid.OneOf(rapid.Float64Range(0, 8), rapid.SampledFrom([]float64{0, 1e6}))
		d := demand{
			elapsed: time.Duration(span.Draw(t, "elapsed")), used: time.Duration(span.Draw(t, "used")),
			waits: waits{
				ran: time.Duration(max(0, span.Draw(t, "ran"))), waited: time.Duration(max(0, span.Draw(t, "waited"))),
				turns: rapid.Uint64().Draw(t, "turns"),
			},
			procs: number.Draw(t, "procs"), available: number.Draw(t, "available"), throttled: number.Draw(t, "throttled"),
		}
		got := d.share()
		if !(got.Value >= 0 && got.Value <= 1) || !got.OK && got.Value != 0 ||
			got.OK && (d.elapsed <= 0 || d.waits.ran <= 0 || d.waits.ran < d.used/11) {
			t.Fatalf("M11: %+v of %+v", got, d)
		}
		if got.OK && got.Value*d.available < min(d.used.Seconds()/d.elapsed.Seconds(), d.available)*(1-1e-9) {
			t.Fatalf("M11: %+v: more is wanted than is available, %+v", got, d)
		}
		d.waits.waited += time.Duration(rapid.Int64Range(0, 1e9).Draw(t, "longer"))
		if more := d.share(); d.waits.waited >= 0 && got.OK && more.OK && more.Value > got.Value {
			t.Fatalf("M11: %+v, and %+v if they wait for longer: %+v", got, more, d)
		}
	})
}

// M11: what the quota withheld while a sidecar had used it up.
func TestShareOfAThrottledGroup(t *testing.T) {
	d := demand{
		elapsed: time.Second, used: time.Second / 4, waits: waits{ran: time.Second / 4, waited: time.Second / 2},
		procs: 2, available: 2, throttled: 0.5,
	}
	if got := d.share(); got != (Reading{1, true}) {
		t.Errorf("M11: share %+v where the quota withheld all that is missing", got)
	}
	d.throttled = 0.25
	if got := d.share(); got != (Reading{0.5, true}) {
		t.Errorf("M11: share %+v where the quota withheld half of what is missing", got)
	}
}

func TestWaitsSince(t *testing.T) {
	const s = time.Second
	for _, c := range []struct{ before, after, want waits }{
		{waits{1 * s, 2 * s, 3}, waits{1*s + 5, 2*s + 7, 5}, waits{5, 7, 2}},
		{waits{1 * s, 2 * s, 3}, waits{1 * s, 2 * s, 3}, waits{}},
		{waits{1 * s, 2 * s, 3}, waits{3, 5, 1}, waits{}},             // another thread
		{waits{1 * s, 2 * s, 3}, waits{2 * s, 1, 4}, waits{}},         // nonsense
		{waits{}, waits{1 << 61, 1 << 61, 1}, waits{2 * s, 2 * s, 1}}, // no more than time has passed
	} {
		if got := c.after.since(c.before, 2*s); got != c.want {
			t.Errorf("M12: from %+v to %+v: %+v, want %+v", c.before, c.after, got, c.want)
		}
	}
}

func FuzzParseWaits(f *testing.F) {
	for _, text := range []string{
		"1 2 3\n", "0 0 0\n", "1 2\n", "-1 2 3", "1 2 3 4", "18446744073709551615 1 1", "", " ", "1  2 3",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		w, ok := parseWaits(text)
		if w.ran < 0 || w.waited < 0 || !ok && w != (waits{}) {
			t.Fatalf("%q: %+v, %v", text, w, ok)
		}
		if again, _ := parseWaits(fmt.Appendf(nil, "%d %d %d\n", w.ran, w.waited, w.turns)); again != w {
			t.Fatalf("%q: %+v, and %+v", text, w, again)
		}
	})
}
