// SPDX-License-Identifier: Apache-2.0

// A game: a deployment of its own, a Prometheus of its own, health, one fault, and an operator who looks until it is named.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stopbank/stopbank/internal/system/deploy"
)

const (
	every   = 5 * time.Second  // scrapes and evaluations
	look    = 10 * time.Second // between two looks of the operator
	settled = time.Minute      // processes run for so long before what fires or is named is a false alarm
	workers = 2                // of the orders
	token   = "an operator of the fault game"
)

// A result is what one game has shown.
type result struct {
	Commit  string   `json:"commit"`
	Healthy float64  `json:"healthy"` // minutes before the injection
	Named   *named   `json:"named,omitempty"`
	Ill     labels   `json:"ill,omitempty"`
	Right   bool     `json:"right"`
	Minutes float64  `json:"minutes"`         // from the injection to the name, or to the end
	First   string   `json:"first,omitempty"` // the first alert after the injection
	Alerted float64  `json:"alerted"`         // minutes from the injection to it
	Alerts  []string `json:"alerts,omitempty"`
	False   []string `json:"false,omitempty"` // alerts and names before the injection, or in health
}

// A game is being played.
type game struct {
	fault
	settings

	dir       string
	began     time.Time
	injection time.Time
	prom      *server
	shop      *deploy.Deployment
	work      *deploy.Deployment
	pod       *deploy.Replica // of the storefront, the ill one
	illWorker *deploy.Replica
	engine    *deploy.Program // of the orders
	operator  operator
	stop      []func() error
}

// play plays one game.
func (s settings) play(ctx context.Context, f fault) (r result, err error) {
	g := &game{fault: f, settings: s}
	if g.dir, err = os.MkdirTemp(s.binaries, f.name+"-"); err != nil {
		return result{}, err
	}
	g.began = time.Now()
	health := s.warm + rand.N(s.warm/3+1)
	g.injection = g.began.Add(health)
	r = result{Commit: s.commit, Healthy: health.Minutes()}
	ctx, cancel := context.WithCancel(ctx)
	var background sync.WaitGroup
	defer func() {
		cancel()
		background.Wait()
		for _, stop := range slices.Backward(g.stop) {
			err = errors.Join(err, stop())
		}
	}()
	if err := g.start(ctx, &background); err != nil {
		return result{}, err
	}
	if f.hook != nil {
		background.Go(func() {
			if deploy.Sleep(ctx, time.Until(g.injection)) == nil {
				if err := f.hook(ctx, g); err != nil && ctx.Err() == nil {
					g.say("the hook failed: %v", err)
					cancel()
				}
			}
		})
	}
	err = g.watch(ctx, &r)
	r.Ill = g.illLabels()
	switch {
	case err != nil:
	case f.calm:
		r.Right = len(r.pages()) == 0 && (r.Named == nil || slices.Contains(f.named, r.Named.Name))
	case r.Named != nil:
		r.Right = f.right(r.Named, r.Ill)
	}
	return r, err
}

// start starts Prometheus, pods, workers and customers.
func (g *game) start(ctx context.Context, background *sync.WaitGroup) (err error) {
	if g.prom, err = startPrometheus(ctx, g.dir); err != nil {
		return err
	}
	g.stop = append(g.stop, g.prom.stop)
	g.operator = operator{g.runbook, g.prom.query}
	g.shop = &deploy.Deployment{
		Binary: filepath.Join(g.binaries, "storefront"),
		Args:   append([]string{"-serve", "-until-eof", "-listen", "127.0.0.1:0"}, g.args...),
		Env:    append([]string{"STOREFRONT_TOKEN=" + token}, g.env...),
	}
	if g.pod, err = g.serve(g.shop, cmp.Or(g.pods, 2), g.ill); err != nil {
		return err
	}
	// An engine, five orders a second, and the workers.
	orders := filepath.Join(g.binaries, "orders")
	shared := []string{"-run", "game", "-customers", "40", "-partitions", "6", "-session", "5s"}
	if g.engine, err = deploy.Launch(orders, append(slices.Clone(shared), "-rate", "5", "-dir", g.dir), nil, "servers:"); err != nil {
		return err
	}
	g.stop = append(g.stop, g.engine.Stop)
	g.work = &deploy.Deployment{Binary: orders, Args: append(shared, "-replica", "1"),
		Env: []string{"ORDERS_SERVERS=" + g.engine.Said("servers:")}}
	if g.illWorker, err = g.serve(g.work, workers, g.task); err != nil {
		return err
	}
	load := g.load
	if load == nil {
		load = deploy.Usual
	}
	background.Go(func() {
		g.shop.Shopping(ctx, func(at time.Duration) deploy.Load { return load(g.began.Add(at).Sub(g.injection)) })
	})
	background.Go(func() { g.discover(ctx) })
	return nil
}

// serve starts n processes. One of them, which it returns, has the fault from the injection on.
func (g *game) serve(d *deploy.Deployment, n int, fault string) (ill *deploy.Replica, err error) {
	g.stop = append(g.stop, d.Stop)
	which := rand.IntN(n)
	for i := range n {
		var args []string
		if i == which && fault != "" {
			args = []string{"-fault", fault, "-fault-after", time.Until(g.injection).String()}
		}
		r, err := d.Start("127.0.0.1:0", args...)
		if err != nil {
			return nil, err
		}
		if i == which {
			ill = r
		}
	}
	return ill, nil
}

// discover tells Prometheus which processes there are, as a service discovery does, until ctx ends.
func (g *game) discover(ctx context.Context) {
	for last := ""; ctx.Err() == nil; _ = deploy.Sleep(ctx, time.Second) {
		jobs := map[string][]string{}
		for job, d := range map[string]*deploy.Deployment{"storefront": g.shop, "orders": g.work} {
			for _, r := range d.All() {
				jobs[job] = append(jobs[job], r.Ops)
			}
		}
		if now := fmt.Sprint(jobs); now != last {
			if err := g.prom.scrape(jobs); err != nil {
				g.say("service discovery: %v", err)
			}
			last = now
		}
	}
}

// illLabels are those of what is ill: a worker and its partition, or a pod.
func (g *game) illLabels() labels {
	if g.task != "" {
		return labels{"instance": g.illWorker.Ops, "partition": g.illWorker.Said("ill: ")}
	}
	return labels{"instance": g.pod.Ops}
}

// watch looks at the alerts and walks through the runbook every ten seconds, in health as well. What two looks in a row name is named.
// It returns when a fault is named after its injection and an alert has fired, or fires none for so long, or when the time is up.
func (g *game) watch(ctx context.Context, r *result) error {
	end := g.injection.Add(cmp.Or(g.wait, 12*time.Minute))
	seen := map[string]bool{} // alerts, and what was named in health
	before := ""              // what the look before has named
	for ; ctx.Err() == nil && time.Now().Before(end); _ = deploy.Sleep(ctx, look) {
		firing, err := g.prom.firing(ctx)
		if err != nil {
			return err
		}
		g.note(firing, seen, r)
		if r.Named != nil && !g.calm {
			if r.First != "" || time.Since(g.injection) > g.called {
				return nil
			}
			continue
		}
		said, ok, err := g.operator.look(ctx, firing)
		if err != nil {
			return err
		}
		now := ""
		if ok {
			now = said.Name + said.Labels.short()
		}
		path := strings.Join(said.Path, "\n    ")
		switch {
		case now == "" || now != before || time.Since(g.began) < settled:
		case time.Now().After(g.injection) && !g.calm || g.calm && slices.Contains(g.named, said.Name):
			r.Named, r.Minutes = &said, time.Since(g.injection).Minutes()
			g.say("named from %s: %s\n    %s", said.From, now, path)
		case !seen[now]:
			seen[now] = true
			r.False = append(r.False, "named "+now)
			g.say("in health named from %s: %s\n    %s", said.From, now, path)
		}
		before = now
	}
	if r.Named == nil || g.calm {
		r.Minutes = time.Since(g.injection).Minutes()
	}
	return ctx.Err()
}

// note keeps the alerts that have not fired before.
func (g *game) note(firing []alert, seen map[string]bool, r *result) {
	for _, a := range firing {
		text := a.Severity + " " + a.Name + a.Labels.short()
		if seen[text] {
			continue
		}
		seen[text] = true
		g.say("%s", text)
		if injected := time.Now().After(g.injection); !injected || g.calm {
			r.False = append(r.False, text)
		} else if r.Alerts = append(r.Alerts, text); r.First == "" {
			r.First, r.Alerted = a.Name, time.Since(g.injection).Minutes()
		}
	}
}

func (g *game) say(format string, args ...any) {
	fmt.Printf("%s %-14s %7v  %s\n", time.Now().Format(time.TimeOnly), g.name, time.Since(g.injection).Round(time.Second),
		fmt.Sprintf(format, args...))
}

// pages are the pages among the false alarms.
func (r *result) pages() []string {
	return slices.DeleteFunc(slices.Clone(r.False), func(text string) bool { return !strings.HasPrefix(text, "page ") })
}
