//go:build linux

// Ours: a warden with its defaults behind its HTTP middleware, and a controller that writes down what it sees if it is asked to.

package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/control"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/monitor"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

func ours(work http.Handler, _ workload, trace bool) (http.Handler, error) {
	var cfg warden.Config
	if trace {
		c, err := control.New(control.Config{})
		if err != nil {
			return nil, err
		}
		cfg.Controller = &traced{Controller: c, begin: time.Now()}
	}
	w, err := warden.New(cfg)
	if err != nil {
		return nil, err
	}
	go func() { _ = w.Run(context.Background()) }()
	if trace {
		cfg.Controller.(*traced).warden = w
	}
	m, err := wardenhttp.New(w, wardenhttp.Config{Task: func(r *http.Request) warden.Task {
		if isCritical(r) {
			return warden.Task{Priority: warden.Critical}
		}
		return warden.Task{}
	}})
	if err != nil {
		return nil, err
	}
	return m.Handler(work), nil
}

// traced prints each sample and decision.
type traced struct {
	*control.Controller
	warden *warden.Warden
	begin  time.Time
}

func (c *traced) Step(s monitor.Sample) decision.ControlDecision {
	d := c.Controller.Step(s)
	fmt.Fprintf(os.Stderr, "%6.2fs gap %4dms  target %3d shed %.2f yields %2d expected %5.1fms  lag p50 %6.2f p90 %6.2f n %4d  util %.2f runnable %5.1f  exec p50 %6.1f p90 %6.1f n %4d x %6.1f N %5.1f  %v",
		time.Since(c.begin).Seconds(), s.Gap.Milliseconds(), d.TargetConcurrency, d.ShedProbability, d.Yields, ms(d.Expected),
		ms(s.Lag.P50), ms(s.Lag.P90), s.Lag.Count, s.Utilization.Value, s.Runnable.Value, ms(s.Service.P50), ms(s.Service.P90), s.Service.Count, s.Service.Throughput, s.Service.Concurrency, d.Reasons)
	if c.warden != nil {
		st := c.warden.Limiter().Stats()
		fmt.Fprintf(os.Stderr, "  %+v", st)
	}
	fmt.Fprintln(os.Stderr)
	return d
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
