// Compartments: the state of a set in the fields and the sentences of the page.

package console

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
)

// setNow is the current state of a set.
type setNow struct {
	Revision       uint64        `json:"revision"`
	ResizedBy      string        `json:"resized_by"`
	ResizedAt      when          `json:"resized_at"`
	Total          int           `json:"total"`
	EffectiveTotal int           `json:"effective_total"` // what the decision leaves of it
	InFlight       int           `json:"in_flight"`
	Decision       *decisionOf   `json:"decision"`
	Stale          bool          `json:"stale"` // the decision has outlived itself
	ObserverPanics uint64        `json:"observer_panics"`
	Proposal       []string      `json:"proposal"` // why another plan would suit the last minutes better
	Compartments   []compartment `json:"compartments"`
}

// compartment is the state of one compartment; the fields are those of bulkhead.CompartmentSnapshot.
type compartment struct {
	Name                string                    `json:"name"`
	Criticality         int                       `json:"criticality"`
	CriticalityName     string                    `json:"criticality_name"`
	InFlight            int                       `json:"in_flight"`
	Mode                string                    `json:"mode"`
	WithoutSlot         int                       `json:"without_slot"` // in flight without a slot
	WouldReject         map[string]uint64         `json:"would_reject"` // of a dry run
	Queued              int                       `json:"queued"`
	MaxQueue            int                       `json:"max_queue"`
	Guaranteed          int                       `json:"guaranteed"`
	Lendable            int                       `json:"lendable"`
	Max                 int                       `json:"max"`
	EffectiveGuaranteed int                       `json:"effective_guaranteed"`
	EffectiveLendable   int                       `json:"effective_lendable"`
	EffectiveMax        int                       `json:"effective_max"`
	Lent                int                       `json:"lent"`
	Borrowed            int                       `json:"borrowed"`
	Submitted           uint64                    `json:"submitted"`
	Admitted            uint64                    `json:"admitted"`
	Finished            uint64                    `json:"finished"`
	RejectedTotal       uint64                    `json:"rejected_total"` // rejected and left, but for those whose caller canceled
	Outcomes            map[string]uint64         `json:"outcomes"`
	Rejected            map[string]uint64         `json:"rejected"`
	Left                map[string]uint64         `json:"left"`
	RejectionRate       num                       `json:"rejection_rate"`
	Executions          uint64                    `json:"executions"` // of the last minute, as the times
	ExecutionMeanMS     num                       `json:"execution_mean_ms"`
	ExecutionP50MS      num                       `json:"execution_p50_ms"`
	ExecutionP90MS      num                       `json:"execution_p90_ms"`
	ExecutionP99MS      num                       `json:"execution_p99_ms"`
	Abandoned           int                       `json:"abandoned"`
	AbandonedTotal      uint64                    `json:"abandoned_total"`
	LatePanics          uint64                    `json:"late_panics"`
	Degraded            uint64                    `json:"degraded"`
	FallbacksFailed     uint64                    `json:"fallbacks_failed"`
	FallbacksRejected   uint64                    `json:"fallbacks_rejected"`
	FallbacksInFlight   int                       `json:"fallbacks_in_flight"`
	Tenants             *bulkhead.TenantsSnapshot `json:"tenants"`
	Healthy             bool                      `json:"healthy"`
	Unhealthy           string                    `json:"unhealthy"` // why not

	// From the history of the last minute.
	lately   map[string]uint64 // rejections by reason
	timedOut uint64            // calls that ran longer than their Timeout
	still    time.Duration     // how long no call has ended and all slots were in use
}

// longStill is how long no call may end in a full compartment before the page reports it.
const longStill = 5 * time.Second

func setJSON(s bulkhead.Snapshot) *setNow {
	out := &setNow{
		Revision: s.Revision, ResizedBy: s.ResizedBy, ResizedAt: when{s.ResizedAt}, Total: s.Total, EffectiveTotal: s.EffectiveTotal, InFlight: s.InFlight, Decision: decisionJSON(s.Decision),
		Stale: s.Stale, ObserverPanics: s.ObserverPanics, Proposal: []string{}, Compartments: make([]compartment, 0, len(s.Compartments)),
	}
	if s.Proposal != nil {
		for _, why := range s.Proposal.Reasons {
			out.Proposal = append(out.Proposal, clip(why, 2*longestName))
		}
	}
	for _, c := range s.Compartments {
		x, ran := c.Execution, c.Execution.Count > 0
		out.Compartments = append(out.Compartments, compartment{
			Name: clipName(c.Name), Criticality: int(c.Criticality), CriticalityName: c.Criticality.String(),
			Mode: c.Mode.String(), WithoutSlot: c.WithoutSlot, WouldReject: orEmpty(c.WouldReject),
			InFlight: c.InFlight, Queued: c.Queued, MaxQueue: c.MaxQueue, Guaranteed: c.Guaranteed, Lendable: c.Lendable, Max: c.Max,
			EffectiveGuaranteed: c.Effective.Guaranteed, EffectiveLendable: c.Effective.Lendable, EffectiveMax: c.Effective.Max,
			Lent: c.Lent, Borrowed: c.Borrowed, Submitted: c.Submitted, Admitted: c.Admitted, Finished: c.Finished,
			RejectedTotal: rejectedTotal(c), Outcomes: orEmpty(c.Outcomes), Rejected: orEmpty(c.Rejected), Left: orEmpty(c.Left),
			RejectionRate: num(c.RejectionRate), Executions: x.Count, ExecutionMeanMS: msIf(ran, x.Mean), ExecutionP50MS: msIf(ran, x.P50),
			ExecutionP90MS: msIf(ran, x.P90), ExecutionP99MS: msIf(ran, x.P99), Abandoned: c.Abandoned, AbandonedTotal: c.AbandonedTotal,
			LatePanics: c.LatePanics, Degraded: c.Degraded, FallbacksFailed: c.FallbacksFailed, FallbacksRejected: c.FallbacksRejected,
			FallbacksInFlight: c.FallbacksInFlight, Tenants: c.Tenants, Healthy: c.Unhealthy == "", Unhealthy: clip(c.Unhealthy, longestName),
		})
	}
	return out
}

// rejectedTotal returns the number of rejected calls, without cancellations.
func rejectedTotal(c bulkhead.CompartmentSnapshot) (n uint64) {
	for _, counts := range []map[string]uint64{c.Rejected, c.Left} {
		for reason, count := range counts {
			if reason != string(decision.Canceled) {
				n += count
			}
		}
	}
	return n
}

func orEmpty(m map[string]uint64) map[string]uint64 {
	if m == nil {
		return map[string]uint64{}
	}
	return m
}

// rejections returns a compartment's rejections by reason, whether they had waited or not.
func (c compartment) rejections() map[string]uint64 {
	all := maps.Clone(c.Rejected)
	for reason, n := range c.Left {
		all[reason] += n
	}
	delete(all, string(decision.Canceled))
	return all
}

// overran returns how many calls have run longer than their Timeout.
func (c compartment) overran() uint64 { return c.Outcomes[string(bulkhead.TimedOut)] }

func calls(n uint64) string {
	if n == 1 {
		return "1 call"
	}
	return thousands(n) + " calls"
}

// lookBack returns c completed from the history, whose last point may be of now.
func (c compartment) lookBack(looks []poolPoint, now time.Time) compartment {
	full := c.EffectiveMax > 0 && c.InFlight >= c.EffectiveMax
	var first poolLoad
	known := false
	for _, look := range slices.Backward(looks) {
		load, was := look.Pools["compartment:"+c.Name]
		if !was || now.Sub(look.At.Time) > time.Minute {
			break
		}
		first, known = load, true
		if full = full && load.Executed == c.Finished && load.InFlight >= c.EffectiveMax; full {
			c.still = now.Sub(look.At.Time)
		}
	}
	if !known {
		return c
	}
	c.timedOut = c.overran() - first.timedOut
	c.lately = c.rejections()
	for reason, n := range first.reasons {
		if c.lately[reason] -= n; c.lately[reason] == 0 {
			delete(c.lately, reason)
		}
	}
	return c
}

// verdicts returns one verdict for each compartment with a problem, and one for all others.
func (s *setNow) verdicts() []verdict {
	var out []verdict
	var fine []string
	if s.Stale {
		out = append(out, verdict{staleLevel(s.InFlight > 0), "All compartments", "The decision about them is stale: the controller is silent, and reduced limits apply."})
	}
	for _, c := range s.Compartments {
		if v := c.verdict(); v.Level != levelOK {
			out = append(out, v)
		} else {
			fine = append(fine, c.Name)
		}
	}
	switch {
	case len(fine) > 8:
		out = append(out, verdict{levelOK, "Compartments", fmt.Sprintf("%d healthy: nothing rejected in the last minute.", len(fine))})
	case len(fine) > 0:
		out = append(out, verdict{levelOK, "Compartments", "Healthy, nothing rejected in the last minute: " + strings.Join(fine, ", ") + "."})
	}
	return out
}

func (c compartment) verdict() verdict {
	v := verdict{Level: levelOK, Subject: c.Name}
	var said []string
	watch := func(format string, args ...any) {
		if v.Level == levelOK {
			v.Level = levelWatch
		}
		said = append(said, fmt.Sprintf(format, args...))
	}
	loose := true // no slot is waited for
	switch c.Mode {
	case decision.Bypass.String():
		watch("bypass: every call starts immediately")
	case decision.DryRun.String():
		watch("dry run: every call starts immediately")
		if would := sum(c.WouldReject); would > 0 {
			watch("%d would have been rejected since the start, %s", would, most(c.WouldReject))
		}
	default:
		loose = false
	}
	if c.WithoutSlot > 0 {
		watch("%d run without a slot", c.WithoutSlot)
	}
	switch {
	case !c.Healthy:
		watch("%s", c.Unhealthy)
		v.Level = levelAct
	case c.RejectionRate > 0 && loose:
		watch("rejected %s of the calls of the last minute: before the switch, by the circuit breaker, or because their deadline had passed",
			share(float64(c.RejectionRate)))
	case c.RejectionRate > 0:
		watch("rejected %s of the calls of the last minute", share(float64(c.RejectionRate)))
	}
	reasons, late, span := c.lately, c.timedOut, ""
	if len(reasons) == 0 && c.RejectionRate > 0 { // nobody looked before
		reasons, late, span = c.rejections(), c.overran(), "since the start, "
	}
	if len(reasons) > 0 {
		watch("%s%s", span, most(reasons))
	}
	if late > 0 {
		watch("%s%s took longer than Timeout: the dependency, or this process, is slow (%s)", cmp.Or(span, "in the last minute, "), calls(late), bulkhead.TimedOut)
	}
	if c.Queued > 0 {
		watch("%s", inQueue(c.Queued))
	}
	if c.Abandoned > 0 {
		watch("%d abandoned: they run although their callers are gone, and hold slots", c.Abandoned)
	}
	if c.still >= longStill {
		watch("all slots are in use, and no call has ended for %.0f s", c.still.Seconds())
	}
	if len(said) > 0 && c.EffectiveGuaranteed < c.Guaranteed {
		watch("the controller leaves it %d of %d guaranteed slots", c.EffectiveGuaranteed, c.Guaranteed)
	}
	if text := strings.Join(said, "; "); text != "" {
		first, size := utf8.DecodeRuneInString(text)
		v.Text = string(unicode.ToUpper(first)) + text[size:] + "."
	}
	return v
}
