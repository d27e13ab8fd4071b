// SPDX-License-Identifier: Apache-2.0

// Two laws in the same worlds: the difference of each world is one observation, so the worlds' own differences drop out.

package sim

import (
	"fmt"
	"io"
	"math"
)

// spread returns the mean of values and half of its 95 % confidence interval, by the normal approximation.
func spread(values []float64) (mean, half float64) {
	n := float64(len(values))
	for _, v := range values {
		mean += v / n
	}
	sum := 0.0
	for _, v := range values {
		sum += (v - mean) * (v - mean)
	}
	return mean, 1.96 * math.Sqrt(sum/max(n-1, 1)/max(n, 1))
}

// printPairs writes how every law differs from the first.
func printPairs(out io.Writer, counted []*Trial, names []string) {
	if len(names) < 2 {
		return
	}
	fmt.Fprintf(out, "\nMinus %s, world by world, with the 95 %% confidence interval (* where it excludes 0):\n\n| worlds | law | goodput | ≥ 0.95 | ≥ 0.8 | critical as it should be | latches | harm | left without a word |\n|---|---|---|---|---|---|---|---|---|\n", names[0])
	for _, s := range splits {
		for i, name := range names[1:] {
			n, differences := 0, make([][]float64, 7)
			for _, t := range counted {
				if !s.of(t) {
					continue
				}
				n++
				a, b := t.Judge(t.Laws[0]), t.Judge(t.Laws[i+1])
				left := func(law int) float64 { return t.World.counted(t.Laws[law]).LeftShare() }
				for k, d := range []float64{
					b.Goodput - a.Goodput, change(a.Goodput >= 0.95, b.Goodput >= 0.95), change(a.Goodput >= 0.8, b.Goodput >= 0.8),
					change(a.Critical <= 0, b.Critical <= 0), change(a.Latch, b.Latch), change(a.Harm, b.Harm), left(i+1) - left(0),
				} {
					differences[k] = append(differences[k], d)
				}
			}
			if n == 0 {
				continue
			}
			fmt.Fprintf(out, "| %s (%d) | %s |", s.name, n, name)
			for _, d := range differences {
				mean, half := spread(d)
				mark := ""
				if math.Abs(mean) > half {
					mark = " *"
				}
				fmt.Fprintf(out, " %+.3f ± %.3f%s |", mean, half, mark)
			}
			fmt.Fprintln(out)
		}
	}
}

func change(before, after bool) float64 { return float64(one(after) - one(before)) }
