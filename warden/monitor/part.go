// SPDX-License-Identifier: Apache-2.0

// Parts of a program that have limits of their own, such as the compartments of a bulkhead: each is measured by itself.

package monitor

import (
	"slices"
	"time"
)

// mostParts bounds what a sample holds.
const mostParts = 64

// Part is a part of the program that has a limit of its own, as its [Recorder.Part] recorded it.
type Part struct {
	Name string
	// Limit is how many executions may run at once in it, 1 or more.
	Limit int
	// Service describes its executions since the previous sample, without Needs.
	Service Service
}

// Part returns the recorder of a part of the program in which at most limit executions, 1 or more, run at once: a compartment,
// say. It feeds Sample.Parts. For a name that is known it returns the same recorder, with the new limit. Beyond 64 parts, for a
// limit below 1, from a part's own recorder, and from a nil or zero one, it returns nil, which records nothing. For a new name,
// Part allocates 14 KiB.
func (r *Recorder) Part(name string, limit int) *Recorder {
	if r == nil || r.kinds == nil || limit < 1 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.limit > 0 {
		return nil
	}
	i := slices.IndexFunc(r.parts, func(p *Recorder) bool { return p.name == name })
	if i < 0 {
		if len(r.parts) == mostParts {
			return nil
		}
		p := newRecorder()
		p.name = name
		i, r.parts = len(r.parts), append(r.parts, p)
	}
	p := r.parts[i]
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limit = limit
	return p
}

// takeAll is take, for the parts as well. If more runs in the parts than is recorded beside them, the Service of the whole is
// their sum: an execution in a part may be inside a task that is recorded as well, and is not counted twice.
func (r *Recorder) takeAll(at time.Time) (Service, []Part) {
	whole := r.take(at)
	if r == nil || r.kinds == nil {
		return whole, nil
	}
	r.mu.Lock()
	parts := r.parts // only ever appended to
	r.mu.Unlock()
	if len(parts) == 0 {
		return whole, nil
	}
	out := make([]Part, len(parts))
	sum := Service{Needs: whole.Needs}
	for i, p := range parts {
		out[i].Name, out[i].Service = p.name, p.take(at)
		out[i].Service.Needs = nil
		p.mu.Lock()
		out[i].Limit = p.limit
		p.mu.Unlock()
		sum.add(&out[i].Service)
	}
	if sum.Concurrency <= whole.Concurrency {
		return whole, out
	}
	clear(r.total.counts)
	for _, p := range parts {
		for i, n := range p.total.counts {
			r.total.counts[i] += n
		}
	}
	r.total.describe(&sum)
	return sum, out
}

// add adds the counts and sums of a part.
func (s *Service) add(part *Service) {
	s.Concurrency += part.Concurrency
	s.Throughput += part.Throughput
	s.Running += part.Running
	s.Parked += part.Parked
	s.Abandoned += part.Abandoned
	s.AbandonedTime += part.AbandonedTime
	if s.Long += part.Long; part.LongFor > s.LongFor {
		s.LongName, s.LongFor = part.LongName, part.LongFor
	}
}
