// SPDX-License-Identifier: Apache-2.0

// Compartments: the state of a set in the fields and the sentences of the page.

package console

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
)

// setState is the current state of a set.
type setState struct {
	Revision       uint64          `json:"revision"`
	ResizedBy      string          `json:"resized_by"`
	ResizedAt      jsonTime        `json:"resized_at"`
	Total          int             `json:"total"`
	EffectiveTotal int             `json:"effective_total"` // under the decision in force
	InFlight       int             `json:"in_flight"`
	Decision       *decisionFields `json:"decision"`
	Stale          bool            `json:"stale"` // the decision is older than its validity
	ObserverPanics uint64          `json:"observer_panics"`
	Proposal       []string        `json:"proposal"` // why another plan would suit the last minutes better
	Compartments   []compartment   `json:"compartments"`
}

// compartment is the state of one compartment; the fields are those of bulkhead.CompartmentSnapshot.
type compartment struct {
	Name                string            `json:"name"`
	Criticality         int               `json:"criticality"`
	CriticalityName     string            `json:"criticality_name"`
	InFlight            int               `json:"in_flight"`
	Mode                string            `json:"mode"`
	WithoutSlot         int               `json:"without_slot"` // in flight without a slot
	WouldReject         map[string]uint64 `json:"would_reject"` // of a dry run
	Queued              int               `json:"queued"`
	MaxQueue            int               `json:"max_queue"`
	Guaranteed          int               `json:"guaranteed"`
	Lendable            int               `json:"lendable"`
	Max                 int               `json:"max"`
	EffectiveGuaranteed int               `json:"effective_guaranteed"`
	EffectiveLendable   int               `json:"effective_lendable"`
	EffectiveMax        int               `json:"effective_max"`
	Lent                int               `json:"lent"`
	Borrowed            int               `json:"borrowed"`
	Submitted           uint64            `json:"submitted"`
	Admitted            uint64            `json:"admitted"`
	Finished            uint64            `json:"finished"`
	// rejected before or after a wait, without cancellations
	RejectedTotal     uint64                    `json:"rejected_total"`
	Outcomes          map[string]uint64         `json:"outcomes"`
	Rejected          map[string]uint64         `json:"rejected"`
	Left              map[string]uint64         `json:"left"`
	RejectionRate     jsonNumber                `json:"rejection_rate"`
	Executions        uint64                    `json:"executions"` // of the last minute, as the times
	ExecutionMeanMS   jsonNumber                `json:"execution_mean_ms"`
	ExecutionP50MS    jsonNumber                `json:"execution_p50_ms"`
	ExecutionP90MS    jsonNumber                `json:"execution_p90_ms"`
	ExecutionP99MS    jsonNumber                `json:"execution_p99_ms"`
	Abandoned         int                       `json:"abandoned"`
	AbandonedTotal    uint64                    `json:"abandoned_total"`
	LatePanics        uint64                    `json:"late_panics"`
	Degraded          uint64                    `json:"degraded"`
	FallbacksFailed   uint64                    `json:"fallbacks_failed"`
	FallbacksRejected uint64                    `json:"fallbacks_rejected"`
	FallbacksInFlight int                       `json:"fallbacks_in_flight"`
	Tenants           *bulkhead.TenantsSnapshot `json:"tenants"`
	Healthy           bool                      `json:"healthy"`
	Unhealthy         string                    `json:"unhealthy"`         // why not
	OldestRunningMS   jsonNumber                `json:"oldest_running_ms"` // null: nothing runs
	Level             string                    `json:"level"`             // of its verdict
	Text              string                    `json:"text"`              // "": nothing is to be said

	oldest time.Duration // OldestRunningMS

	// From the history of the last minute.
	rejectedRecently map[string]uint64 // rejections by reason
	timedOut         uint64            // calls that ran longer than their Timeout
	submitted, left  uint64            // calls, and those of them that left without an answer
	failed           uint64            // calls whose functions returned an error or panicked
	stuckFor         time.Duration     // for which all slots have been in use and no call has ended
}

// stuckAfter is the time without a completed call after which the page reports a full compartment for which calls wait.
const stuckAfter = 5 * time.Second

func setJSON(s bulkhead.Snapshot) *setState {
	out := &setState{
		Revision: s.Revision, ResizedBy: s.ResizedBy, ResizedAt: jsonTime{s.ResizedAt}, Total: s.Total,
		EffectiveTotal: s.EffectiveTotal, InFlight: s.InFlight, Decision: decisionJSON(s.Decision),
		Stale: s.Stale, ObserverPanics: s.ObserverPanics, Proposal: []string{},
		Compartments: make([]compartment, 0, len(s.Compartments)),
	}
	if s.Proposal != nil {
		for _, why := range s.Proposal.Reasons {
			out.Proposal = append(out.Proposal, truncate(why, 2*longestName))
		}
	}
	for _, c := range s.Compartments {
		x, ran := c.Execution, c.Execution.Count > 0
		out.Compartments = append(out.Compartments, compartment{
			Name: truncateName(c.Name), Criticality: int(c.Criticality), CriticalityName: c.Criticality.String(),
			Mode: c.Mode.String(), WithoutSlot: c.WithoutSlot, WouldReject: nonNil(c.WouldReject),
			InFlight: c.InFlight, Queued: c.Queued, MaxQueue: c.MaxQueue, Guaranteed: c.Guaranteed, Lendable: c.Lendable,
			Max: c.Max, EffectiveGuaranteed: c.Effective.Guaranteed, EffectiveLendable: c.Effective.Lendable,
			EffectiveMax: c.Effective.Max,
			Lent:         c.Lent, Borrowed: c.Borrowed, Submitted: c.Submitted, Admitted: c.Admitted, Finished: c.Finished,
			RejectedTotal: rejectedTotal(c), Outcomes: nonNil(c.Outcomes), Rejected: nonNil(c.Rejected), Left: nonNil(c.Left),
			RejectionRate: jsonNumber(c.RejectionRate), Executions: x.Count, ExecutionMeanMS: msIf(ran, x.Mean),
			ExecutionP50MS: msIf(ran, x.P50), ExecutionP90MS: msIf(ran, x.P90), ExecutionP99MS: msIf(ran, x.P99),
			Abandoned: c.Abandoned, AbandonedTotal: c.AbandonedTotal,
			LatePanics: c.LatePanics, Degraded: c.Degraded, FallbacksFailed: c.FallbacksFailed,
			FallbacksRejected: c.FallbacksRejected, FallbacksInFlight: c.FallbacksInFlight, Tenants: c.Tenants,
			Healthy: c.Unhealthy == "", Unhealthy: truncate(c.Unhealthy, longestName),
			OldestRunningMS: msIf(c.OldestRunning > 0, c.OldestRunning), oldest: c.OldestRunning,
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

func nonNil(m map[string]uint64) map[string]uint64 {
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

// overran returns the number of calls that ran longer than their Timeout.
func (c compartment) overran() uint64 { return c.Outcomes[string(bulkhead.TimedOut)] }

// failures returns the number of calls whose functions returned an error or panicked.
func (c compartment) failures() uint64 {
	return c.Outcomes[string(bulkhead.Failed)] + c.Outcomes[string(bulkhead.Panicked)]
}

// gone returns the number of calls that left without an answer: those canceled before they started, and those abandoned later.
func (c compartment) gone() uint64 {
	return c.Rejected[string(decision.Canceled)] + c.Left[string(decision.Canceled)] + c.AbandonedTotal
}

func calls(n uint64) string {
	if n == 1 {
		return "1 call"
	}
	return thousands(n) + " calls"
}

// withHistory returns c completed from the history, whose last point may be of now.
func (c compartment) withHistory(points []poolPoint, now time.Time) compartment {
	full := c.EffectiveMax > 0 && c.InFlight >= c.EffectiveMax
	var first poolLoad
	known := false
	for _, point := range slices.Backward(points) {
		load, was := point.Pools["compartment:"+c.Name]
		if !was || now.Sub(point.At.Time) > time.Minute {
			break
		}
		first, known = load, true
		if full = full && load.Executed == c.Finished && load.InFlight >= c.EffectiveMax; full {
			c.stuckFor = now.Sub(point.At.Time)
		}
	}
	if !known {
		return c
	}
	c.timedOut = c.overran() - first.timedOut
	c.submitted, c.left = c.Submitted-first.submitted, c.gone()-first.left
	c.failed = c.failures() - first.failed
	c.rejectedRecently = c.rejections()
	for reason, n := range first.reasons {
		if c.rejectedRecently[reason] -= n; c.rejectedRecently[reason] == 0 {
			delete(c.rejectedRecently, reason)
		}
	}
	return c
}

// verdicts gives each compartment its verdict, and returns those of the ones with a problem, the most critical first, and one for
// all others.
func (s *setState) verdicts() []verdict {
	for i := range s.Compartments {
		c := &s.Compartments[i]
		v := c.verdict()
		c.Level, c.Text = v.Level, v.Text
	}
	var out []verdict
	var fine []string
	letters := 0
	if s.Stale {
		out = append(out, verdict{
			Level: staleLevel(s.InFlight > 0), Subject: "All compartments",
			Text: "The decision about them is stale: the controller is silent, and reduced limits apply.",
		})
	}
	worst := slices.Clone(s.Compartments)
	slices.SortStableFunc(worst, func(a, b compartment) int {
		return cmp.Or(cmp.Compare(b.Criticality, a.Criticality), cmp.Compare(b.RejectionRate, a.RejectionRate))
	})
	for _, c := range worst {
		if c.Level != levelOK {
			out = append(out, verdict{Level: c.Level, Subject: c.Name, Text: c.Text})
		}
	}
	for _, c := range s.Compartments {
		if c.Level == levelOK {
			fine = append(fine, plain(c.Name))
			letters += len(c.Name)
		}
	}
	switch {
	case len(fine) > 8 || letters > longestName:
		text := fmt.Sprintf("%d healthy: nothing rejected in the last minute.", len(fine))
		out = append(out, verdict{Level: levelOK, Subject: "Compartments", Text: text})
	case len(fine) > 0:
		text := "Healthy, nothing rejected in the last minute: " + strings.Join(fine, ", ") + "."
		out = append(out, verdict{Level: levelOK, Subject: "Compartments", Text: text})
	}
	return out
}

func (c compartment) verdict() verdict {
	level := levelOK
	var parts []string
	say := func(at, format string, args ...any) {
		level = worse(level, at)
		parts = append(parts, fmt.Sprintf(format, args...))
	}
	watch := func(format string, args ...any) { say(levelWatch, format, args...) }
	harm := levelAct // of what hurts all calls
	if c.CriticalityName == decision.Background.String() {
		harm = levelWatch
	}
	unlimited := true // no slot is waited for
	switch c.Mode {
	case decision.Bypass.String():
		watch("bypass: every call starts immediately")
	case decision.DryRun.String():
		watch("dry run: every call starts immediately")
		if would := sum(c.WouldReject); would > 0 {
			watch("%d would have been rejected since the start, %s", would, mostFrequent(c.WouldReject))
		}
	default:
		unlimited = false
	}
	if c.WithoutSlot > 0 {
		watch("%d run without a slot", c.WithoutSlot)
	}
	// Calls that last, such as streams, are no trouble as long as nobody needs their slots.
	if needed := c.Queued > 0 || c.left > 0 || len(c.rejectedRecently) > 0; needed && c.stuckFor >= stuckAfter {
		at := levelWatch
		if c.stuckFor >= window {
			at = harm
		}
		say(at, "all slots are in use, and no call has ended for %.0f s%s", c.stuckFor.Seconds(), c.oldestText())
	}
	switch {
	case !c.Healthy:
		say(levelAct, "%s", c.Unhealthy)
	case c.RejectionRate > 0 && unlimited:
		watch("rejected %s of the calls of the last minute: before the switch, by the circuit breaker, or because their deadline had passed",
			share(float64(c.RejectionRate)))
	case c.RejectionRate > 0:
		watch("rejected %s of the calls of the last minute", share(float64(c.RejectionRate)))
	}
	reasons, late, span := c.rejectedRecently, c.timedOut, ""
	if len(reasons) == 0 && c.RejectionRate > 0 { // there is no history
		reasons, late, span = c.rejections(), c.overran(), "since the start, "
	}
	if len(reasons) > 0 {
		watch("%s%s", span, mostFrequent(reasons))
	}
	if of := max(c.left, c.submitted); c.left > 0 { // they may have come before the minute
		say(harmLevel(c.CriticalityName, c.left, of), "%s of %s left without an answer in the last minute (%s)",
			thousands(c.left), calls(of), share(float64(c.left)/float64(of)))
	}
	if of := max(c.failed, c.submitted); c.failed > 0 && 100*c.failed >= of {
		at := levelWatch // an error may be an answer of the function
		if c.CriticalityName == decision.Critical.String() && 2*c.failed >= of {
			at = levelAct
		}
		say(at, "%s of %s failed in the last minute (%s)", thousands(c.failed), calls(of), share(float64(c.failed)/float64(of)))
	}
	if late > 0 {
		watch(
			"%s%s took longer than Timeout: the dependency, or this process, is slow (%s)",
			cmp.Or(span, "in the last minute, "), calls(late), bulkhead.TimedOut,
		)
	}
	if c.Queued > 0 {
		watch("%s", inQueue(c.Queued))
	}
	if c.Abandoned > 0 {
		watch("%d abandoned: they run although their callers are gone, and hold slots", c.Abandoned)
	}
	if level != levelOK && c.EffectiveGuaranteed < c.Guaranteed {
		watch("the controller leaves it %d of %d guaranteed slots", c.EffectiveGuaranteed, c.Guaranteed)
	}
	return verdict{Level: level, Subject: c.Name, Text: sentence(parts)}
}

// oldestText says for how long the oldest call runs; "" if that is not known.
func (c compartment) oldestText() string {
	if c.oldest == 0 {
		return ""
	}
	return ", the oldest for " + shortDuration(c.oldest)
}
