// SPDX-License-Identifier: Apache-2.0

// Benchmarks for profiling; the rows with peers and targets are in internal/bench.

package lease_test

import (
	"fmt"
	"testing"

	"github.com/stopbank/stopbank/lease"
)

// BenchmarkCycle takes and ends leases on a thousand domains in turn, with a floor that follows.
func BenchmarkCycle(b *testing.B) {
	m := open(b, lease.Config{})
	names := make([]string, 1000)
	for i := range names {
		names[i] = fmt.Sprintf("a-name-as-long-as-a-uuid-is-%08d", i)
	}
	b.ReportAllocs()
	for offset := int64(0); b.Loop(); offset++ {
		held := acquire(b, m, names[offset%1000], offset)
		must(m.Succeed(ctx, held.Domain, held.Token))(b)
		if offset%1024 == 0 {
			noError(b, m.Compact(ctx, offset-8192))
		}
	}
}

// BenchmarkEnqueue queues behind one lease.
func BenchmarkEnqueue(b *testing.B) {
	m := open(b, lease.Config{})
	acquire(b, m, "A", -1)
	b.ReportAllocs()
	for offset := int64(0); b.Loop(); offset++ {
		must(m.TryAcquire(ctx, "A", offset))(b)
	}
}
