// SPDX-License-Identifier: Apache-2.0

// What a call costs beside the limiter's own.

package bulkhead

import (
	"context"
	"fmt"
	"testing"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
)

func nothing(context.Context) (int, error) { return 0, nil }

func BenchmarkDo(b *testing.B) {
	ctx := context.Background()
	l, _ := limiter.New(limiter.Config{Initial: decision.ControlDecision{Seq: 1, TargetConcurrency: 100}})
	run := func(name string, do func()) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				do()
			}
		})
		b.Run(name+"/parallel", func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					do()
				}
			})
		})
	}
	run("limiter", func() { _, _ = limiter.Do(ctx, l, decision.Task{}, nothing) })
	for _, c := range []CompartmentConfig{
		{Name: "kept", Guaranteed: 50},
		{Name: "unreserved", Max: 50},
		{Name: "wait", Guaranteed: 50, MaxQueue: 1, MaxWait: 1e9},
		{Name: "timeout", Guaranteed: 50, Timeout: 1e9},
		{Name: "tenants", Guaranteed: 50, MaxQueue: 1, Tenants: TenantsConfig{Max: 50}},
	} {
		s := must(New(Config{Total: 100, Compartments: []CompartmentConfig{c}}))(b)
		k := s.Compartment(c.Name).Tenant("")
		run(c.Name, func() { _, _ = Do(ctx, k, nothing) })
	}
}

func BenchmarkTenant(b *testing.B) {
	const keys = 100_000
	s := must(New(Config{Total: 100, Compartments: []CompartmentConfig{
		{Name: "a", Guaranteed: 50, MaxQueue: 1, Tenants: TenantsConfig{Max: 50, Keys: keys}},
	}}))(b)
	c := s.Compartment("a")
	names := make([]string, keys)
	for i := range names {
		names[i] = fmt.Sprintf("tenant-%d", i*7919%keys)
		c.Tenant(names[i])
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		c.Tenant(names[i%keys])
		i++
	}
}
