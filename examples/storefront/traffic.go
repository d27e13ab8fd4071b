// The customers: an open-loop load generator. Requests start when the plan says, however the shop is doing.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"
)

// An arrival is one request of the plan.
type arrival struct {
	at      time.Duration // since the start of the run
	phase   phase
	route   route
	product int // for checkout: what is bought
}

// plan draws the arrivals of a whole run in the order of their time: for each route a Poisson process (exponential
// gaps) with a random source of its own. The same seed gives the same plan, so both ways face the same customers.
func plan(sc scenario, seed uint64) []arrival {
	var all []arrival
	for r := range routes {
		rnd := rand.New(rand.NewPCG(seed, uint64(r)))
		at := time.Duration(0)
		for {
			at += time.Duration(rnd.ExpFloat64() / sc.perSecond[r] * float64(time.Second))
			if at >= sc.duration() {
				break
			}
			all = append(all, arrival{at, sc.at(at), r, 1 + rnd.IntN(100)})
		}
	}
	slices.SortStableFunc(all, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
	return all
}

// customers send requests to one shop.
type customers struct {
	url      string
	client   *http.Client
	patience time.Duration
	record   func(arrival, outcome, time.Duration, error) // called once per request, from many goroutines
}

func newClient() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000, DisableCompression: true}}
}

// follow sends the plan, beginning at start, and returns when every request has its outcome. Before the first
// request of a phase it calls enter. It never waits for an answer before it sends the next request: a slow shop
// does not slow its customers down. When ctx ends, it stops sending, drops what is on its way and returns.
func (c *customers) follow(ctx context.Context, start time.Time, all []arrival, enter func(phase)) {
	var sent sync.WaitGroup
	defer sent.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	current := phase(-1)
	for _, a := range all {
		timer.Reset(time.Until(start.Add(a.at)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		if a.phase != current {
			current = a.phase
			enter(current)
		}
		sent.Go(func() {
			intended := start.Add(a.at)
			how, err := c.send(ctx, a, intended)
			if ctx.Err() == nil { // else the outcome is ours, not the shop's
				c.record(a, how, time.Since(intended), err)
			}
		})
	}
}

// send makes one request. The deadline counts from the intended start, so that a request which started late because
// the generator was late is judged as its customer would: time that nobody measured does not vanish.
func (c *customers) send(ctx context.Context, a arrival, intended time.Time) (outcome, error) {
	ctx, cancel := context.WithDeadline(ctx, intended.Add(c.patience))
	defer cancel()
	method, path := http.MethodGet, ""
	switch a.route {
	case checkout:
		method, path = http.MethodPost, fmt.Sprintf("/checkout?product=%d", a.product)
	case products:
		path = "/products"
	case analytics:
		path = "/analytics/report"
	case admin:
		path = "/admin/counts"
	}
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, nil)
	if err != nil {
		return otherFailure, err
	}
	resp, err := c.client.Do(req)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		err = errors.Join(err, resp.Body.Close())
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return clientTimeout, err
	case err != nil:
		return otherFailure, err
	case resp.StatusCode == http.StatusOK:
		return succeeded, nil
	case resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") != "":
		return gateRejected, nil
	case resp.StatusCode == http.StatusGatewayTimeout:
		return poolTimeout, nil
	}
	return otherFailure, fmt.Errorf("status %s", resp.Status)
}
