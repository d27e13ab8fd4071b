// The report: a table of all runs with their oracle, and the goals that were missed.

package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stopbank/stopbank/warden/limiter"
)

func (sc Scenario) title() string { return fmt.Sprintf("%d cores: %s", sc.Cores, sc.Name) }

// A Pair is one scenario under the controller and under the best constant concurrency limit.
type Pair struct{ Ours, Oracle *Result }

// Misses returns the goals that a pair misses.
func (p Pair) Misses() (misses []string) {
	if p.Ours.Goodput() < 0.95*p.Oracle.Goodput() {
		misses = append(misses, "goodput")
	}
	// A concurrency limit that does not bind may move without effect. A binding one is tested at times, at 0.75 of its value, and may
	// recover slowly.
	if _, variation := p.Ours.Target(); p.Ours.Scenario.Steady && p.Ours.Scenario.Load(0) > 1 && variation > 0.3 {
		misses = append(misses, "target moves")
	}
	if p.Ours.Success(limiter.Critical) < p.Oracle.Success(limiter.Critical)-0.01 {
		misses = append(misses, "critical")
	}
	return misses
}

// Table is the Markdown table of pairs.
func Table(pairs []Pair) string {
	var b strings.Builder
	b.WriteString("| cores | scenario | goodput | oracle (its target) | critical | oracle | p50 / p99 | p99 critical | target, variation | miss |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|\n")
	for _, p := range pairs {
		r, o := p.Ours, p.Oracle
		mean, variation := r.Target()
		fmt.Fprintf(&b, "| %d | %s | %.3f | %.3f (%d) | %.3f | %.3f | %d / %d ms | %d ms | %.0f, %.2f | %s |\n",
			r.Scenario.Cores, r.Scenario.Name, r.Goodput(), o.Goodput(), o.Static, r.Success(limiter.Critical), o.Success(limiter.Critical),
			r.Latency(0.5).Milliseconds(), r.Latency(0.99).Milliseconds(), r.Urgent(0.99).Milliseconds(), mean, variation, strings.Join(p.Misses(), ", "))
	}
	return b.String()
}

// Splice replaces the text between two marks of a page.
func Splice(page, content string) (string, error) {
	const begin, end = "<!-- table -->\n", "<!-- end of table -->\n"
	i, j := strings.Index(page, begin), strings.Index(page, end)
	if i < 0 || j < i {
		return "", fmt.Errorf("the page has no %q … %q", begin, end)
	}
	return page[:i+len(begin)] + content + page[j:], nil
}

// best is the oracle: the run with the highest goodput.
func best(runs []*Result) *Result {
	return slices.MaxFunc(runs, func(a, b *Result) int { return sum(a.good) - sum(b.good) })
}
