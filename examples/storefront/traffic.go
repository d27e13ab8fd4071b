// The customers: an open-loop load generator. Requests start when the plan says, however the shop is doing.
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
	product int // for checkout: what is bought
}

// settle is how long before a slower query ships nobody asks for it, so that no request of one phase is answered by the
// query of the next, however late the machine is.
const settle = 500 * time.Millisecond

// plan draws the arrivals of a whole run in the order of their time: for each route a Poisson process (exponential
// gaps, which have no memory, so that a phase may begin anew) with a random source of its own. The same seed gives the
// same plan, so all ways face the same customers.
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

// customers send requests to one shop.
type customers struct {
	url      string
	client   *http.Client
	patience time.Duration
	record   func(arrival, outcome, time.Duration) // called once per request, from many goroutines
}

func newClient() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000, DisableCompression: true}}
}

// follow sends the plan, beginning at start, and returns when every request has its outcome. Before the first
// request of a phase it calls enter. It never waits for an answer before it sends the next request: a slow shop
// does not slow its customers down. When ctx ends, it stops sending, drops what is on its way and returns.
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
			if ctx.Err() == nil { // else the outcome is ours, not the shop's
				c.record(a, how, time.Since(intended))
			}
		})
	}
}

// send makes one request. The deadline counts from the intended start, so that a request which started late because
// the generator was late is judged as its customer would: time that nobody measured does not vanish.
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
