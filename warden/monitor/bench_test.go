// What sampling and recording cost.

package monitor_test

import (
	"testing"

	"github.com/stopbank/stopbank/warden/monitor"
)

func BenchmarkSample(b *testing.B) {
	for _, fed := range []bool{false, true} {
		name := "alone"
		if fed {
			name = "fed"
		}
		b.Run(name, func(b *testing.B) {
			var cfg monitor.Config
			if fed {
				cfg.Recorder = monitor.NewRecorder()
			}
			s := mustNew(b, cfg)
			b.ReportAllocs()
			for b.Loop() {
				cfg.Recorder.Start("").End()
				s.Sample()
			}
		})
	}
}

func BenchmarkRecorder(b *testing.B) {
	r := monitor.NewRecorder()
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
