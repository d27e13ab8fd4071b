// The journal: the path of each request through the services, as a tracing backend would record it.
package main

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/decision"
)

// A journal has a trace for each request of a plan.
type journal struct {
	mu     sync.Mutex // guards traces
	traces []trace
}

// A trace is the path of one request.
type trace struct {
	arrival

	delay      time.Duration  // how long the machine delayed its start
	outcomes   []outcome      // received by its user
	arrivals   map[string]int // attempts at each service, rejected ones included
	spans      []span         // attempts that got a slot
	paid       int            // executions by payments
	rejections []rejection    // logged by the services, innermost first
}

// A span is the state of a request when a service starts to work on it.
type span struct {
	service  string
	left     time.Duration // that the request said it had when it arrived; -1: it did not say
	priority decision.Priority
}

// A rejection is a log line of a service.
type rejection struct {
	service string
	outcome

	text string
}

func newJournal(all []arrival) *journal {
	j := &journal{traces: make([]trace, len(all))}
	for i, a := range all {
		j.traces[i] = trace{arrival: a, arrivals: map[string]int{}}
	}
	return j
}

// on updates the trace of a request; requests outside the plan have none.
func (j *journal) on(r *http.Request, write func(*trace)) {
	id, err := strconv.Atoi(r.Header.Get(idHeader))
	if err != nil || id < 0 || id >= len(j.traces) {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	write(&j.traces[id])
}

func (j *journal) arrived(r *http.Request, service string) {
	j.on(r, func(tr *trace) { tr.arrivals[service]++ })
}

func (j *journal) started(r *http.Request, service string) {
	v := span{service, -1, warden.PriorityFrom(r.Context())}
	if ms, err := strconv.Atoi(r.Header.Get("Warden-Timeout")); err == nil {
		v.left = time.Duration(ms) * time.Millisecond
	}
	j.on(r, func(tr *trace) { tr.spans = append(tr.spans, v) })
}

func (j *journal) paying(r *http.Request) { j.on(r, func(tr *trace) { tr.paid++ }) }

// rejected logs a rejection by the service or by its client for the next one. Limiter().Recent() has the explanation, too.
func (j *journal) rejected(r *http.Request, service string, err error) {
	line := rejection{service: service, text: err.Error()}
	var rejection *warden.Rejection
	if errors.As(err, &rejection) {
		line.reason, line.decision, line.text = string(rejection.Reason), rejection.Decision.Seq, rejection.String()
	}
	j.on(r, func(tr *trace) { tr.rejections = append(tr.rejections, line) })
}

// forwarded logs an error response of the next service.
func (j *journal) forwarded(r *http.Request, service string, status int, body []byte) {
	o := readOutcome(status, body)
	text := fmt.Sprintf("forwards %d %s, decision %d", status, o.reason, o.decision)
	j.on(r, func(tr *trace) { tr.rejections = append(tr.rejections, rejection{service, o, text}) })
}

// finished records a user's outcome and the delay of the request's start.
func (j *journal) finished(id int, delay time.Duration, o outcome) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.traces[id].delay = delay
	j.traces[id].outcomes = append(j.traces[id].outcomes, o)
}
