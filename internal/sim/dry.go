// SPDX-License-Identifier: Apache-2.0

// The dry run: whether it announces what enforcing does, although the server that it leaves unprotected is another one.

package sim

import (
	"fmt"
	"io"
	"math"
	"strings"
)

// announced is the share of a dry run's attempts that it would have rejected, and enforced the share that a run did reject.
func (r *Result) announced() float64 {
	return float64(r.stats.WouldReject) / max(float64(r.stats.Submitted), 1)
}

func (r *Result) enforced() float64 {
	return float64(r.stats.Rejected) / max(float64(r.stats.Submitted), 1)
}

// printDry writes in how many worlds the dry run of ours announces what ours enforces.
func printDry(out io.Writer, counted []*Trial, names []string) {
	for i, name := range names {
		if name != "ours" {
			continue
		}
		calm, alike, hard, warned, enforced, announced := 0, 0, 0, 0, 0.0, 0.0
		var off strings.Builder
		for _, t := range counted {
			does, says := t.Laws[i].enforced(), t.Dry.announced()
			switch t.World.Class() {
			case Below:
				calm++
				alike += one(math.Abs(says-does) <= 0.01)
				if math.Abs(says-does) > 0.01 {
					fmt.Fprintf(&off, " %d (%.3f of %.3f)", t.World.Seed, says, does)
				}
			case Overload:
				if does > 0.05 {
					hard++
					warned += one(says > 0.01)
					enforced, announced = enforced+does, announced+says
				}
			}
		}
		n := max(float64(hard), 1)
		fmt.Fprintf(out, "\nA dry run of ours in the same worlds, by the limiter's counters:\n\n| worlds | the dry run | target | share |\n|---|---|---|---|\n"+
			"| below 0.9 (%d) | announces within 0.01 of the requests what enforcing rejects | 0.99 | %.3f |\n"+
			"| overload, enforcing rejects over 0.05 (%d) | announces over 0.01 | 1.00 | %.3f |\n\n"+
			"There enforcing rejects %.3f of the requests, and the dry run announces %.3f, both means.\n",
			calm, float64(alike)/max(float64(calm), 1), hard, float64(warned)/n, enforced/n, announced/n)
		if off.Len() > 0 {
			fmt.Fprintf(out, "Below 0.9 it announces otherwise in%s.\n", off.String())
		}
	}
}
