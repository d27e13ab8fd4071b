// SPDX-License-Identifier: Apache-2.0

// The dry run: whether it announces what enforcing does, although the server that it leaves unprotected is another one.

package sim

import (
	"fmt"
	"io"
	"math"
)

// announced is the share of a dry run's attempts that it would have rejected, and enforced the share that a run did reject.
func (r *Result) announced() float64 {
	return float64(r.stats.WouldReject) / max(float64(r.stats.Submitted), 1)
}

func (r *Result) enforced() float64 {
	return float64(r.stats.Rejected) / max(float64(r.stats.Submitted), 1)
}

// printDry writes in how many worlds the dry run of ours, which is this law, announces what ours enforces.
func printDry(out io.Writer, counted []*Trial, law int) {
	calm, alike, hard, warned, enforced, announced := 0, 0, 0, 0, 0.0, 0.0
	for _, t := range counted {
		does, says := t.Laws[law].enforced(), t.Dry.announced()
		switch {
		case t.World.Class() == Below:
			calm++
			alike += one(math.Abs(says-does) <= 0.01)
		case t.World.Class() == Overload && does > 0.05:
			hard++
			warned += one(says > 0.01)
			enforced, announced = enforced+does, announced+says
		}
	}
	n := max(float64(hard), 1)
	fmt.Fprintf(out, "\nA dry run announces, within 0.01 of the requests, what enforcing rejects in %.3f of the worlds below 0.9 "+
		"(target 0.99). In overload, where enforcing rejects over 0.05, it announces over 0.01 in %.3f (target 1.00), on average %.3f for %.3f.\n",
		float64(alike)/max(float64(calm), 1), float64(warned)/n, announced/n, enforced/n)
}
