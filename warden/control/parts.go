// SPDX-License-Identifier: Apache-2.0

// Parts of a program that have limits of their own, the compartments of a bulkhead: what one of them says lowers its own limit,
// and only what all of them say lowers the limit of the whole.

package control

import (
	"math"
	"slices"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/monitor"
)

const (
	mostParts = 64
	voting    = 2 * few // the last executions of a part that are compared with those before
	// standard deviations by which they must be longer: two parts that are so by chance in the same minute are one in years
	evident   = 5.0
	usualFor  = 60.0 // seconds after which a part that has become slower is taken to be so
	usualEnds = 32.0 // and in execution times
	silence   = 4.0  // execution times without an end, and a second at least, after which a part has nothing to say
	mostWaits = 0.8  // the largest share of waiting that is believed
)

// A part is the service half for one of them. Somebody chose its limit: it is cut where work has become slower, and not for a
// test.
type part struct {
	service
	wait wait
	most float64 // its own limit

	usual baseline  // of before it became slower
	last  []float64 // the last execution times, in seconds, oldest first; at most voting
	fresh int       // of these, since usual learned last
	since float64   // seconds for which these have been longer
	quiet float64   // seconds without an end
	waits float64   // the share of the last execution times that the usual ones do not have
	votes bool      // it has something to say
}

// stepParts steps the parts of a sample, and returns which share of its execution times every one of them waits for: 0 unless two
// or more have become slower, and none in which executions end has not.
func (st *state) stepParts(s monitor.Sample, dt, busy float64, calm bool) (shared float64) {
	for i := range s.Parts {
		r := &s.Parts[i]
		p := st.parts[r.Name]
		if p == nil {
			if len(st.parts) == mostParts || r.Limit < 1 {
				continue
			}
			if st.parts == nil {
				st.parts = map[string]*part{}
			}
			full := min(float64(r.Limit), most)
			p = &part{service: service{target: full, pace: 1, sized: true}, most: full}
			st.parts[r.Name] = p
		}
		p.step(r, poolsOf(s.Pools, r.Name), dt, busy, calm)
		if !st.theft.starved {
			p.vote(r.Service, dt)
		}
	}
	voters := 0
	shared = mostWaits
	for _, p := range st.parts {
		if p.votes {
			voters++
			shared = min(shared, p.waits)
		}
	}
	if voters < 2 {
		return 0
	}
	return shared
}

// poolsOf returns the pools that only this part uses; "": those that all may use.
func poolsOf(all []monitor.PoolReading, part string) []monitor.PoolReading {
	if !slices.ContainsFunc(all, func(r monitor.PoolReading) bool { return r.Part != part }) {
		return all
	}
	var own []monitor.PoolReading
	for _, r := range all {
		if r.Part == part {
			own = append(own, r)
		}
	}
	return own
}

func (p *part) step(r *monitor.Part, pools []monitor.PoolReading, dt, busy float64, calm bool) {
	if limit := min(float64(r.Limit), most); limit >= 1 && limit != p.most { // it was resized
		if p.target >= p.most {
			p.target = limit
		}
		p.most = limit
	}
	p.service.step(r.Service, pools, dt, busy, p.most, p.target, calm)
	p.target = min(max(p.target, 1), p.most)
	p.wait.observe(p.limit(), p.expected(), dt, p.phase != watching)
}

// limit is the part's limit: what runs for long comes on top of what ends.
func (p *part) limit() float64 { return min(math.Round(p.long.besides(p.target)+p.long.slots), p.most) }

// vote compares the last execution times with those before.
func (p *part) vote(s monitor.Service, dt float64) {
	if p.quiet += dt; p.waits > 0 {
		p.since += dt
	}
	for _, t := range s.Times[:min(s.Count, uint64(len(s.Times)))] {
		if t > 0 {
			p.last = append(p.last, min(t, time.Hour).Seconds())
			p.fresh++
			p.quiet = 0
		}
	}
	p.last = p.last[max(0, len(p.last)-voting):]
	switch {
	case len(p.usual.times) < voting:
		if p.fresh >= voting {
			p.learn()
		}
		return
	case p.quiet > max(1, silence*p.usual.mean):
		p.votes = false
		return
	case p.quiet > 0:
		return
	}
	recent := slices.Sorted(slices.Values(p.last))
	wait, z := shift(p.usual.sorted, recent)
	p.votes, p.waits = true, 0
	switch {
	case z > evident && wait > noticed*p.usual.lower:
		p.waits = min(wait/(p.usual.lower+wait), mostWaits)
		if p.since > max(usualFor, usualEnds*mean(recent)) {
			p.accept()
		}
		return
	case p.fresh >= voting && z < 2:
		p.learn()
	}
	p.since = 0
}

// learn adds the last execution times to the usual ones, accept puts them in their place.
func (p *part) learn() {
	p.usual.learn(p.last)
	p.fresh = 0
}

func (p *part) accept() {
	if len(p.last) < voting {
		return
	}
	p.usual.forget()
	p.learn()
	p.since, p.waits = 0, 0
}

// decideParts returns what is decided for each part.
func (st *state) decideParts() map[string]decision.Part {
	if len(st.parts) == 0 {
		return nil
	}
	all := make(map[string]decision.Part, len(st.parts))
	for name, p := range st.parts {
		d := decision.Part{TargetConcurrency: int(p.limit()), MaxWait: p.wait.most(p.expected())}
		if r, ok := p.reason(); ok && p.fed {
			d.Reasons = []decision.Reason{r}
		}
		all[name] = d
	}
	return all
}
