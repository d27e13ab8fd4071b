// SPDX-License-Identifier: Apache-2.0

// What it costs, beside x/sync's semaphore.

package limiter

import (
	"context"
	"testing"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/stopbank/stopbank/warden/decision"
)

func benchLimiter(b *testing.B, cfg Config, d decision.ControlDecision) *Limiter {
	b.Helper()
	d.Seq = max(d.Seq, 1)
	cfg.Initial = d
	l := must(New(cfg))(b)
	b.ReportAllocs()
	b.ResetTimer()
	return l
}

func BenchmarkUncontended(b *testing.B) {
	ctx := context.Background()
	later, cancel := context.WithDeadline(ctx, time.Now().Add(time.Hour))
	defer cancel()
	hundred := decision.ControlDecision{TargetConcurrency: 100}
	b.Run("semaphore", func(b *testing.B) {
		s := semaphore.NewWeighted(100)
		b.ReportAllocs()
		for b.Loop() {
			if s.TryAcquire(1) {
				s.Release(1)
			}
		}
	})
	b.Run("TryAcquire", func(b *testing.B) {
		l := benchLimiter(b, Config{}, hundred)
		for b.Loop() {
			p, _ := l.TryAcquire(Task{})
			p.Release()
		}
	})
	b.Run("Acquire", func(b *testing.B) {
		l := benchLimiter(b, Config{}, hundred)
		for b.Loop() {
			p, _ := l.Acquire(ctx, Task{})
			p.Release()
		}
	})
	b.Run("Acquire for a tenant", func(b *testing.B) {
		l := benchLimiter(b, Config{}, hundred)
		for b.Loop() {
			p, _ := l.Acquire(ctx, Task{Tenant: "one of them"})
			p.Release()
		}
	})
	b.Run("Acquire with a deadline", func(b *testing.B) {
		l := benchLimiter(b, Config{}, hundred)
		for b.Loop() {
			p, _ := l.Acquire(later, Task{})
			p.Release()
		}
	})
	b.Run("Acquire with Yields", func(b *testing.B) {
		d := hundred
		d.Yields = 4
		l := benchLimiter(b, Config{}, d)
		for b.Loop() {
			p, _ := l.Acquire(ctx, Task{})
			p.Release()
		}
	})
	b.Run("Do", func(b *testing.B) {
		l := benchLimiter(b, Config{}, hundred)
		fn := func(context.Context) (int, error) { return 1, nil }
		for b.Loop() {
			_, _ = Do(ctx, l, Task{}, fn)
		}
	})
}

func BenchmarkParallel(b *testing.B) {
	b.Run("semaphore", func(b *testing.B) {
		s := semaphore.NewWeighted(100)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if s.TryAcquire(1) {
					s.Release(1)
				}
			}
		})
	})
	b.Run("TryAcquire", func(b *testing.B) {
		l := benchLimiter(b, Config{}, decision.ControlDecision{TargetConcurrency: 100})
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				p, _ := l.TryAcquire(Task{})
				p.Release()
			}
		})
	})
}

func BenchmarkRejection(b *testing.B) {
	ctx := context.Background()
	b.Run("TryAcquire at the target", func(b *testing.B) {
		l := benchLimiter(b, Config{}, decision.ControlDecision{})
		for b.Loop() {
			_, _ = l.TryAcquire(Task{})
		}
	})
	b.Run("Acquire, shed", func(b *testing.B) {
		l := benchLimiter(b, Config{MaxQueue: 10}, decision.ControlDecision{TargetConcurrency: 1, ShedProbability: 1})
		must(l.TryAcquire(Task{}))(b)
		for b.Loop() {
			_, _ = l.Acquire(ctx, Task{})
		}
	})
	b.Run("Acquire, shed, of a request", func(b *testing.B) { // whose context is its own
		l := benchLimiter(b, Config{MaxQueue: 10}, decision.ControlDecision{TargetConcurrency: 1, ShedProbability: 1})
		must(l.TryAcquire(Task{}))(b)
		for b.Loop() {
			request, cancel := context.WithCancel(ctx)
			_, _ = l.Acquire(request, Task{})
			cancel()
		}
	})
}

// BenchmarkHandOff is one task after the other through the queue, with the goroutine switches that takes.
func BenchmarkHandOff(b *testing.B) {
	ctx := context.Background()
	b.Run("semaphore", func(b *testing.B) {
		s := semaphore.NewWeighted(1)
		b.ReportAllocs()
		b.SetParallelism(8)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				_ = s.Acquire(ctx, 1)
				s.Release(1)
			}
		})
	})
	b.Run("limiter", func(b *testing.B) {
		l := benchLimiter(b, Config{MaxQueue: 1000}, decision.ControlDecision{TargetConcurrency: 1})
		b.SetParallelism(8)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				p, _ := l.Acquire(ctx, Task{})
				p.Release()
			}
		})
	})
}
