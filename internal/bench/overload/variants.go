// SPDX-License-Identifier: Apache-2.0

//go:build linux

// The variants: Stopbank and each peer, configured as its own documentation recommends.

package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/priority"
	"github.com/go-kratos/aegis/ratelimit"
	"github.com/go-kratos/aegis/ratelimit/bbr"
	"github.com/zeromicro/go-zero/core/load"
	"golang.org/x/sync/semaphore"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/monitor"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// A variant is one way to protect a server.
type variant struct {
	name, about string
	mount       func(work http.Handler, k *worker) (http.Handler, error)
	peer        bool // another library's, that nobody told anything
	right       bool // needs a workload with a known right number
	pool        bool // ours, told of a pool; needs a workload that has one
	slow        bool // engages only after many seconds of a busy processor; gets a long warm-up
}

// variants returns all of them in the order of the report, ours first.
func variants() []variant {
	return []variant{
		{name: "warden", about: "`warden.New(warden.Config{})`: defaults, no knowledge of the capacity", mount: ours},
		{name: "warden-pool", about: "`warden`, told its pool: `Config.Pools` has the connections that the work needs", mount: oursPool,
			pool: true},
		{name: "none", about: "no limiter", mount: none},
		{name: "static", about: "a bound that is told the right number, and refuses beyond it", mount: static, right: true},
		{name: "semaphore", about: "golang.org/x/sync/semaphore with the right number; waits in order until its context ends",
			mount: queued, right: true},
		{name: "failsafe", about: "failsafe-go adaptivelimiter, defaults", mount: failsafeAdaptive, peer: true},
		{name: "failsafe-queue", about: "failsafe-go adaptivelimiter as in its page's first example: limits 1, 100, 20, queueing 2, 3",
			mount: failsafeQueue, peer: true},
		{name: "failsafe-prio", about: "failsafe-go prioritized adaptivelimiter, calibrated every second as its page shows",
			mount: failsafePriority, peer: true},
		{name: "gradient2", about: "the law of Netflix concurrency-limits' Gradient2, with the defaults and in the window of its README, written for this bench", mount: gradient, peer: true},
		{name: "go-zero", about: "go-zero core/load adaptive shedder, CpuThreshold 900 as in rest.RestConf, of the server's core",
			mount: goZero, slow: true, peer: true},
		{name: "aegis", about: "go-kratos/aegis bbr, defaults as in kratos' ratelimit middleware, CPUThreshold 800 of the server's core", mount: aegis, slow: true, peer: true},
	}
}

// refuseAll is no variant: it measures the cost of a rejection alone.
const refuseAll = "refuse-all"

func variantNamed(name string) (variant, error) {
	if name == refuseAll {
		return variant{mount: func(http.Handler, *worker) (http.Handler, error) {
			return http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { refuse(rw) }), nil
		}}, nil
	}
	all := variants()
	if i := slices.IndexFunc(all, func(v variant) bool { return v.name == name }); i >= 0 {
		return all[i], nil
	}
	return variant{}, fmt.Errorf("there is no variant %q", name)
}

func isCritical(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/critical") }

func isHeavy(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/heavy") }

func refuse(w http.ResponseWriter) {
	http.Error(w, "overloaded", http.StatusServiceUnavailable)
}

// ours is a warden with its defaults behind its HTTP middleware.
func ours(work http.Handler, k *worker) (http.Handler, error) { return guard(work, k, warden.Config{}) }

func oursPool(work http.Handler, k *worker) (http.Handler, error) {
	return guard(work, k, warden.Config{Pools: []monitor.Pool{k.pool()}})
}

func guard(work http.Handler, k *worker, c warden.Config) (http.Handler, error) {
	w, err := warden.New(c)
	if err != nil {
		return nil, err
	}
	go func() { _ = w.Run(context.Background()) }()
	m, err := wardenhttp.New(w, wardenhttp.Config{Task: func(r *http.Request) warden.Task {
		t := warden.Task{Patient: k.patient}
		if isCritical(r) {
			t.Priority = decision.Critical
		}
		return t
	}})
	if err != nil {
		return nil, err
	}
	return m.Handler(work), nil
}

func none(work http.Handler, _ *worker) (http.Handler, error) { return work, nil }

// static is the simplest protection: a constant concurrency limit, and 503 above it.
func static(work http.Handler, k *worker) (http.Handler, error) {
	places := make(chan struct{}, k.right)
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
			work.ServeHTTP(rw, r)
		default:
			refuse(rw)
		}
	}), nil
}

func queued(work http.Handler, k *worker) (http.Handler, error) {
	places := semaphore.NewWeighted(int64(k.right))
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if places.Acquire(r.Context(), 1) != nil {
			refuse(rw)
			return
		}
		defer places.Release(1)
		work.ServeHTTP(rw, r)
	}), nil
}

// failsafeAdaptive: https://failsafe-go.dev/adaptive-limiter. Without queueing its executors reject immediately above the limit,
// which is TryAcquirePermit outside an executor.
func failsafeAdaptive(work http.Handler, _ *worker) (http.Handler, error) {
	l := adaptivelimiter.NewWithDefaults[any]()
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		p, ok := l.TryAcquirePermit()
		if !ok {
			refuse(rw)
			return
		}
		defer p.Record()
		work.ServeHTTP(rw, r)
	}), nil
}

// failsafeQueue is the example under "Basic Usage" of that page.
func failsafeQueue(work http.Handler, _ *worker) (http.Handler, error) {
	l := adaptivelimiter.NewBuilder[any]().
		WithLimits(1, 100, 20).
		WithRecentWindow(time.Second, 30*time.Second, 50).
		WithBaselineWindow(10).
		WithQueueing(2, 3).
		Build()
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		p, err := l.AcquirePermit(r.Context())
		if err != nil {
			refuse(rw)
			return
		}
		defer p.Record()
		work.ServeHTTP(rw, r)
	}), nil
}

// failsafePriority is the example under "Prioritizers" of https://failsafe-go.dev/execution-prioritization.
func failsafePriority(work http.Handler, _ *worker) (http.Handler, error) {
	prioritizer := adaptivelimiter.NewPrioritizer()
	prioritizer.ScheduleCalibrations(context.Background(), time.Second)
	l := adaptivelimiter.NewBuilder[any]().BuildPrioritized(prioritizer)
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		p := priority.Medium
		if isCritical(r) {
			p = priority.VeryHigh
		}
		permit, err := l.AcquirePermitWithPriority(r.Context(), p)
		if err != nil {
			refuse(rw)
			return
		}
		defer permit.Record()
		work.ServeHTTP(rw, r)
	}), nil
}

// ofMachine converts a CPU threshold, in thousandths, to what a limiter measures here: go-zero and aegis measure all processors
// of the machine, of which the server has n. flood's use of another one counts too, so they engage a little sooner.
func ofMachine(use int64, n int) (int64, error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	return use * int64(n) / int64(bytes.Count(stat, []byte("\ncpu"))), nil
}

// goZero is go-zero's rest server with its default CpuThreshold, without its log line for each rejection.
func goZero(work http.Handler, k *worker) (http.Handler, error) {
	load.DisableLog()
	threshold, err := ofMachine(900, k.processors)
	if err != nil {
		return nil, err
	}
	shedder := load.NewAdaptiveShedder(load.WithCpuThreshold(threshold))
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		promise, err := shedder.Allow()
		if err != nil {
			refuse(rw)
			return
		}
		defer promise.Pass()
		work.ServeHTTP(rw, r)
	}), nil
}

// aegis is kratos' ratelimit middleware.
func aegis(work http.Handler, k *worker) (http.Handler, error) {
	threshold, err := ofMachine(800, k.processors)
	if err != nil {
		return nil, err
	}
	l := bbr.NewLimiter(bbr.WithCPUThreshold(threshold))
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		done, err := l.Allow()
		if err != nil {
			refuse(rw)
			return
		}
		defer done(ratelimit.DoneInfo{})
		work.ServeHTTP(rw, r)
	}), nil
}
