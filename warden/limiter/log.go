// Explanations and rejections in a structured log.

package limiter

import "log/slog"

// LogValue returns the explanation as a group: limiter, outcome, reason or grant, request_id if set, would_reject and mode in
// a dry run, task with its deadline, waited, in_flight, queued, bound and limit if one was reached, oldest_held from one second on,
// shed_below if set, decision_state and decision. It allocates.
func (e Explanation) LogValue() slog.Value { return slog.GroupValue(e.attrs()...) }

// LogValue returns the group of Explain, with retry_after if it is known. It allocates.
func (r *Rejection) LogValue() slog.Value {
	attrs := r.Explain().attrs()
	if r.RetryAfter > 0 {
		attrs = append(attrs, slog.Duration("retry_after", r.RetryAfter))
	}
	return slog.GroupValue(attrs...)
}

func (e Explanation) attrs() []slog.Attr {
	attrs := make([]slog.Attr, 0, 17) // and one for retry_after
	attrs = append(attrs, slog.String("limiter", e.Limiter), slog.String("outcome", e.Outcome.String()))
	if e.Reason != 0 {
		attrs = append(attrs, slog.String("reason", e.Reason.String()))
	}
	if e.Grant != 0 {
		attrs = append(attrs, slog.String("grant", e.Grant.String()))
	}
	if e.Task.ID != "" {
		attrs = append(attrs, slog.String("request_id", e.Task.ID))
	}
	if e.WouldReject != 0 {
		attrs = append(attrs, slog.String("would_reject", e.WouldReject.String()))
	}
	if e.Mode != Enforce {
		attrs = append(attrs, slog.String("mode", e.Mode.String()))
	}
	task := []any{slog.String("name", e.Task.Name), slog.String("priority", e.Task.Priority.String())}
	if !e.Deadline.IsZero() {
		task = append(task, slog.Time("deadline", e.Deadline), slog.String("deadline_from", e.DeadlineFrom.String()))
	}
	attrs = append(attrs, slog.Group("task", task...),
		slog.Duration("waited", e.Waited), slog.Int("in_flight", e.InFlight), slog.Int("queued", e.QueueLen))
	if e.Bound != 0 {
		attrs = append(attrs, slog.String("bound", e.Bound.String()), slog.Int("limit", e.Limit))
	}
	if e.OldestHeld >= held {
		attrs = append(attrs, slog.Duration("oldest_held", e.OldestHeld))
	}
	if e.sheds() {
		attrs = append(attrs, slog.String("shed_below", e.ShedBelow.String()))
	}
	if e.Decision != nil {
		attrs = append(attrs, slog.String("decision_state", e.DecisionState.String()), slog.Any("decision", e.Decision))
	}
	return attrs
}
