// SPDX-License-Identifier: Apache-2.0

// The walk: from the alerts that fire, or from First steps, through the runbook to a name.
package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Labels are those of a series.
type labels map[string]string

// A named fault is what the operator says at the end of a walk.
type named struct {
	Name   string   `json:"name"`
	Labels labels   `json:"labels"`
	From   string   `json:"from"` // the section where the walk began
	Path   []string `json:"path"` // section, step and branch of each query
}

// An alert fires since a moment.
type alert struct {
	Name, Severity string
	Labels         labels
	Since          time.Time
}

// firstSteps are where the walk begins when nothing fires.
const firstSteps = "first-steps"

// nothing reports whether a name says that there is nothing to name.
func nothing(name string) bool { return name == "over" || name == "healthy" }

// An operator knows the runbook, and asks Prometheus. ask returns the series of a query.
type operator struct {
	runbook map[string]*section
	ask     func(ctx context.Context, query string) ([]labels, error)
}

// look walks from each alert, pages before tickets and the older first, and then from First steps, until a fault is named. The
// labels that the naming query does not have are those of the alert. ok is false if nothing is named.
func (o *operator) look(ctx context.Context, alerts []alert) (found named, ok bool, err error) {
	alerts = slices.SortedStableFunc(slices.Values(alerts), func(a, b alert) int {
		return cmp.Or(strings.Compare(a.Severity, b.Severity), a.Since.Compare(b.Since))
	})
	for _, a := range append(alerts, alert{Name: firstSteps}) {
		found = named{From: a.Name}
		if err := o.walk(ctx, strings.ToLower(a.Name), &found); err != nil {
			return named{}, false, err
		}
		if found.Name == "" || nothing(found.Name) {
			continue
		}
		all := labels{}
		maps.Copy(all, a.Labels)
		maps.Copy(all, found.Labels)
		found.Labels = all
		return found, true, nil
	}
	return named{}, false, nil
}

// walk takes the steps of a section, and of those that it is sent on to, each section once.
func (o *operator) walk(ctx context.Context, at string, found *named) error {
	seen := map[string]bool{}
	var last labels
	for at != "" && !seen[at] {
		seen[at] = true
		s := o.runbook[at]
		if s == nil {
			return fmt.Errorf("the runbook has no section #%s", at)
		}
		next, err := o.take(ctx, s, &last, found)
		if err != nil || found.Name != "" {
			return err
		}
		at = next
	}
	return nil
}

// take takes the steps of a section, until one names a fault or sends on. last is the first series of the last query that had one: a
// name that follows from no result has its labels.
func (o *operator) take(ctx context.Context, s *section, last *labels, found *named) (next string, err error) {
	for _, st := range s.steps {
		for i, q := range st.queries {
			series, err := o.ask(ctx, q.text)
			if err != nil {
				return "", fmt.Errorf("%s, step %s: %w", s.title, st.number, err)
			}
			b, first := q.choose(series)
			if first != nil {
				*last = first
			}
			at := fmt.Sprintf("%s %s%c", s.title, st.number, 'a'+i)
			found.Path = append(found.Path, fmt.Sprintf("%s: %d series%s", at, len(series), first.short()))
			if b == nil {
				continue
			}
			if b.name != "" {
				found.Name, found.Labels = b.name, *last
				return "", nil
			}
			if b.jump != "" {
				return b.jump, nil
			}
		}
		if st.jump != "" {
			return st.jump, nil
		}
	}
	return "", nil
}

// choose returns the branch that the answer takes, nil if there is none, and the first series that takes it.
func (q *query) choose(series []labels) (*branch, labels) {
	for i := range q.branches {
		b := &q.branches[i]
		switch {
		case !b.result && len(series) == 0:
			return b, nil
		case b.result && b.label == "" && len(series) > 0:
			return b, series[0]
		case b.result:
			for _, s := range series {
				if slices.Contains(b.values, s[b.label]) {
					return b, s
				}
			}
		}
	}
	if len(series) > 0 {
		return nil, series[0]
	}
	return nil, nil
}

// short is the labels for a reader.
func (l labels) short() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(l)) {
		if !slices.Contains([]string{"__name__", "alertname", "job", "severity"}, name) {
			fmt.Fprintf(&b, " %s=%s", name, l[name])
		}
	}
	return b.String()
}
