// The customers: an open-loop load generator. Requests start on schedule, whatever the latency of the shop.
package main

import (
	"cmp"
	"context"
	"encoding/json"
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
	phase   int           // index into the scenario's phases
	route   route
	product int // bought by a checkout
}

// settle is a pause in a route's traffic before its query becomes slower. No request of one phase then runs the query of the
// next, even if the machine delays it.
const settle = 500 * time.Millisecond

// plan draws the arrivals of a whole run, sorted by time: a Poisson process for each route, with its own random source.
// (Exponential gaps are memoryless, so each phase can start afresh.) The same seed gives the same plan, so every kind of shop
// gets the same requests.
func plan(sc scenario, seed uint64) []arrival {
	var all []arrival
	for r := checkout; r <= ping; r++ {
		rnd := rand.New(rand.NewPCG(seed, uint64(r)))
		begin := time.Duration(0)
		for i, p := range sc.phases {
			end, rate := begin+p.lasts, sc.pings
			if r != ping {
				rate = p.perSecond[r]
			}
			quiet := end
			if i+1 < len(sc.phases) && r != ping && sc.phases[i+1].hold[r] > p.hold[r] {
				quiet -= min(settle, p.lasts/4)
			}
			for at := begin; rate > 0; {
				at += time.Duration(rnd.ExpFloat64() / rate * float64(time.Second))
				if at >= quiet {
					break
				}
				all = append(all, arrival{at, i, r, 1 + rnd.IntN(100)})
			}
			begin = end
		}
	}
	slices.SortStableFunc(all, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
	return all
}

// customers are the clients of one shop.
type customers struct {
	url      string
	client   *http.Client
	patience time.Duration
	record   func(arrival, outcome, time.Duration) // called once per request, from many goroutines
}

func newClient() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000, DisableCompression: true}}
}

// follow sends all arrivals, relative to start, and returns when every request has its outcome. It calls enter before the
// first request of a phase. It never waits for a response before it sends the next request: a slow shop does not slow its
// clients down. When ctx ends, follow cancels the requests in flight and returns.
func (c *customers) follow(ctx context.Context, start time.Time, all []arrival, enter func(phase int)) {
	var sent sync.WaitGroup
	defer sent.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	current := -1
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
			how := c.send(ctx, a, intended)
			if ctx.Err() == nil { // otherwise the client canceled the request
				c.record(a, how, time.Since(intended))
			}
		})
	}
}

// send makes one request. Its deadline counts from the intended start, so that delays of the generator count as latency
// (no coordinated omission).
func (c *customers) send(ctx context.Context, a arrival, intended time.Time) outcome {
	ctx, cancel := context.WithDeadline(ctx, intended.Add(c.patience))
	defer cancel()
	url := c.url + a.route.path()
	if a.route == checkout {
		url += fmt.Sprintf("?product=%d", a.product)
	}
	req, err := http.NewRequestWithContext(ctx, a.route.method(), url, nil)
	if err != nil {
		return unforeseen(err)
	}
	resp, err := c.client.Do(req)
	var body []byte
	if err == nil {
		body, err = io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		err = errors.Join(err, resp.Body.Close())
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return outcome{reason: late}
	case err != nil:
		return unforeseen(err)
	case resp.StatusCode == http.StatusOK:
		return outcome{ok: true, cached: resp.Header.Get(cachedHeader)}
	}
	var problem struct{ Reason string }
	if json.Unmarshal(body, &problem) != nil || problem.Reason == "" {
		return unforeseen(fmt.Errorf("status %s: %.100s", resp.Status, body))
	}
	return outcome{reason: problem.Reason}
}
