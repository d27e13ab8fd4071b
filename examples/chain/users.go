// The users: an open-loop load generator. Requests start on schedule, whatever the latency of the services.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/decision"
)

// idHeader has the number of a request. All calls forward it, in both phases, to correlate the logs.
const idHeader = "X-Request-Id"

// A route is one kind of request.
type route int

// The routes.
const (
	checkout route = iota
	receipts
	reports
	routes
)

func (r route) String() string { return [routes]string{"checkout", "receipts", "reports"}[r] }

func (r route) method() string {
	return [routes]string{http.MethodPost, http.MethodGet, http.MethodGet}[r]
}

func (r route) priority() decision.Priority {
	return [routes]decision.Priority{decision.Critical, decision.Normal, decision.Background}[r]
}

// task gives a request the name of its route, if it has one, and its priority at the gateway, which propagates it.
func task(r *http.Request) warden.Task {
	for one := range routes {
		if r.URL.Path == "/"+one.String() {
			return warden.Task{Name: one.String(), Priority: one.priority()}
		}
	}
	return warden.Task{Priority: decision.Background}
}

// An arrival is one request of the plan.
type arrival struct {
	at time.Duration // since the start
	route
}

// plan draws Poisson arrivals: one in five a checkout, one in five a report. The same seed gives the same plan.
func plan(perSecond float64, lasts time.Duration, seed uint64) (all []arrival) {
	rnd := rand.New(rand.NewPCG(seed, 0))
	for at := time.Duration(0); ; {
		at += time.Duration(rnd.ExpFloat64() / perSecond * float64(time.Second))
		if at >= lasts {
			return all
		}
		all = append(all, arrival{at, [5]route{checkout, receipts, receipts, receipts, reports}[rnd.IntN(5)]})
	}
}

// follow sends all arrivals and returns when every request has its outcome. It never waits for a response before it sends the
// next request. The deadline of a request counts from its planned start.
func follow(ctx context.Context, url string, all []arrival, patience time.Duration, j *journal) {
	client := &http.Client{Transport: connections()}
	defer client.CloseIdleConnections()
	var sent sync.WaitGroup
	defer sent.Wait()
	start := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for id, a := range all {
		intended := start.Add(a.at)
		timer.Reset(time.Until(intended))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		delay := time.Since(intended)
		sent.Go(func() {
			ctx, cancel := context.WithDeadline(ctx, intended.Add(patience))
			defer cancel()
			j.finished(id, delay, send(ctx, client, url, id, a.route))
		})
	}
}

// An outcome is the response that a user received.
type outcome struct {
	status   int    // 0: no response before the deadline
	reason   string // of the error
	decision uint64 // number of the decision behind a rejection
}

// send makes one request, with its user's timeout. All users claim to be critical.
func send(ctx context.Context, client *http.Client, url string, id int, r route) outcome {
	req, err := http.NewRequestWithContext(ctx, r.method(), url+"/"+r.String(), http.NoBody)
	if err != nil {
		return outcome{reason: err.Error()}
	}
	deadline, _ := ctx.Deadline()
	req.Header.Set("Warden-Timeout", strconv.FormatInt(time.Until(deadline).Milliseconds(), 10))
	req.Header.Set("Warden-Priority", "critical")
	req.Header.Set(idHeader, strconv.Itoa(id))
	resp, err := client.Do(req)
	var body []byte
	if err == nil {
		body, err = io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		err = errors.Join(err, resp.Body.Close())
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return outcome{reason: "late"}
	case err != nil:
		return outcome{reason: err.Error()}
	}
	return readOutcome(resp.StatusCode, body)
}

// readOutcome parses a response.
func readOutcome(status int, body []byte) outcome {
	o := outcome{status: status}
	if status == http.StatusOK {
		return o
	}
	var p struct {
		Reason   string
		Decision uint64
	}
	if err := json.Unmarshal(body, &p); err != nil {
		p.Reason = fmt.Sprintf("%.100s", body)
	}
	o.reason, o.decision = p.Reason, p.Decision
	return o
}

// connections has no connection limit: a limit would be a queue that no metric shows.
func connections() *http.Transport {
	return &http.Transport{MaxIdleConnsPerHost: 1000, IdleConnTimeout: time.Minute, DisableCompression: true}
}
