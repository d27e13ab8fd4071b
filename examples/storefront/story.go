// One run: a shop, the traffic of a whole scenario, and what a person would see of it second by second.
package main

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A moment is what the last second looked like.
type moment struct {
	elapsed time.Duration
	phase   string
	recent  [routes + 1]figures
	inUse   string
}

// stage is where a story is told.
type stage struct {
	url   string
	enter func(phase)
	inUse func() string
	tell  func(moment)
}

// run sends the whole scenario and returns what became of it. When ctx ends, it returns early.
func (sc scenario) run(ctx context.Context, way string, seed uint64, on stage) result {
	client := newClient()
	defer client.CloseIdleConnections()
	counts := newTally(len(sc.phases))
	start := time.Now()
	said := start
	say := func() {
		said = time.Now()
		elapsed := said.Sub(start)
		on.tell(moment{elapsed, sc.phases[sc.at(elapsed-time.Second/2)].name, counts.takeRecent(), on.inUse()})
	}
	done := make(chan struct{})
	var saying sync.WaitGroup
	saying.Go(func() {
		every := time.NewTicker(time.Second)
		defer every.Stop()
		for {
			select {
			case <-every.C:
				say()
			case <-done:
				return
			}
		}
	})
	shoppers := customers{on.url, client, sc.patience, counts.record}
	shoppers.follow(ctx, start, plan(sc, seed), func(p int) { on.enter(sc.phases[p]) })
	close(done)
	saying.Wait()
	if time.Since(said) > time.Second/2 { // the last second ended before its tick
		say()
	}
	return counts.result(way, sc)
}

// runHere tells a scenario in a shop of this process and takes it down again, also when ctx ends early.
func runHere(ctx context.Context, cfg shopConfig, seed uint64, tell func(moment)) (_ result, err error) {
	s, err := openShop(ctx, cfg)
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	return cfg.scenario.run(ctx, cfg.way, seed, stage{
		url: s.url, enter: func(p phase) { s.deploy(p.hold) }, inUse: s.way.inUse, tell: tell,
	}), nil
}
