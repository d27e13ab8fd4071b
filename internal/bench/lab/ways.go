// SPDX-License-Identifier: Apache-2.0

//go:build linux

// The ways of limiting: Stopbank and each peer, configured as its own documentation recommends.

package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/priority"
	"github.com/go-kratos/aegis/ratelimit"
	"github.com/go-kratos/aegis/ratelimit/bbr"
	"github.com/zeromicro/go-zero/core/load"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/control"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// A way is one way to protect a server: a handler around its work, or a front before it.
type way struct {
	name   string
	mount  func(work http.Handler, k *worker) (http.Handler, error)
	front  *front
	peer   bool   // another library's, that nobody told anything
	slow   bool   // engages only after many seconds of a busy processor; gets a long warm-up
	once   bool   // has one round
	binary string // a build of this program; "": this one
}

// ways returns those of servers in Go, ours first: each with the defaults that its documentation recommends.
func ways() []way {
	return []way{
		{name: "warden", mount: ours},
		{name: "failsafe", mount: failsafeAdaptive, peer: true},
		{name: "failsafe-prio", mount: failsafePriority, peer: true},
		{name: "gradient2", mount: gradient, peer: true},
		{name: "go-zero", mount: goZero, slow: true, peer: true},
		{name: "aegis", mount: aegis, slow: true, peer: true},
		{name: "none", once: true, mount: func(work http.Handler, _ *worker) (http.Handler, error) { return work, nil }},
	}
}

// refuseAll is no way: it measures the cost of a rejection alone.
const refuseAll = "refuse-all"

// constant is a warden whose limit is fixed.
func constant(n int) way {
	return way{name: fmt.Sprintf("constant %d", n), once: true, mount: func(work http.Handler, k *worker) (http.Handler, error) {
		return guard(work, k, warden.Config{Control: control.Config{Min: n, Max: n, Initial: n}})
	}}
}

func wayNamed(name string) (way, error) {
	if name == refuseAll {
		return way{mount: func(http.Handler, *worker) (http.Handler, error) {
			return http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { refuse(rw) }), nil
		}}, nil
	}
	if number, found := strings.CutPrefix(name, "constant "); found {
		n, err := strconv.Atoi(number)
		return constant(n), err
	}
	all := ways()
	if i := slices.IndexFunc(all, func(w way) bool { return w.name == name }); i >= 0 {
		return all[i], nil
	}
	return way{}, fmt.Errorf("there is no way %q", name)
}

func isCritical(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/checkout") }

func isHeavy(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/heavy") }

func refuse(w http.ResponseWriter) {
	http.Error(w, "overloaded", http.StatusServiceUnavailable)
}

// ours is a warden with its defaults behind its HTTP middleware.
func ours(work http.Handler, k *worker) (http.Handler, error) { return guard(work, k, warden.Config{}) }

func guard(work http.Handler, k *worker, c warden.Config) (http.Handler, error) {
	w, err := warden.New(c)
	if err != nil {
		return nil, err
	}
	k.warden = w
	go func() { _ = w.Run(context.Background()) }()
	m, err := wardenhttp.New(w, wardenhttp.Config{Task: func(r *http.Request) warden.Task {
		if isCritical(r) {
			return warden.Task{Priority: decision.Critical}
		}
		return warden.Task{}
	}})
	if err != nil {
		return nil, err
	}
	return m.Handler(work), nil
}

// admitting is a handler that asks begin for each request. end is called when the work has ended.
func admitting(work http.Handler, begin func(r *http.Request) (end func(), ok bool)) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		end, ok := begin(r)
		if !ok {
			refuse(rw)
			return
		}
		defer end()
		work.ServeHTTP(rw, r)
	})
}

// failsafeAdaptive: https://failsafe-go.dev/adaptive-limiter. Without queueing its executors reject immediately above the limit,
// which is TryAcquirePermit outside an executor.
func failsafeAdaptive(work http.Handler, _ *worker) (http.Handler, error) {
	l := adaptivelimiter.NewWithDefaults[any]()
	return admitting(work, func(*http.Request) (func(), bool) {
		p, ok := l.TryAcquirePermit()
		return func() { p.Record() }, ok
	}), nil
}

// failsafePriority is the example under "Prioritizers" of https://failsafe-go.dev/execution-prioritization.
func failsafePriority(work http.Handler, _ *worker) (http.Handler, error) {
	prioritizer := adaptivelimiter.NewPrioritizer()
	prioritizer.ScheduleCalibrations(context.Background(), time.Second)
	l := adaptivelimiter.NewBuilder[any]().BuildPrioritized(prioritizer)
	return admitting(work, func(r *http.Request) (func(), bool) {
		of := priority.Medium
		if isCritical(r) {
			of = priority.VeryHigh
		}
		p, err := l.AcquirePermitWithPriority(r.Context(), of)
		return func() { p.Record() }, err == nil
	}), nil
}

func gradient(work http.Handler, _ *worker) (http.Handler, error) {
	l := newGradient2()
	return admitting(work, func(*http.Request) (func(), bool) {
		inFlight, ok := l.begin()
		began := time.Now()
		return func() {
			now := time.Now()
			l.end(inFlight, now.Sub(began), now)
		}, ok
	}), nil
}

// ofMachine converts a CPU threshold, in thousandths, to what a limiter measures here: go-zero and aegis measure all processors
// of the machine, of which the server has one. flood's use of another one counts too, so they engage a little sooner.
func ofMachine(use int64) (int64, error) {
	stat, err := os.ReadFile("/proc/stat")
	return use / int64(max(1, bytes.Count(stat, []byte("\ncpu")))), err
}

// goZero is go-zero's rest server with its default CpuThreshold, without its log line for each rejection.
func goZero(work http.Handler, _ *worker) (http.Handler, error) {
	load.DisableLog()
	threshold, err := ofMachine(900)
	shedder := load.NewAdaptiveShedder(load.WithCpuThreshold(threshold))
	return admitting(work, func(*http.Request) (func(), bool) {
		promise, err := shedder.Allow()
		return func() { promise.Pass() }, err == nil
	}), err
}

// aegis is kratos' ratelimit middleware.
func aegis(work http.Handler, _ *worker) (http.Handler, error) {
	threshold, err := ofMachine(800)
	l := bbr.NewLimiter(bbr.WithCPUThreshold(threshold))
	return admitting(work, func(*http.Request) (func(), bool) {
		done, err := l.Allow()
		return func() { done(ratelimit.DoneInfo{}) }, err == nil
	}), err
}
