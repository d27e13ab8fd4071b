package lease_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stopbank/stopbank/lease"
)

func names(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%08x-0000-4000-8000-%012x", uint32(i)*2654435761, i)
	}
	return out
}

type naive struct {
	mu sync.Mutex
	m  map[string]naiveRec
}
type naiveRec struct {
	offset, token, at, retries int64 // what a lease consists of
}

func (n *naive) touch(d string, offset int64, at int64) {
	n.mu.Lock()
	r := n.m[d]
	r.offset, r.at = offset, r.at+at
	n.m[d] = r
	n.mu.Unlock()
}

// BenchmarkCycle sets an acquire and succeed against two bare lookups-and-writes, in turns of one process, and reports
// the median of the turns' ratios.
func BenchmarkCycle(b *testing.B) {
	for _, c := range []struct {
		name         string
		domains, lag int
	}{
		{"1", 1, 4}, {"30", 30, 120}, {"1k_lag1k", 1000, 1 << 10}, {"1k_lag4k", 1000, 4 << 10}, {"1k_hot", 1000, 8 << 10}, {"1M_random", 1_000_000, 8 << 10}, {"1M_resident", 1_000_000, 2_000_000},
	} {
		b.Run(c.name, func(b *testing.B) {
			const turn = 20_000
			ctx := context.Background()
			ds := names(c.domains)
			peer := &naive{m: map[string]naiveRec{}}
			m, err := lease.NewMemory(lease.Config{})
			if err != nil {
				b.Fatal(err)
			}
			offset := int64(0)
			bare := func(d string) {
				peer.touch(d, offset, time.Now().UnixNano())
				peer.touch(d, offset, 0)
			}
			cycle := func(d string) {
				offset++
				a, err := m.TryAcquire(ctx, d, offset)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := m.Succeed(ctx, d, a.Lease.Token); err != nil {
					b.Fatal(err)
				}
				if offset%1024 == 0 {
					if err := m.Compact(ctx, offset-int64(c.lag)); err != nil {
						b.Fatal(err)
					}
				}
			}
			for range 3 {
				for _, d := range ds {
					cycle(d)
					bare(d)
				}
			}
			rnd := rand.New(rand.NewPCG(1, 2))
			run := func(do func(string)) float64 {
				from := time.Now()
				for range turn {
					do(ds[rnd.IntN(len(ds))])
				}
				return float64(time.Since(from).Nanoseconds()) / turn
			}
			var ours, theirs, ratios []float64
			b.ReportAllocs()
			b.ResetTimer()
			n := 0
			for n < b.N || len(ours) < 9 {
				o, t := run(cycle), run(bare)
				ours, theirs, ratios = append(ours, o), append(theirs, t), append(ratios, o/t)
				n += turn
			}
			b.ReportMetric(median(ours), "ns/cycle")
			b.ReportMetric(median(theirs), "ns/bare")
			b.ReportMetric(median(ratios), "ratio")
			b.ReportMetric(ours[0]/theirs[0], "ratio-of-best") // slices are sorted by now
			b.ReportMetric(ours[0], "best-ns/cycle")
		})
	}
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}
