// SPDX-License-Identifier: Apache-2.0

// The report: Markdown that is readable in a terminal, with met and missed targets.

package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"text/tabwriter"
	"time"
)

// document returns the whole report.
func document(results []result, rounds int, slice time.Duration) string {
	var b strings.Builder
	b.WriteString("# Benchmarks\n\n")
	b.WriteString("Printed by `make bench`. A ratio is our time divided by the peer's in the same round, so below 1 we are faster; it is the\n")
	b.WriteString("median over the rounds with its 95 % interval. Times are those of one small machine and only there to give a scale.\n")
	b.WriteString("Rows without a target are there to be read, the ones in which we lose included.\n\n")
	b.WriteString("Rows of throughput on PostgreSQL and JetStream are whole consumers in processes of their own, beside the server on the same machine: 10,000 records that were there\n")
	b.WriteString("before, from the first handler to the last record that is done for good. With ledgers per\n")
	b.WriteString("window that is when all partitions have been given back, and so everything is written. PostgreSQL runs with fsync on, for all;\n")
	b.WriteString("statements that are sent together count as one. Rows of the dispatcher and on Kafka are one consumer, beside the log in its process, to the end of the last handler.\n" +
		"All these and the changes of process have three rounds, whose range is the interval, and their allocations are not counted: 0.\n\n")
	fmt.Fprintf(&b, "%s %s/%s, GOMAXPROCS %d; %d rounds of %v a variant.\n\n", runtime.Version(), runtime.GOOS, runtime.GOARCH,
		runtime.GOMAXPROCS(0), rounds, slice)
	b.WriteString("Peers: " + strings.Join(versions(), ", ") + ".\n")

	if !havePostgres() {
		b.WriteString("\nLeft out: the rows on PostgreSQL, which is not installed.\n")
	}

	layer := ""
	for _, r := range results {
		if r.layer != layer {
			layer = r.layer
			fmt.Fprintf(&b, "\n## %s\n", layer)
		}
		b.WriteString("\n" + table(r))
	}
	b.WriteString("\n## Not measured\n\nMore than two processors; servers of their own, with disks and a network between; replicated streams; a Kafka that is not a fake; long runs, in\n" +
		"which a database vacuums and a log grows.\n")
	return b.String()
}

// replaced returns the page with the tables of these results in the place of earlier ones.
func replaced(page string, results []result) (string, error) {
	for _, r := range results {
		now := table(r)
		title, _, _ := strings.Cut(now, "\n")
		before, rest, found := strings.Cut(page, title+"\n")
		end := strings.Index(rest, "\n##")
		if !found || end < 0 {
			return page, fmt.Errorf("the page has no %q", title)
		}
		page = before + now + rest[end:]
	}
	return page, nil
}

// table formats one row of the measurements as a small table of its variants.
func table(r result) string {
	var b strings.Builder
	how := " (one goroutine)"
	switch {
	case strings.Contains(r.title, "goroutine"), strings.Contains(r.title, "workers"): // the title names the parallelism
		how = ""
	case r.goroutines > 1:
		how = fmt.Sprintf(" (%d goroutines on one instance)", r.goroutines)
	}
	fmt.Fprintf(&b, "### %s%s\n\n", r.title, how)
	w := tabwriter.NewWriter(&b, 0, 0, 1, ' ', tabwriter.Debug)
	line := func(cells ...string) { fmt.Fprintln(w, "\t "+strings.Join(cells, "\t ")+"\t") }
	line("variant", "ns/op", "allocs/op", "ours / it", "95 %", "target", "")
	line("---", "--:", "--:", "--:", ":-:", "--:", "---")
	for i, c := range r.cells {
		ratio, interval, target, verdict := "", "", "", ""
		if i > 0 {
			ratio, interval = number(c.ratio), number(c.low)+"-"+number(c.high)
		}
		if c.most > 0 {
			target = "≤ " + number(c.most)
			verdict = "met"
			if c.ratio > c.most {
				verdict = fmt.Sprintf("**missed, %.2f ×**", c.ratio/c.most)
			}
		}
		line(c.name, fmt.Sprintf("%.1f", c.ns), number(c.allocs), ratio, interval, target, verdict)
	}
	_ = w.Flush()
	if r.note != nil {
		b.WriteString("\n" + r.note() + "\n")
	}
	return b.String()
}

// number formats two digits after the point, or two significant digits if it is small.
func number(v float64) string {
	switch {
	case v == 0 || v < 0.0005:
		return "0"
	case v < 0.1:
		return fmt.Sprintf("%.3f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// versions lists the peers in this binary with their versions.
func versions() []string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return []string{"unknown"}
	}
	var all []string
	for _, m := range info.Deps {
		switch m.Path {
		case "github.com/failsafe-go/failsafe-go", "golang.org/x/sync",
			"github.com/jackc/pgx/v5", "github.com/nats-io/nats.go", "github.com/nats-io/nats-server/v2", "github.com/riverqueue/river",
			"github.com/twmb/franz-go/pkg/kfake":
			all = append(all, m.Path+" "+m.Version)
		}
	}
	return all
}
