// SPDX-License-Identifier: Apache-2.0

// The load: an open loop of clients with patience, and a closed one that measures the capacity.

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// outcome is how a client's request ended. Times are from the start of the run.
type outcome struct {
	arrival
	load    float64
	sent    time.Duration // when it was really sent: later than due if the generator could not keep up
	done    time.Duration
	status  int  // of the answer; 0: none
	hung    bool // the client left without any answer
	broken  bool // it had none either, because its connection was refused or broke
	notSent bool // too many were in flight
}

// served reports whether the client got what it asked for, in time.
func (o *outcome) served() bool {
	return o.status >= 200 && o.status < 400 && o.done <= o.due+o.route.patience
}

// refused reports whether the client heard no.
func (o *outcome) refused() bool { return o.status >= 400 }

// ended says how in a word.
func (o *outcome) ended() string {
	switch {
	case o.served():
		return "served"
	case o.refused():
		return "refused"
	case o.notSent:
		return "not sent"
	case o.hung:
		return "hung"
	case o.broken:
		return "broken"
	}
	return "late" // an answer that came as the client left
}

// execute measures the capacity and runs all loads. It returns all requests too.
func (p *plan) execute(ctx context.Context, t *target, progress io.Writer) (r *report, requests []outcome, err error) {
	r = &report{Schema: "github.com/stopbank/stopbank/flood/schema.json", URL: p.url.String(),
		HTTP: map[bool]string{false: "HTTP/1.1", true: "HTTP/2"}[p.http2]}
	if p.capacity == 0 {
		if p.capacity, err = p.measure(ctx, t, progress); err != nil {
			return nil, nil, err
		}
		r.Measured = true
	}
	r.Capacity = p.capacity
	if err := p.checkRates(t.most); err != nil {
		return nil, nil, err
	}
	for _, load := range p.loads {
		all, err := p.open(ctx, t, load, progress)
		if err != nil {
			return nil, nil, err
		}
		r.Runs = append(r.Runs, p.tally(load, all))
		requests = append(requests, all...)
	}
	return r, requests, nil
}

// measureStep is how long each number of clients is tried.
const measureStep = 2 * time.Second

// measure returns the requests per second that the service serves to clients of whom each waits for its answer: of 1, 2, 4 ... at
// a time, until twice as many are not served 5 % more.
func (p *plan) measure(ctx context.Context, t *target, progress io.Writer) (float64, error) {
	best := 0.0
	for clients := 1; clients <= 1024; clients *= 2 {
		rate := p.closed(ctx, t, clients)
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		fmt.Fprintf(progress, "capacity: %4d at a time: %.1f/s\n", clients, rate)
		enough := rate < 1.05*best
		if best = max(best, rate); enough && clients > 2 {
			break
		}
	}
	if best == 0 {
		return 0, errors.New("the service served no request, so its capacity is unknown: is the URL right?")
	}
	return best, nil
}

// closed keeps so many requests in flight for measureStep, and returns how many per second were served in its second half.
func (p *plan) closed(ctx context.Context, t *target, clients int) float64 {
	began := time.Now()
	ctx, cancel := context.WithDeadline(ctx, began.Add(measureStep))
	defer cancel()
	var served atomic.Int64
	var all sync.WaitGroup
	pause := time.Duration(float64(clients) / t.most * float64(time.Second)) // between two of one client
	for range clients {
		all.Go(func() {
			for ctx.Err() == nil {
				next := time.Now().Add(pause)
				status := t.send(ctx, p.draw(rand.Float64()), mostPatience) //nolint:gosec // a mix of routes
				if status >= 200 && status < 400 && time.Since(began) > measureStep/2 && ctx.Err() == nil {
					served.Add(1)
				}
				if status == 0 || status >= 400 {
					next = next.Add(10 * time.Millisecond) // a service that refuses at once is not to be asked in a tight loop
				}
				sleep(ctx, time.Until(next))
			}
		})
	}
	all.Wait()
	return float64(served.Load()) / (measureStep / 2).Seconds()
}

// sleep waits, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// open sends the requests of one load at their times.
func (p *plan) open(ctx context.Context, t *target, load float64, progress io.Writer) ([]outcome, error) {
	arrivals := p.arrivals(load)
	all := make([]outcome, len(arrivals))
	var flight atomic.Int64
	var mu sync.Mutex // guards last
	var last counts   // what ended in this second
	var clients, shown sync.WaitGroup
	began, ended, ticks := time.Now(), make(chan struct{}), time.Tick(time.Second)
	shown.Go(func() {
		for {
			select {
			case <-ended:
				return
			case <-ticks:
				mu.Lock()
				fmt.Fprintf(progress, "%gx %4.0fs: %5d served, %5d refused, %5d hung, %5d broken, %5d in flight\n", load, time.Since(began).Seconds(),
					last.Served, last.Refused, last.Hung, last.Broken, flight.Load())
				last = counts{}
				mu.Unlock()
			}
		}
	})
	defer shown.Wait()
	defer close(ended)
	for i, a := range arrivals {
		if sleep(ctx, a.due-time.Since(began)); ctx.Err() != nil {
			break
		}
		o := &all[i]
		o.arrival, o.load, o.sent = a, load, time.Since(began)
		if flight.Load() >= mostInFlight {
			o.notSent, o.hung = true, true
			continue
		}
		flight.Add(1)
		clients.Go(func() {
			defer flight.Add(-1)
			p.ask(ctx, t, o, began)
			mu.Lock()
			last.add(o)
			mu.Unlock()
		})
	}
	clients.Wait()
	return all, ctx.Err()
}

// ask is one client: it waits for the answer until its patience ends.
func (p *plan) ask(ctx context.Context, t *target, o *outcome, began time.Time) {
	leaves := began.Add(o.due + o.route.patience)
	ctx, cancel := context.WithDeadline(ctx, leaves)
	defer cancel()
	o.status = t.send(ctx, o.route, time.Until(leaves))
	o.done = time.Since(began)
	o.broken = o.status == 0 && ctx.Err() == nil
	o.hung = o.status == 0 && !o.broken
}
