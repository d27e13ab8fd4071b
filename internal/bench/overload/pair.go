// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Two variants, or two builds of one, in pairs of runs beside each other: what the machine does to both drops out of the
// difference.

package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/aclements/go-moremath/stats"
)

// A side is a variant in a build of this program.
type side struct {
	variant
	binary string // "": this one
}

// sidesNamed parses a flag with two sides.
func sidesNamed(text string) (sides [2]side, err error) {
	names := strings.Split(text, ",")
	if len(names) != 2 {
		return sides, fmt.Errorf("-pair has %q; allowed: two of variant or variant@binary, separated by a comma", text)
	}
	for i, name := range names {
		name, binary, _ := strings.Cut(name, "@")
		v, unknown := variantNamed(name)
		if binary != "" {
			_, missing := os.Stat(binary)
			unknown = errors.Join(unknown, missing)
		}
		sides[i], err = side{v, binary}, errors.Join(err, unknown)
	}
	return sides, err
}

// The capacities before and after a pair may differ by the factor drift. Otherwise the pair is void and repeated, up to so many
// times.
const drift, repeats = 1.05, 3

// pairUp measures n pairs, the first side first in every other one, and the capacity before and after each. It leaves out those
// of which each repetition is void, too.
func pairUp(n int, probe func() (able, error), run func(side, pair int, can able) (Cell, error)) (kept [][2]Cell, void int,
	err error) {
	before, err := probe()
	if err != nil {
		return nil, 0, err
	}
	for i := range n {
		for range 1 + repeats {
			var pair [2]Cell
			for _, s := range [2]int{i % 2, 1 - i%2} {
				if pair[s], err = run(s, i, before); err != nil {
					return nil, 0, err
				}
			}
			after, err := probe()
			if err != nil {
				return nil, 0, err
			}
			steady := max(before.capacity, after.capacity) <= drift*min(before.capacity, after.capacity)
			before = after
			if steady {
				kept = append(kept, pair)
				break
			}
			void++
		}
	}
	return kept, void, nil
}

// difference is the mean of the second side minus the first, and half of its 95 % confidence interval by Student's t: infinite
// for fewer than two pairs.
func difference(pairs [][2]Cell, of func(*Cell) float64) (mean, half float64) {
	n := float64(len(pairs))
	if n == 0 {
		return 0, math.Inf(1)
	}
	for i := range pairs {
		mean += (of(&pairs[i][1]) - of(&pairs[i][0])) / n
	}
	squares := 0.0
	for i := range pairs {
		d := of(&pairs[i][1]) - of(&pairs[i][0]) - mean
		squares += d * d
	}
	if n == 1 {
		return mean, math.Inf(1)
	}
	return mean, stats.InvCDF(stats.TDist{V: n - 1})(0.975) * math.Sqrt(squares/(n-1)/n)
}

// compare measures the pairs of each cell that both sides are asked for, and writes their differences.
func compare(l *lab, groups []group, sides [2]side, n int, out io.Writer) error {
	defer l.close()
	if err := l.prepare(); err != nil {
		return err
	}
	fmt.Fprintln(out, header)
	var table strings.Builder
	table.WriteString("| work | load | clients | pairs | void | disturbed | goodput | critical | p99 of critical, ms |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, g := range groups {
		if !g.asks(sides[0].variant) || !g.asks(sides[1].variant) {
			continue
		}
		for _, load := range g.loads {
			kept, void, err := pairUp(n, func() (able, error) { return l.measure(g.workload, g.knows) },
				func(s, pair int, can able) (Cell, error) {
					c, err := l.run(sides[s], g.workload, load, g.knows, can, pair)
					fmt.Fprintf(out, "%v  %c\n", &c, "AB"[s])
					return c, err
				})
			if err != nil {
				return err
			}
			table.WriteString(row(g, load, kept, void))
		}
	}
	_, err := fmt.Fprintf(out, "\nEach entry: A = %s, B = %s, and B - A with its 95 %% confidence interval (* where it excludes 0).\n\n%s",
		sides[0], sides[1], &table)
	return err
}

func (s side) String() string {
	if s.binary == "" {
		return s.name
	}
	return s.name + "@" + s.binary
}

// row is a line of the table.
func row(g group, load float64, kept [][2]Cell, void int) string {
	disturbed := 0
	for _, p := range kept {
		if p[0].Doubt+p[1].Doubt != "" {
			disturbed++
		}
	}
	entry := func(digits int, of func(*Cell) float64) string {
		if len(kept) == 0 {
			return ""
		}
		var means [2]float64
		for i := range kept {
			for s := range means {
				means[s] += of(&kept[i][s]) / float64(len(kept))
			}
		}
		mean, half := difference(kept, of)
		mark := ""
		if math.Abs(mean) > half {
			mark = " *"
		}
		return fmt.Sprintf("%.*f, %.*f: %+.*f ± %.*f%s", digits, means[0], digits, means[1], digits, mean, digits, half, mark)
	}
	p99 := ""
	if !slices.ContainsFunc(kept, func(p [2]Cell) bool { return p[0].P99Crit*p[1].P99Crit == 0 }) { // 0: none was answered
		p99 = entry(0, func(c *Cell) float64 { return c.P99Crit })
	}
	return fmt.Sprintf("| %s | %s | %s | %d | %d | %d | %s | %s | %s |\n", g.workload.about,
		strings.ReplaceAll(g.workload.loadName(load), "x", "×"), g.knows,
		len(kept), void, disturbed, entry(3, func(c *Cell) float64 { return c.Goodput }),
		entry(3, func(c *Cell) float64 { return c.Critical }), p99)
}
