// How the places are shared: the plan, and what a decision leaves of it.

package bulkhead

import (
	"fmt"
	"slices"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
)

// Plan says how the places are shared. It is what [Set.Resize] changes.
type Plan struct {
	// Revision is the revision that the plan was made from: what [Set.Plan] returned.
	Revision     uint64  `json:"revision"`
	Total        int     `json:"total"`
	Compartments []Share `json:"compartments"` // each one of the set once, in any order
}

// Share is one compartment's part of a [Plan]; see [CompartmentConfig].
type Share struct {
	Name       string `json:"name"`
	Guaranteed int    `json:"guaranteed"`
	Lendable   int    `json:"lendable"`
	Max        int    `json:"max"`
}

// Plan is how the places are shared now, before any decision. It allocates.
func (s *Set) Plan() Plan {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.plan
	p.Compartments = slices.Clone(p.Compartments)
	return p
}

// Resize shares the places anew, all at once, and returns the new revision, which is one more than that of p. What runs
// goes on: where fewer places are left, the number in flight shrinks as functions return, and until then nobody is
// admitted in place of them. The error is a [*StaleError] if p was made from another revision than the present one, or an
// [*InvalidError]; nothing has changed then. It does not block.
func (s *Set) Resize(p Plan) (revision uint64, err error) {
	p.Compartments = slices.Clone(p.Compartments)
	if revision, err = s.resize(p); err == nil {
		s.observe(Event{Kind: Resized, Revision: revision})
	}
	return revision, err
}

func (s *Set) resize(p Plan) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.Revision != s.plan.Revision {
		return 0, &StaleError{p.Revision, s.plan.Revision}
	}
	next := Plan{Revision: p.Revision + 1, Total: p.Total}
	for _, part := range s.parts {
		i := slices.IndexFunc(p.Compartments, func(sh Share) bool { return sh.Name == part.config.Name })
		if i < 0 {
			return 0, &InvalidError{"Plan.Compartments", fmt.Sprintf("without %q", part.config.Name), "each compartment of the set once"}
		}
		next.Compartments = append(next.Compartments, p.Compartments[i])
	}
	if len(p.Compartments) != len(s.parts) {
		return 0, &InvalidError{"Plan.Compartments", fmt.Sprintf("%d long", len(p.Compartments)), "each compartment of the set once"}
	}
	if err := next.check("Plan", func(i int) int { return s.parts[i].config.MaxQueue }); err != nil {
		return 0, err
	}
	s.plan = next
	s.enforce()
	return next.Revision, nil
}

// Apply makes d.TargetConcurrency the bound of the sum, as far as it is below Total, unless d.Seq is less than that of the
// decision applied last. First lending stops, then the places that nobody is guaranteed go, then guarantees shrink, those
// of the lowest Criticality first. Its ShedProbability holds for every compartment that is not limiter.Critical; its
// Yields for all; its Expected for none, because it is not about what a single compartment runs. It is what
// warden.Config.Also asks for. It does not block.
func (s *Set) Apply(d decision.ControlDecision) {
	d = d.Sanitized()
	if s.adopt(&d) {
		s.observe(Event{Kind: Applied, Decision: &d})
	}
}

func (s *Set) adopt(d *decision.ControlDecision) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.decided != nil && d.Seq < s.decided.Seq {
		return false
	}
	s.decided, s.stale = d, false
	if s.expiry != nil {
		s.expiry.Stop()
	}
	if d.ValidFor > 0 {
		s.expiry = time.AfterFunc(d.ValidFor, func() { s.expire(d) })
	}
	s.enforce()
	return true
}

// expire puts d's Stale decision in force, if d still rules.
func (s *Set) expire(d *decision.ControlDecision) {
	s.mu.Lock()
	rules := s.decided == d
	if rules {
		s.stale = true
		s.enforce()
	}
	s.mu.Unlock()
	if rules {
		s.observe(Event{Kind: Applied, Decision: d})
	}
}

// enforce tells the limiters, and then the ledger, which shares the places all at once: so no limiter still has an older,
// lower target when it is offered a place. The caller holds mu.
func (s *Set) enforce() {
	r := s.judge()
	s.rules.Store(r)
	for _, p := range s.parts {
		p.self.obey(r)
	}
	s.ledger.share(r.total, r.shares)
}

// rules are what plan and decision come to. They never change.
type rules struct {
	total    int
	shares   []Share // in the order of ledger.accounts
	decision decision.ControlDecision
}

// obey tells the limiter of c, unless it knows already.
func (c *Compartment) obey(r *rules) {
	if c.ruled.Swap(r) != r {
		c.limiter.Apply(r.of(c.part))
	}
}

// of is the decision for a limiter of p. Its target bounds nothing: the ledger does. With one that does, a limiter would not
// ask for those who wait while it has all that it may have, or while permits of it are being released, and so would have
// no claim to the place that comes back.
func (r *rules) of(p *part) decision.ControlDecision {
	d := r.decision
	d.TargetConcurrency = maxPlaces
	if p.config.Criticality == limiter.Critical {
		d.ShedProbability = 0
	}
	return d
}

// judge works out the rules. The caller holds mu, or has the set to itself.
func (s *Set) judge() *rules {
	s.seq++
	r := &rules{total: s.plan.Total, decision: decision.ControlDecision{Seq: s.seq, At: time.Now()}}
	if d := s.decided; d != nil {
		code, rule := "applied", d
		if s.stale {
			code = "stale"
			if d.Stale != nil {
				rule = d.Stale
			}
		}
		r.total = min(r.total, rule.TargetConcurrency)
		r.decision.ShedProbability, r.decision.Yields = rule.ShedProbability, rule.Yields
		r.decision.Reasons = append(slices.Clone(rule.Reasons), decision.NewReason(code, "source_seq", float64(d.Seq), decision.Hold))
	}
	r.decision.Reasons = append(r.decision.Reasons, decision.NewReason("plan", "revision", float64(s.plan.Revision), decision.Hold))
	for _, p := range byCriticality(s.parts) {
		r.shares = append(r.shares, s.plan.Compartments[slices.Index(s.parts, p)])
	}
	if r.total < s.plan.Total {
		tighten(r.shares, byCriticality(s.parts), r.total)
	}
	return r
}

// tighten makes shares, the most critical first, fit into a total that is less than planned: nothing is lent, and what is
// not enough for all guarantees is for the most critical. Equally critical ones keep the same part of theirs, rounded down,
// and what is left over by that goes one each to those that then have the smallest part.
func tighten(shares []Share, parts []*part, total int) {
	for first, last := 0, 0; first < len(shares); first = last {
		sum := 0
		for ; last < len(shares) && parts[last].config.Criticality == parts[first].config.Criticality; last++ {
			sum += shares[last].Guaranteed
		}
		equals, have := shares[first:last], min(total, sum)
		total -= have
		planned := make([]int, len(equals))
		for i := range equals {
			planned[i] = equals[i].Guaranteed
			equals[i].Guaranteed, equals[i].Lendable = portion(planned[i], have, max(1, sum)), 0
		}
		for _, sh := range equals {
			have -= sh.Guaranteed
		}
		for ; have > 0; have-- {
			least := -1
			for i, sh := range equals {
				if sh.Guaranteed < planned[i] && (least < 0 || smaller(sh.Guaranteed, planned[i], equals[least].Guaranteed, planned[least])) {
					least = i
				}
			}
			equals[least].Guaranteed++
		}
	}
	for i := range shares { // what nobody is guaranteed
		shares[i].Max = min(shares[i].Max, shares[i].Guaranteed+total)
	}
}

// portion is parts * n / whole, rounded down, and smaller whether a / wholeA is less than b / wholeB. The product of two numbers
// of places, up to maxPlaces, is more than an int of 32 bits holds.
func portion(parts, n, whole int) int { return int(int64(parts) * int64(n) / int64(whole)) }

func smaller(a, wholeA, b, wholeB int) bool {
	return int64(a)*int64(wholeB) < int64(b)*int64(wholeA)
}
