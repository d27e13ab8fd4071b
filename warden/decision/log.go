// SPDX-License-Identifier: Apache-2.0

// Decisions, explanations and rejections in a structured log.

package decision

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
)

// LogValue returns the decision as a group: seq, target, shed, reasons as strings, and those set of at, parked, valid_for, burst,
// expected, max_wait, needs, yields, and stale, the decision that applies after this one has expired; and parts, the limits of
// those that have reasons, with the first. It allocates.
func (d ControlDecision) LogValue() slog.Value {
	attrs := make([]slog.Attr, 0, 12)
	attrs = append(attrs, slog.Uint64("seq", d.Seq))
	if !d.At.IsZero() {
		attrs = append(attrs, slog.Time("at", d.At))
	}
	attrs = append(attrs, slog.Int("target", d.TargetConcurrency), slog.Float64("shed", d.ShedProbability))
	if d.Parked > 0 {
		attrs = append(attrs, slog.Int("parked", d.Parked))
	}
	if len(d.Reasons) > 0 {
		reasons := make([]string, len(d.Reasons)) // a slice of values that log themselves would lose its parts in JSON
		for i, r := range d.Reasons {
			reasons[i] = r.String()
		}
		attrs = append(attrs, slog.Any("reasons", reasons))
	}
	if d.ValidFor > 0 {
		attrs = append(attrs, slog.Duration("valid_for", d.ValidFor))
	}
	if d.Burst > 0 && d.Burst != defaultBurst {
		attrs = append(attrs, slog.Duration("burst", d.Burst))
	}
	if d.Expected > 0 {
		attrs = append(attrs, slog.Duration("expected", d.Expected))
	}
	if d.MaxWait > 0 {
		attrs = append(attrs, slog.Duration("max_wait", d.MaxWait))
	}
	if len(d.Needs) > 0 {
		needs := make([]slog.Attr, 0, len(d.Needs))
		for _, name := range slices.Sorted(maps.Keys(d.Needs)) {
			needs = append(needs, slog.Duration(name, d.Needs[name]))
		}
		attrs = append(attrs, slog.GroupAttrs("needs", needs...))
	}
	var parts []slog.Attr
	for _, name := range slices.Sorted(maps.Keys(d.Parts)) {
		if p := d.Parts[name]; len(p.Reasons) > 0 {
			parts = append(parts, slog.String(name, fmt.Sprintf("%d, %v", p.TargetConcurrency, p.Reasons[0])))
		}
	}
	if len(parts) > 0 {
		attrs = append(attrs, slog.GroupAttrs("parts", parts...))
	}
	if d.Yields > 0 {
		attrs = append(attrs, slog.Int("yields", d.Yields))
	}
	if d.Stale != nil { // its own Stale means nothing, so this ends
		attrs = append(attrs, slog.Group("stale", slog.Int("target", d.Stale.TargetConcurrency),
			slog.Float64("shed", d.Stale.ShedProbability)))
	}
	return slog.GroupValue(attrs...)
}

// LogValue returns the explanation as a group: limiter, outcome, reason or grant, request_id if set, would_reject if set, mode
// unless it is enforce, task with its deadline, waited, in_flight, queued, bound and limit if one was reached, oldest_held from
// one second on, shed_below if set, decision_state and decision. It allocates.
func (e Explanation) LogValue() slog.Value { return slog.GroupValue(e.attrs()...) }

// LogValue returns the group of the explanation, with retry_after if it is known. It allocates.
func (r *Rejection) LogValue() slog.Value {
	attrs := r.attrs()
	if r.RetryAfter > 0 {
		attrs = append(attrs, slog.Duration("retry_after", r.RetryAfter))
	}
	return slog.GroupValue(attrs...)
}

func (e Explanation) attrs() []slog.Attr {
	attrs := make([]slog.Attr, 0, 18) // and one for retry_after
	attrs = append(attrs, slog.String("limiter", e.Limiter), slog.String("outcome", string(e.Outcome)))
	if e.Reason != "" {
		attrs = append(attrs, slog.String("reason", string(e.Reason)))
	}
	if e.Grant != "" {
		attrs = append(attrs, slog.String("grant", string(e.Grant)))
	}
	if e.Task.ID != "" {
		attrs = append(attrs, slog.String("request_id", e.Task.ID))
	}
	if e.WouldReject != "" {
		attrs = append(attrs, slog.String("would_reject", string(e.WouldReject)))
	}
	if e.Mode != Enforce {
		attrs = append(attrs, slog.String("mode", e.Mode.String()))
	}
	task := []any{slog.String("name", e.Task.Name), slog.String("priority", e.Task.Priority.String())}
	if !e.Deadline.IsZero() {
		task = append(task, slog.Time("deadline", e.Deadline), slog.String("deadline_from", string(e.DeadlineFrom)))
	}
	if e.Task.Tenant != "" {
		task = append(task, slog.String("tenant", e.Task.Tenant))
	}
	attrs = append(attrs, slog.Group("task", task...),
		slog.Duration("waited", e.Waited), slog.Int("in_flight", e.InFlight), slog.Int("queued", e.QueueLen))
	if s := e.Tenant; s.Share > 0 {
		attrs = append(attrs, slog.Group("tenant", slog.Int("in_flight", s.InFlight), slog.Int("queued", s.QueueLen),
			slog.Float64("share", s.Share)))
	}
	if e.Bound != "" {
		attrs = append(attrs, slog.String("bound", string(e.Bound)), slog.Int("limit", e.Limit))
	}
	if e.OldestHeld >= held {
		attrs = append(attrs, slog.Duration("oldest_held", e.OldestHeld))
	}
	if e.sheds() {
		attrs = append(attrs, slog.String("shed_below", e.ShedBelow.String()))
	}
	if e.Decision != nil {
		attrs = append(attrs, slog.String("decision_state", string(e.DecisionState)), slog.Any("decision", e.Decision))
	}
	return attrs
}
