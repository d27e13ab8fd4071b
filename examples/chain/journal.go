// The journal: what became of each request, at each service, as a tracing backend would have it.
package main

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/stopbank/stopbank/warden"
)

// A journal has a page for each request of a plan.
type journal struct {
	mu    sync.Mutex // guards pages
	pages []page
}

// A page is one request on its whole way.
type page struct {
	arrival

	late       time.Duration  // it was sent, because the machine had something else to do
	outcomes   []outcome      // what its user was told
	arrivals   map[string]int // attempts, rejected ones included, for each service
	visits     []visit        // those that were given a place
	paid       int            // how often payments worked on it
	rejections []rejection    // the logs of the services, the innermost first
}

// A visit is what a service knew when it began to work.
type visit struct {
	service  string
	left     time.Duration // until the deadline; -1: it knew of none
	priority warden.Priority
}

// A rejection is a line in the log of a service.
type rejection struct {
	service string
	outcome

	text string
}

func newJournal(all []arrival) *journal {
	j := &journal{pages: make([]page, len(all))}
	for i, a := range all {
		j.pages[i] = page{arrival: a, arrivals: map[string]int{}}
	}
	return j
}

// on writes on the page of a request; one that is not of the plan has none.
func (j *journal) on(r *http.Request, write func(*page)) {
	id, err := strconv.Atoi(r.Header.Get(idHeader))
	if err != nil || id < 0 || id >= len(j.pages) {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	write(&j.pages[id])
}

func (j *journal) arrived(r *http.Request, service string) {
	j.on(r, func(p *page) { p.arrivals[service]++ })
}

func (j *journal) working(r *http.Request, service string) {
	v := visit{service, -1, warden.PriorityFrom(r.Context())}
	if deadline, ok := r.Context().Deadline(); ok {
		v.left = max(time.Until(deadline), 0)
	}
	j.on(r, func(p *page) { p.visits = append(p.visits, v) })
}

func (j *journal) paying(r *http.Request) { j.on(r, func(p *page) { p.paid++ }) }

// rejected logs what a service, or its call of the next one, was rejected. The explanation of a warden is in Limiter().Recent() as well.
func (j *journal) rejected(r *http.Request, service string, err error) {
	line := rejection{service: service, text: err.Error()}
	var rejection *warden.Rejection
	if errors.As(err, &rejection) {
		line.reason, line.decision, line.text = rejection.Reason.String(), rejection.Decision.Seq, rejection.String()
	}
	j.on(r, func(p *page) { p.rejections = append(p.rejections, line) })
}

// passedOn logs that the next service answered no.
func (j *journal) passedOn(r *http.Request, service string, status int, body []byte) {
	o := told(status, body)
	text := fmt.Sprintf("passes on %d %s, decision %d", status, o.reason, o.decision)
	j.on(r, func(p *page) { p.rejections = append(p.rejections, rejection{service, o, text}) })
}

// ended notes what a user was told, and how late the machine was to send his request.
func (j *journal) ended(id int, late time.Duration, o outcome) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pages[id].late = late
	j.pages[id].outcomes = append(j.pages[id].outcomes, o)
}
