// SPDX-License-Identifier: Apache-2.0

// The promises about costs: where each stands, and what it must not depend on.

package main

import (
	"context"
	"math"
	"strconv"
	"time"

	"github.com/stopbank/stopbank/admission"
	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
)

func costs() []cost {
	return []cost{
		{"docs/admission.md", "an admission and its end, with n in flight", constant | free, func(_ context.Context, n int) func() {
			gate := held(n, n+1)
			return func() { must(gate.TryAcquire()).Release() }
		}},
		{"docs/guarantees/admission.md", "a rejection (A6) and Stats, with n in flight", constant | free,
			func(_ context.Context, n int) func() {
				gate := held(n, n)
				return func() { _, _ = gate.TryAcquire(); gate.Stats() }
			}},

		{"docs/limiter.md", "a start, its end and Stats, with n running", constant | free, func(_ context.Context, n int) func() {
			l := must(limiter.New(limiter.Config{Initial: decision.ControlDecision{Seq: 1, TargetConcurrency: n + 1}}))
			for range n {
				must(l.TryAcquire(limiter.Task{}))
			}
			return func() { must(l.TryAcquire(limiter.Task{})).Release(); l.Stats() }
		}},
		{"warden/limiter/doc.go", "entering and leaving the queue, with n waiting", constant,
			func(ctx context.Context, n int) func() {
				return crowded(ctx, limited(n, time.Hour), n).visit
			}},
		{"warden/limiter/doc.go", "entering and leaving a queue that stands and bounds the wait, with n waiting", constant,
			func(ctx context.Context, n int) func() {
				return crowded(ctx, limited(n, 1), n).visit
			}},
		{"warden/limiter/doc.go", "granting a slot, with n waiting", constant, func(ctx context.Context, n int) func() {
			r := crowded(ctx, limited(n, time.Hour), n)
			return func() { r.turn(ctx) }
		}},
		{"warden/limiter/doc.go", "entering and leaving a compartment's queue, with n waiting", constant,
			func(ctx context.Context, n int) func() {
				return crowded(ctx, compartment(n, bulkhead.TenantsConfig{}), n).visit
			}},
		{"warden/bulkhead/slots.go", "granting a slot, with n tenants waiting", constant, func(ctx context.Context, n int) func() {
			r := crowded(ctx, compartment(n, bulkhead.TenantsConfig{Max: 1, Keys: n + 2}), n)
			return func() { r.turn(ctx) }
		}},

		{"docs/guarantees/monitor.md M4", "a start and its end, and a sample, with n running", constant | free,
			func(_ context.Context, n int) func() {
				s := must(monitor.New())
				r := s.Recorder()
				for range n {
					r.Start("")
				}
				return func() { r.Start("").End(); s.Sample() }
			}},

		{"docs/lease.md", "a call in memory, with n domains", constant, func(ctx context.Context, n int) func() {
			return worked(ctx, known(ctx, must(lease.NewMemory(lease.Config{})), n))
		}},
		{"lease/queue.go", "a record taken from the backlog, one put there, and a duplicate, with n in it", constant,
			func(ctx context.Context, n int) func() {
				m, last := must(lease.NewMemory(lease.Config{})), int64(n)
				l := must(m.TryAcquire(ctx, "k", 0)).Lease
				for i := range n {
					must(m.TryAcquire(ctx, "k", int64(i+1)))
				}
				return func() {
					last++
					must(m.TryAcquire(ctx, "k", last))
					must(m.TryAcquire(ctx, "k", last-int64(n)/2))
					must(m.Succeed(ctx, "k", l.Token))
					l = must(m.AcquireNext(ctx, "k")).Lease
				}
			}},
		{"lease/terminals.go", "an offset that is done, among n", constant | free, func(ctx context.Context, n int) func() {
			m := must(lease.NewMemory(lease.Config{}))
			work := worked(ctx, m)
			for range n {
				work()
			}
			return func() { must(m.TryAcquire(ctx, live, int64(n)/3)) }
		}},
		{"lease/memory.go", "a record and its Compact, with n domains", constant, func(ctx context.Context, n int) func() {
			return compacted(ctx, known(ctx, must(lease.NewMemory(lease.Config{})), n))
		}},
		{"lease/durable/root.go", "a record and its Compact, with n domains in the store", constant,
			func(ctx context.Context, n int) func() {
				return compacted(ctx, known(ctx, must(durable.New(durable.Config{Store: durable.NewMemStore()})), n))
			}},
		{"lease", "names of statuses and kinds", free, func(context.Context, int) func() {
			return func() {
				_, _, _ = lease.Acquired.String(), lease.NoBacklog.String(), lease.RetryScheduled.String()
				_ = durable.Held.String()
			}
		}},

		{"lease/dispatch/doc.go", "a record from its append to its end, with n keys buffered", constant,
			func(ctx context.Context, n int) func() {
				return dispatched(ctx, n).work
			}},
		{"lease/dispatch/stats.go", "Stats, with n keys buffered", free, func(ctx context.Context, n int) func() {
			d := dispatched(ctx, n)
			return func() { d.Stats() }
		}},
	}
}

// held returns a gate of that limit with n in flight.
func held(n, limit int) *admission.Gate {
	gate := must(admission.New(admission.Config{Limit: limit}))
	for range n {
		must(gate.TryAcquire())
	}
	return gate
}

const live = "live"

// known has n domains in a ledger, with a done offset each that no floor reaches.
func known(ctx context.Context, l lease.Ledger, n int) lease.Ledger {
	for i := range n {
		domain := "k" + strconv.Itoa(i)
		must(l.Succeed(ctx, domain, must(l.TryAcquire(ctx, domain, math.MaxInt64/2+int64(i))).Lease.Token))
	}
	return l
}

// worked works one record after the other of a domain.
func worked(ctx context.Context, l lease.Ledger) func() {
	offset := int64(0)
	return func() {
		must(l.Succeed(ctx, live, must(l.TryAcquire(ctx, live, offset)).Lease.Token))
		offset++
	}
}

// compacted works one record after the other, and compacts each.
func compacted(ctx context.Context, l lease.Ledger) func() {
	work, floor := worked(ctx, l), int64(0)
	return func() {
		work()
		floor++
		must(0, l.Compact(ctx, floor))
	}
}
