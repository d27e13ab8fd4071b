// SPDX-License-Identifier: Apache-2.0

// The plan: what is sent, for how long, and the bounds that no flag lifts.

package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The bounds of every run.
const (
	mostRate     = 20_000 // requests per second
	mostInFlight = 10_000 // a request beyond is not sent, and counts as not answered
	mostTime     = 15 * time.Minute
	mostPatience = time.Minute
	mostBody     = 1 << 20 // bytes
)

// LimitError is the error of a flag or argument: its name, its value and what is allowed.
type LimitError struct {
	Field   string
	Value   any
	Allowed string
}

// Error returns all of it.
func (e *LimitError) Error() string {
	return fmt.Sprintf("%s is %v; allowed: %s", e.Field, e.Value, e.Allowed)
}

// plan is what the flags say.
type plan struct {
	url                   *url.URL
	routes                []route
	loads                 []float64
	capacity, base        float64
	before, length, after time.Duration
	http2, even, beyond   bool
	seed                  uint64
	requests              string // file; "": none
}

// route is a kind of requests.
type route struct {
	name, path, method, priority string
	share                        float64
	patience, deadline           time.Duration
	body                         int
}

// priorities are those that a service with Stopbank knows, the most important first.
//
//nolint:gochecknoglobals // nobody writes it
var priorities = []string{"critical", "high", "normal", "background"}

// addRoute parses one -route.
func (p *plan) addRoute(text string) error {
	r := route{method: "GET", priority: "normal", patience: 2 * time.Second}
	for part := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(part, "=")
		bad := func(allowed string) error { return &LimitError{"-route: " + key, value, allowed} }
		var err error
		switch key {
		case "name":
			r.name = value
		case "path":
			if r.path = value; !strings.HasPrefix(value, "/") {
				return bad("a path that begins with /")
			}
		case "method":
			if r.method = value; !slices.Contains([]string{"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH"}, value) {
				return bad("GET, HEAD, POST, PUT, DELETE or PATCH")
			}
		case "priority":
			if r.priority = value; !slices.Contains(priorities, value) {
				return bad(strings.Join(priorities, ", "))
			}
		case "share":
			if r.share, err = strconv.ParseFloat(value, 64); err != nil || !(r.share > 0 && r.share <= 1) {
				return bad("above 0 to 1")
			}
		case "patience":
			if r.patience, err = time.ParseDuration(value); err != nil || r.patience <= 0 || r.patience > mostPatience {
				return bad("above 0 to " + mostPatience.String())
			}
		case "deadline":
			if r.deadline, err = time.ParseDuration(value); err != nil || r.deadline < time.Millisecond || r.deadline > mostPatience {
				return bad("1ms to " + mostPatience.String())
			}
		case "body":
			if r.body, err = strconv.Atoi(value); err != nil || r.body < 0 || r.body > mostBody {
				return bad(fmt.Sprintf("0 to %d bytes", mostBody))
			}
		default:
			return &LimitError{"-route", key, "name, path, method, priority, share, patience, deadline or body"}
		}
	}
	p.routes = append(p.routes, r)
	return nil
}

// check completes the plan for a URL and returns the first mistake, a *LimitError.
func (p *plan) check(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return &LimitError{"URL", fmt.Sprintf("%.140q", text), "http://host:port/path or https://..."}
	}
	p.url = u
	if len(p.routes) == 0 {
		p.routes = []route{{path: u.RequestURI(), method: "GET", priority: "normal", patience: 2 * time.Second}}
	}
	if len(p.loads) == 0 {
		p.loads = []float64{2}
	}
	given, without := 0.0, 0
	for i := range p.routes {
		r := &p.routes[i]
		if r.path == "" {
			r.path = u.RequestURI()
		}
		if r.name == "" {
			r.name = r.method + " " + r.path
		}
		if given += r.share; r.share == 0 {
			without++
		}
	}
	if given > 1+1e-9 || without == 0 && given < 1-1e-9 {
		return &LimitError{"-route: the sum of share", given, "1, or less if a route has none"}
	}
	for i := range p.routes {
		if r := &p.routes[i]; r.share == 0 {
			r.share = (1 - given) / float64(without)
		}
	}
	switch {
	case !(p.capacity >= 0 && p.capacity <= mostRate):
		return &LimitError{"-capacity", p.capacity, fmt.Sprintf("above 0 to %d a second, or 0 (measure it)", mostRate)}
	case !(p.base >= 0 && p.base <= 1):
		return &LimitError{"-base", p.base, "0 to 1"}
	case p.before < 0:
		return &LimitError{"-before", p.before, "0 or more"}
	case p.length < time.Second:
		return &LimitError{"-for", p.length, "1s or more"}
	case p.after < 0:
		return &LimitError{"-after", p.after, "0 or more"}
	}
	for _, load := range p.loads {
		if !(load > 0 && load <= 100) {
			return &LimitError{"-load", load, "above 0 to 100"}
		}
	}
	each := p.before + p.length + p.after
	if whole := each * time.Duration(len(p.loads)); p.before > mostTime || p.length > mostTime || p.after > mostTime || whole > mostTime {
		return &LimitError{"-before, -for and -after of all loads", whole, "up to " + mostTime.String()}
	}
	return p.checkRates(mostRate)
}

// checkRates returns an error if a load is more than most requests per second; none while the capacity is unknown.
func (p *plan) checkRates(most float64) error {
	if rate := p.capacity * max(p.base, slices.Max(p.loads)); rate > most {
		return &LimitError{"-load: requests per second", math.Round(rate), fmt.Sprintf("up to %g", most)}
	}
	return nil
}

// arrival is a request of an open loop: when its client sends it, from the start of the run.
type arrival struct {
	due   time.Duration
	route *route
	phase phase
}

// phase is a part of a run.
type phase int

const (
	before phase = iota
	step
	after
)

// String is the phase's name in the results.
func (p phase) String() string { return [...]string{"before", "load", "after"}[p] }

// arrivals draws those of one load: exponential gaps, or even ones, of which each request is moved by up to half. Equal seeds give equal
// ones.
func (p *plan) arrivals(load float64) (all []arrival) {
	r := rand.New(rand.NewPCG(p.seed, uint64(load*1000))) //nolint:gosec // nobody is to be surprised
	begin := time.Duration(0)
	for ph, part := range []struct {
		length time.Duration
		load   float64
	}{{p.before, p.base}, {p.length, load}, {p.after, p.base}} {
		rate := part.load * p.capacity
		for at, n := begin, 0.0; rate > 0; n++ {
			if at += time.Duration(r.ExpFloat64() / rate * float64(time.Second)); p.even {
				at = begin + time.Duration((n+r.Float64()/2)/rate*float64(time.Second))
			}
			if at >= begin+part.length {
				break
			}
			all = append(all, arrival{at, p.draw(r.Float64()), phase(ph)})
		}
		begin += part.length
	}
	return all
}

// draw returns the route of a number in [0, 1).
func (p *plan) draw(x float64) *route {
	for i := range p.routes {
		if x -= p.routes[i].share; x < 0 {
			return &p.routes[i]
		}
	}
	return &p.routes[len(p.routes)-1]
}
