// One run: the traffic of a whole scenario against one shop, with a progress report every second.
package main

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A moment is the progress of the last second.
type moment struct {
	elapsed time.Duration
	phase   string
	recent  [routes + 1]figures
	inUse   string
}

// stage connects a run to its shop and its audience.
type stage struct {
	url    string
	enter  func(phase)   // called at the start of each phase
	inUse  func() string // connections in use
	report func(moment)  // called every second
}

// run sends all requests of the scenario and returns their outcomes. When ctx ends, run returns early.
func (sc scenario) run(ctx context.Context, way string, seed uint64, on stage) result {
	client := newClient()
	defer client.CloseIdleConnections()
	counts := newTally(len(sc.phases))
	start := time.Now()
	reported := start
	report := func() {
		reported = time.Now()
		elapsed := reported.Sub(start)
		on.report(moment{elapsed, sc.phases[sc.at(elapsed-time.Second/2)].name, counts.takeRecent(), on.inUse()})
	}
	done := make(chan struct{})
	var reporting sync.WaitGroup
	reporting.Go(func() {
		every := time.NewTicker(time.Second)
		defer every.Stop()
		for {
			select {
			case <-every.C:
				report()
			case <-done:
				return
			}
		}
	})
	shoppers := customers{on.url, client, sc.patience, counts.record}
	shoppers.follow(ctx, start, plan(sc, seed), func(p int) { on.enter(sc.phases[p]) })
	close(done)
	reporting.Wait()
	if time.Since(reported) > time.Second/2 { // the run ended between two ticks
		report()
	}
	return counts.result(way, sc)
}

// runInProcess runs a scenario against a shop in this process and always closes the shop.
func runInProcess(ctx context.Context, cfg shopConfig, seed uint64, report func(moment)) (_ result, err error) {
	s, err := openShop(ctx, cfg)
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	return cfg.scenario.run(ctx, cfg.way, seed, stage{
		url: s.url, enter: func(p phase) { s.deploy(p.hold) }, inUse: s.way.inUse, report: report,
	}), nil
}
