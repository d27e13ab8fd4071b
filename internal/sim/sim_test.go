// The table: every scenario under the controller and under the best constant target.

package sim

import (
	"flag"
	"fmt"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden/limiter"
)

var (
	only   = flag.String("only", "", "")
	static = flag.Bool("static", false, "")
)
var dump = flag.Bool("dump", false, "print the trace")

func run(t *testing.T, sc Scenario, static int) (r *Result) {
	t.Helper()
	began := time.Now()
	synctest.Test(t, func(t *testing.T) {
		var err error
		if r, err = Run(sc, static); err != nil {
			t.Fatal(err)
		}
	})
	mean, cv := r.Target()
	fmt.Printf("%3d cores %-46s static %3d: goodput %.3f overall %.4f critical %.4f p50 %v p99 %v urgent %v wasted %.3f target %.1f cv %.2f  (%v)\n", sc.Cores, sc.Name, static, r.Goodput(), r.Overall(), r.Success(limiter.Critical),
		r.Latency(.5).Round(ms), r.Latency(.99).Round(ms), r.Urgent(.99).Round(ms), r.Wasted(), mean, cv, time.Since(began).Round(ms))
	if *dump && static == 0 {
		for _, p := range r.Trace {
			fmt.Printf("%6.1f T=%d shed=%.2f u=%.2f run=%.2f lag=%.1fms p50=%.0fms n=%.1f x=%.0f %s\n", p.At.Seconds(), p.Target, p.Shed, p.Utilization, p.Runnable, p.Lag*1e3, p.P50*1e3, p.Concurrency, p.Throughput, p.Reason)
		}
	}
	return r
}

func TestScenarios(t *testing.T) {
	for _, sc := range Scenarios() {
		if !regexp.MustCompile(*only).MatchString(fmt.Sprintf("%d cores %s", sc.Cores, sc.Name)) {
			continue
		}
		run(t, sc, 0)
		if *static {
			for _, s := range sc.Static {
				run(t, sc, s)
			}
		}
	}
}
