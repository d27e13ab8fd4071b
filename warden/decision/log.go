// Decisions in a structured log.

package decision

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
)

// LogValue returns the decision as a group: seq, target, shed, reasons as strings, and those set of at, valid_for, burst,
// expected, max_wait, needs, yields, and stale, the decision that applies after this one has expired; and parts, the limits of those
// that have reasons, with the first. It allocates.
func (d ControlDecision) LogValue() slog.Value {
	attrs := make([]slog.Attr, 0, 11)
	attrs = append(attrs, slog.Uint64("seq", d.Seq))
	if !d.At.IsZero() {
		attrs = append(attrs, slog.Time("at", d.At))
	}
	attrs = append(attrs, slog.Int("target", d.TargetConcurrency), slog.Float64("shed", d.ShedProbability))
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
	if d.Burst > 0 && d.Burst != DefaultBurst {
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
		attrs = append(attrs, slog.Group("stale", slog.Int("target", d.Stale.TargetConcurrency), slog.Float64("shed", d.Stale.ShedProbability)))
	}
	return slog.GroupValue(attrs...)
}
