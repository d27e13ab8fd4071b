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
	at    time.Duration // since the start of the run
	phase int           // index into the scenario's phases
	route route
}

// plan draws the arrivals of a whole run, sorted by time: a Poisson process for each route, with its own random source.
// (Exponential gaps are memoryless, so each phase can start afresh.) The same seed gives the same plan, so every kind of shop
// gets the same requests.
func (sc scenario) plan(seed uint64) (all []arrival) {
	for r := range routes {
		random := rand.New(rand.NewPCG(seed, uint64(r)))
		begin := time.Duration(0)
		for i, p := range sc.phases {
			for at := begin; p.perSecond[r] > 0; {
				at += time.Duration(random.ExpFloat64() / p.perSecond[r] * float64(time.Second))
				if at >= begin+p.lasts {
					break
				}
				all = append(all, arrival{at, i, r})
			}
			begin += p.lasts
		}
	}
	slices.SortStableFunc(all, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
	return all
}

// follow sends all arrivals to a shop and returns when every request has its outcome. It calls enter before the first request of
// a phase. It never waits for a response before it sends the next request: a slow shop does not slow its clients down. When
// ctx ends, follow cancels the requests in flight and returns.
func (sc scenario) follow(ctx context.Context, url string, start time.Time, all []arrival, enter func(phase)) result {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000, DisableCompression: true}}
	defer client.CloseIdleConnections()
	res := make(result, len(sc.phases))
	var mu sync.Mutex // guards res
	var sent sync.WaitGroup
	defer sent.Wait()
	current := -1
	for _, a := range all {
		select {
		case <-time.After(time.Until(start.Add(a.at))):
		case <-ctx.Done():
			return res
		}
		for current < a.phase {
			current++
			enter(sc.phases[current])
		}
		sent.Go(func() {
			intended := start.Add(a.at)
			ended := sc.send(ctx, client, url, a.route, intended)
			took := time.Since(intended)
			mu.Lock()
			defer mu.Unlock()
			if ctx.Err() == nil { // otherwise the client canceled the request
				res[a.phase][a.route].record(ended, took)
			}
		})
	}
	sent.Wait()
	return res
}

// An outcome is the result of one request, as its client sees it: "", cached, the server's reason, late or other.
type outcome string

const (
	cached outcome = "cached" // an answer from the fallback, which counts as success
	late   outcome = "late"   // the client's deadline passed
	other  outcome = "other"  // an unexpected error
)

// send makes one request. Its deadline counts from the intended start, so that delays of the generator count as latency
// (no coordinated omission).
func (sc scenario) send(ctx context.Context, client *http.Client, url string, r route, intended time.Time) outcome {
	ctx, cancel := context.WithDeadline(ctx, intended.Add(sc.patience))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, about[r].method, url+about[r].path, nil)
	if err != nil {
		return other
	}
	resp, err := client.Do(req)
	var body []byte
	if err == nil {
		body, err = io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		err = errors.Join(err, resp.Body.Close())
	}
	var problem struct{ Reason outcome }
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return late
	case err == nil && resp.StatusCode == http.StatusOK && resp.Header.Get(cachedHeader) != "":
		return cached
	case err == nil && resp.StatusCode == http.StatusOK:
		return ""
	case err == nil && json.Unmarshal(body, &problem) == nil && problem.Reason != "":
		return problem.Reason
	}
	return other
}

// demand sends the first phase's traffic again and again until ctx ends.
func (sc scenario) demand(ctx context.Context, url string, seed uint64) {
	sc.phases = sc.phases[:1]
	for ; ctx.Err() == nil; seed++ {
		sc.follow(ctx, url, time.Now(), sc.plan(seed), func(phase) {})
	}
}

// reasons lists the reasons of failures, and cached answers, most frequent first.
func (f figures) reasons() (text string) {
	var all []outcome
	for reason := range f.by {
		if reason != "" {
			all = append(all, reason)
		}
	}
	slices.SortFunc(all, func(a, b outcome) int { return cmp.Or(cmp.Compare(f.by[b], f.by[a]), cmp.Compare(a, b)) })
	for _, reason := range all {
		text += fmt.Sprintf("  %s %d", reason, f.by[reason])
	}
	return text
}
