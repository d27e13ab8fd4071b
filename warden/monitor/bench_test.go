// SPDX-License-Identifier: Apache-2.0

// What sampling and recording cost.

package monitor_test

import (
	"testing"

	"github.com/stopbank/stopbank/warden/monitor"
)

func BenchmarkSample(b *testing.B) {
	for name, r := range map[string]func(*monitor.Sampler) *monitor.Recorder{
		"alone": func(*monitor.Sampler) *monitor.Recorder { return nil }, "fed": (*monitor.Sampler).Recorder,
	} {
		b.Run(name, func(b *testing.B) {
			s := mustNew(b)
			work := r(s)
			b.ReportAllocs()
			for b.Loop() {
				work.Start("").End()
				s.Sample()
			}
		})
	}
}

func BenchmarkRecorder(b *testing.B) {
	r := mustNew(b).Recorder()
	b.Run("serial", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			r.Start("").End()
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				r.Start("").End()
			}
		})
	})
}
