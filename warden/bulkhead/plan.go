// SPDX-License-Identifier: Apache-2.0

// How the slots are shared: the plan, and what a decision leaves of it.

package bulkhead

import (
	"fmt"
	"slices"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

// Plan describes how the slots are shared. [Set.Resize] changes it.
type Plan struct {
	// Revision is the revision that the plan was made from, as returned by [Set.Plan].
	Revision     uint64  `json:"revision"`
	Total        int     `json:"total"`
	Compartments []Share `json:"compartments"` // each compartment of the set once, in any order
	// By says who makes the change, for those who look later: the console shows it, and [Snapshot] has it. At most 128 bytes of
	// UTF-8; "": nobody says. [Set.Plan] leaves it empty.
	By string `json:"by,omitempty"`
}

// longestBy is the longest Plan.By, in bytes.
const longestBy = 128

// Share is one compartment's part of a [Plan]; every field means what it means in [CompartmentConfig]. A call has the Timeout
// that was in force when its function started, and the MaxWait that was when it began to wait. Where more wait than a lower
// MaxQueue allows, a call enters only in the place of another until enough have left.
type Share struct {
	Name       string `json:"name"`
	Guaranteed int    `json:"guaranteed"`
	Lendable   int    `json:"lendable"`
	Max        int    `json:"max"`
	// Mode says whether the compartment enforces its bounds.
	Mode     decision.Mode `json:"mode"`
	MaxQueue int           `json:"max_queue"`
	MaxWait  time.Duration `json:"max_wait"` // in nanoseconds in JSON, like Timeout
	Timeout  time.Duration `json:"timeout"`
}

// wait returns the longest queue wait, 0: no bound, and which bound that is.
func (sh *Share) wait() (time.Duration, decision.DeadlineSource) {
	if sh.MaxWait > 0 {
		return sh.MaxWait, fromMaxWait
	}
	return sh.Timeout, fromTimeout
}

// Plan returns the current plan, before any decision. It allocates.
func (s *Set) Plan() Plan {
	if !s.valid() {
		return Plan{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.plan
	p.By = ""
	p.Compartments = slices.Clone(p.Compartments)
	return p
}

// Resize replaces the plan in one step and returns the new revision, which is that of p plus one. Running calls continue: where
// the new plan has fewer slots, the number in flight shrinks as functions return, and no call is admitted in their place until
// then. The error is [ErrConflict] if p has an outdated revision, or an [*decision.InvalidError]; the plan is unchanged then.
// Resize does not block.
func (s *Set) Resize(p Plan) (revision uint64, err error) {
	if !s.valid() {
		return 0, invalidField("Set", "nil or zero", "a set made by New")
	}
	p.Compartments = slices.Clone(p.Compartments)
	valves, err := s.resize(p)
	if err != nil {
		return 0, err
	}
	s.observe(Event{Kind: Resized, Revision: p.Revision + 1, By: p.By})
	s.observeModes(valves)
	return p.Revision + 1, nil
}

func (s *Set) resize(p Plan) ([]modeChange, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.Revision != s.plan.Revision {
		return nil, &conflictError{p.Revision, s.plan.Revision}
	}
	next := Plan{Revision: p.Revision + 1, Total: p.Total, By: p.By}
	for _, pool := range s.pools {
		i := slices.IndexFunc(p.Compartments, func(sh Share) bool { return sh.Name == pool.config.Name })
		if i < 0 {
			return nil, invalidField("Plan.Compartments", fmt.Sprintf("without %q", pool.config.Name),
				"every compartment of the set, once")
		}
		next.Compartments = append(next.Compartments, p.Compartments[i])
	}
	if len(p.Compartments) != len(s.pools) {
		return nil, invalidField("Plan.Compartments", fmt.Sprintf("%d long", len(p.Compartments)), "every compartment of the set, once")
	}
	if err := next.check("Plan", func(i int) *CompartmentConfig { return &s.pools[i].config }); err != nil {
		return nil, err
	}
	valves := modeChanges(s.plan.Compartments, next.Compartments)
	s.plan, s.resizedAt = next, time.Now()
	for i, pool := range s.pools {
		pool.boundLocked(next.Compartments[i])
	}
	s.enforceLocked()
	s.feedLocked()
	return valves, nil
}

// Apply limits the sum of all slots to d.TargetConcurrency if that is below Total, unless d.Seq is less than that of the
// decision applied last. To meet a lower limit, slots that no compartment is guaranteed are withheld first, then guarantees
// shrink in proportion, to one slot at least, and below that by Criticality. Lendable shrinks like its guarantee, and while the
// limit is below Total, a compartment without a Timeout does not borrow what others lend. ShedProbability applies to every
// compartment below decision.Critical, and Yields to all. Parts lower the Max of the compartments that they name, and bound the
// wait in them; where there are none, MaxWait does. Expected, Burst and Needs are ignored, because they do not describe the
// work of a single compartment. A Set is meant to be a warden's Config.ApplyTo. Apply does not block.
func (s *Set) Apply(d decision.ControlDecision) {
	if !s.valid() {
		return
	}
	d = d.Sanitized()
	if s.adopt(&d) {
		s.observe(Event{Kind: Applied, Explanation: decision.Explanation{Decision: &d}})
	}
}

func (s *Set) adopt(d *decision.ControlDecision) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.decided != nil && d.Seq < s.decided.Seq {
		return false
	}
	s.decided, s.decisionState = d, decision.Applied
	if s.expiry != nil {
		s.expiry.Stop()
	}
	if d.ValidFor > 0 {
		s.expiry = time.AfterFunc(d.ValidFor, func() { s.expire(d) })
	}
	s.enforceLocked()
	now := s.clock()
	for _, p := range s.pools {
		for _, c := range slices.Clone(p.waiting) {
			c.queue.Bound(now, p.waitingRuleLocked())
			s.settleLocked(c)
		}
		p.cohorts.look(now)
	}
	return true
}

// expire puts d's Stale decision in force, if d is still the last one applied.
func (s *Set) expire(d *decision.ControlDecision) {
	s.mu.Lock()
	rules := s.decided == d
	if rules {
		s.decisionState = decision.Stale
		s.enforceLocked()
	}
	s.mu.Unlock()
	if rules {
		s.observe(Event{Kind: Applied, Explanation: decision.Explanation{Decision: d}})
	}
}

// enforceLocked computes the shares under plan and decision, and puts them in force.
func (s *Set) enforceLocked() {
	d := decision.ControlDecision{At: time.Now(), TargetConcurrency: s.plan.Total}.Sanitized()
	var parts map[string]decision.Part
	if s.decided != nil {
		rule := s.decided
		if s.decisionState == decision.Stale && rule.Stale != nil {
			rule = rule.Stale
		}
		d.Seq, d.At, d.Yields, d.ShedProbability, d.MaxWait = s.decided.Seq, s.decided.At, rule.Yields, rule.ShedProbability,
			rule.MaxWait
		d.TargetConcurrency = min(d.TargetConcurrency, rule.TargetConcurrency)
		d.Reasons, parts = slices.Clone(rule.Reasons), rule.Parts
	}
	d.Reasons = append(d.Reasons, decision.NewReason("plan", "revision", float64(s.plan.Revision), decision.Hold))
	shares := make([]Share, len(s.ranked))
	for i, p := range s.ranked {
		p.planned = s.plan.Compartments[slices.Index(s.pools, p)]
		shares[i] = p.planned
		own := d
		if p.config.Criticality == decision.Critical {
			own.ShedProbability = 0
		}
		p.rule = &own
	}
	if d.TargetConcurrency < s.plan.Total {
		tighten(shares, d.TargetConcurrency)
	}
	for i, p := range s.ranked {
		p.lowerLocked(&shares[i], parts)
	}
	s.shareLocked(d.TargetConcurrency, shares)
}

// boundLocked puts the bounds of sh on calls in force.
func (p *pool) boundLocked(sh Share) {
	p.bounds.Store(&sh)
	p.self.queue.Limit = sh.MaxQueue
	if ts := p.tenants; ts != nil {
		for t := range ts.All {
			t.Of.queue.Limit = sh.MaxQueue
		}
	}
}

// tighten fits shares, most critical first, into a total below the planned one. Guarantees shrink in proportion, rounded down,
// but not below one slot. The slots left over by rounding go one each to those with the smallest fraction of their guarantee;
// those that the floor of one slot takes too many come one by one from where the largest fraction is left, so that with fewer
// slots than guarantees the most critical have one each. Lendable shrinks alike, rounded down. Max leaves what there is to
// borrow: the slots guaranteed to no compartment, and those lent, the latter only to a compartment with a Timeout.
func tighten(shares []Share, total int) {
	planned, sum := make([]int, len(shares)), 0
	for i, sh := range shares {
		planned[i] = sh.Guaranteed
		sum += sh.Guaranteed
	}
	have := min(total, sum)
	left, lent := have, 0
	for i := range shares {
		shares[i].Guaranteed = min(planned[i], max(1, portion(planned[i], have, max(1, sum))))
		left -= shares[i].Guaranteed
	}
	for ; left > 0; left-- {
		least := -1
		for i, sh := range shares {
			if sh.Guaranteed < planned[i] && (least < 0 || smaller(sh.Guaranteed, planned[i], shares[least].Guaranteed, planned[least])) {
				least = i
			}
		}
		shares[least].Guaranteed++
	}
	for ; left < 0; left++ {
		most := -1
		for i, sh := range shares {
			if sh.Guaranteed > 0 && (most < 0 || !smaller(sh.Guaranteed-1, planned[i], shares[most].Guaranteed-1, planned[most])) {
				most = i
			}
		}
		shares[most].Guaranteed--
	}
	for i := range shares {
		shares[i].Lendable = portion(shares[i].Lendable, shares[i].Guaranteed, max(1, planned[i]))
		lent += shares[i].Lendable
	}
	for i, sh := range shares {
		most := sh.Guaranteed + total - have
		if sh.Timeout > 0 {
			most += lent - sh.Lendable
		}
		shares[i].Max = min(sh.Max, most)
	}
}

// portion returns parts * n / whole, rounded down, and smaller reports whether a / wholeA < b / wholeB. The product of two
// slot counts, up to maxSlots each, overflows a 32-bit int.
func portion(parts, n, whole int) int { return int(int64(parts) * int64(n) / int64(whole)) }

func smaller(a, wholeA, b, wholeB int) bool {
	return int64(a)*int64(wholeB) < int64(b)*int64(wholeA)
}
