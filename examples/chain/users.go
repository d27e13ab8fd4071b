// The users: an open-loop load generator. Requests start when the plan says, however the services are doing.
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
)

// idHeader has the number of a request. It goes on with every call, in both phases, so that logs can be read together.
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

func (r route) priority() warden.Priority {
	return [routes]warden.Priority{warden.Critical, warden.Normal, warden.Background}[r]
}

// task is the gateway's table of what matters. The services behind it are told.
func task(r *http.Request) warden.Task {
	for one := range routes {
		if r.URL.Path == "/"+one.String() {
			return warden.Task{Name: r.URL.Path, Priority: one.priority()}
		}
	}
	return warden.Task{Name: r.URL.Path, Priority: warden.Background}
}

// An arrival is one request of the plan.
type arrival struct {
	at time.Duration // since the start
	route
}

// plan draws arrivals with exponential gaps: one in five a checkout, one in five a report. The same seed gives the same plan.
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

// follow sends the plan and returns when every request has its outcome. It never waits for an answer before it sends the next one.
// Users leave patience after they wanted to come, so that no more than that much of the plan is under way.
func follow(ctx context.Context, url string, all []arrival, patience time.Duration, book *journal) {
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
		late := time.Since(intended)
		sent.Go(func() {
			ctx, cancel := context.WithDeadline(ctx, intended.Add(patience))
			defer cancel()
			book.ended(id, late, send(ctx, client, url, id, a.route))
		})
	}
}

// An outcome is what a user was told.
type outcome struct {
	status   int    // 0: nothing, he had left or nobody was there
	reason   string // of the rejection
	decision uint64 // its number
}

// send makes one request. Its user says how long he waits; and that he is important, which all of them say.
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
	return told(resp.StatusCode, body)
}

// told reads an answer.
func told(status int, body []byte) outcome {
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

// connections are as many as there are requests: a bound would be a queue that nobody sees.
func connections() *http.Transport {
	return &http.Transport{MaxIdleConnsPerHost: 1000, IdleConnTimeout: time.Minute, DisableCompression: true}
}
