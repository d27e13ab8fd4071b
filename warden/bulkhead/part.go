// SPDX-License-Identifier: Apache-2.0

// A compartment under a controller: it reports its executions, and what they say lowers its own limit and nobody else's.

package bulkhead

import (
	"slices"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/monitor"
)

// Feed makes every compartment report its executions to a part of r that has its name and its Max, from the next call on; nil: to
// nobody. A warden calls it for its Config.ApplyTo. The last call counts. Of more than 64 compartments the first report.
func (s *Set) Feed(r *monitor.Recorder) {
	if !s.valid() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recorder = r
	s.feedLocked()
}

// feedLocked tells the recorder what the compartments may run by the plan.
func (s *Set) feedLocked() {
	for _, p := range s.pools {
		p.feeds.Store(s.recorder.Part(p.config.Name, p.planned.Max))
	}
}

// lowerLocked bounds sh, the share of p, by what a decision says of p itself. The guarantee stays reserved: nobody else gets what
// p may not use now, so that p has it back at once.
func (p *pool) lowerLocked(sh *Share, parts map[string]decision.Part) {
	part, judged := parts[p.config.Name]
	if p.lowered = judged && part.TargetConcurrency < sh.Max; p.lowered {
		sh.Max = part.TargetConcurrency
	}
	if parts != nil { // the whole's is of no compartment
		p.rule.MaxWait = part.MaxWait
		p.rule.Reasons = slices.Concat(p.rule.Reasons, part.Reasons)
	}
}
