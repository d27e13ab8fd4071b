// SPDX-License-Identifier: Apache-2.0

// The load report in trailers: who gets it, and what it says (H28).

package wardengrpc_test

import (
	"context"
	"math"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/monitor"
	"github.com/stopbank/stopbank/warden/wardengrpc"
)

// measured is a sampler that measures the same each time.
type measured monitor.Sample

func (m measured) Sample() monitor.Sample { return monitor.Sample(m) }

// reportOf reads the report of a trailer: values by their field numbers in xds.data.orca.v3.OrcaLoadReport; nil: there is none.
func reportOf(t *testing.T, trailer metadata.MD) map[protowire.Number]float64 {
	t.Helper()
	values := trailer.Get("endpoint-load-metrics-bin")
	if len(values) == 0 {
		return nil
	}
	report := map[protowire.Number]float64{}
	for b := []byte(values[0]); len(b) > 0; {
		number, kind, n := protowire.ConsumeTag(b)
		v, m := protowire.ConsumeFixed64(b[max(n, 0):])
		if n < 0 || m < 0 || kind != protowire.Fixed64Type || len(values) != 1 {
			t.Fatalf("H28: %x in %q", b, values)
		}
		report[number], b = math.Float64frombits(v), b[n+m:]
	}
	return report
}

// TestLoadIsForTheTrusted: calls of trusted clients get it in their trailer, streams and rejections included.
func TestLoadIsForTheTrusted(t *testing.T) {
	for _, slots := range []int{0, 4} {
		// A sample is older than an interval at most: what is measured is the same each time.
		w := must(warden.New(warden.Config{
			Controller: ruling{Seq: 1, TargetConcurrency: slots, ShedProbability: 1}, Interval: 10 * time.Millisecond,
			Sampler: measured{Utilization: monitor.Reading{Value: 0.5, OK: true}, Service: monitor.Service{Count: 3}},
		}))(t)
		until(t, "a load", func() bool {
			if _, p, err := w.Acquire(t.Context(), warden.Task{}); err == nil {
				p.Failed().Release()
			}
			return w.Load().Served > 0 && w.Load().Failed > 0
		})
		trusted := func(ctx context.Context, _ string) bool {
			return metadata.ValueFromIncomingContext(ctx, "balancer") != nil
		}
		for _, reports := range []bool{false, true} {
			s := serving(func(context.Context) error { return nil })
			client := served(t, s, mustNew(t, w, wardengrpc.Config{LoadReports: reports, Trusted: trusted}))
			for _, balancer := range []bool{false, true} {
				for kind, call := range kinds {
					ctx := t.Context()
					if balancer {
						ctx = metadata.AppendToOutgoingContext(ctx, "balancer", "1")
					}
					var trailer metadata.MD
					if err := call(ctx, client, grpc.Trailer(&trailer)); (err == nil) != (slots > 0) {
						t.Errorf("H28: %v with %d slots", err, slots)
					}
					got := reportOf(t, trailer)
					// 9 is application_utilization, 6 rps_fractional, 7 eps.
					if want := reports && balancer; want != (got != nil) {
						t.Errorf("H28: %s with %d slots: %v, want a report: %t", kind, slots, got, want)
					} else if want && (len(got) != 3 || got[9] < 0.49 || got[6] <= 0 || got[7] <= 0) {
						t.Errorf("H28: %s with %d slots: %v", kind, slots, got)
					}
				}
			}
		}
	}
}
