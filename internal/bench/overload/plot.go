//go:build linux

// The plots: goodput and critical success over the load, and goodput over a step, as an SVG that needs nothing else.

package main

import (
	"fmt"
	"strconv"
	"strings"
)

const (
	width, left, right = 760.0, 50.0, 10.0
	height, gap        = 150.0, 46.0
)

// colors of the variants, in their order.
func colors() []string {
	return []string{"#0a5", "#bbb", "#c60", "#e0a", "#06c", "#09c", "#639", "#a52", "#960"}
}

// plot draws a workload: three panels, one line for each variant.
func (r *report) plot(w workload) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="sans-serif" font-size="11">`+"\n", width, 3*(height+gap)+30)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#fff"/><text x="%g" y="15" font-size="13">%s: %s</text>`+"\n", left, w.name, w.about)
	x := left
	for i, v := range variants() {
		fmt.Fprintf(&b, `<text x="%g" y="30" fill="%s">%s</text>`+"\n", x, colors()[i], v.name)
		x += 7*float64(len(v.name)) + 18
	}
	loads := r.loadNames(w.name)
	var at []string
	for _, l := range loads {
		at = append(at, strings.TrimSuffix(l, "x")+"×")
	}
	panel := func(top float64, title string, ticks []string, points func(variant string) []float64) {
		fmt.Fprintf(&b, `<path d="M%g %gV%gH%g" fill="none" stroke="#999"/><path d="M%g %gH%g" stroke="#ddd"/>`+"\n", left, top, top+height, width-right, left, y(top, 1), width-right)
		fmt.Fprintf(&b, `<text x="%g" y="%g" fill="#666">%s</text>`+"\n", left+6, top-4, title)
		fmt.Fprintf(&b, `<text x="%g" y="%g" text-anchor="end">1</text><text x="%g" y="%g" text-anchor="end">0</text>`+"\n", left-4, y(top, 1)+4, left-4, top+height)
		step := (width - left - right) / float64(max(1, len(ticks)))
		for i, t := range ticks {
			fmt.Fprintf(&b, `<text x="%.0f" y="%g" text-anchor="middle" fill="#666">%s</text>`+"\n", left+(float64(i)+0.5)*step, top+height+13, t)
		}
		for i, v := range variants() {
			var line strings.Builder
			for k, value := range points(v.name) {
				if value >= 0 {
					fmt.Fprintf(&line, "%.1f,%.1f ", left+(float64(k)+0.5)*step, y(top, value))
				}
			}
			stroke := 1.2
			if i == 0 {
				stroke = 2.4
			}
			if line.Len() > 0 {
				fmt.Fprintf(&b, `<polyline fill="none" stroke="%s" stroke-width="%g" points="%s"/>`+"\n", colors()[i], stroke, line.String())
			}
		}
	}
	of := func(value func(*Cell) float64) func(string) []float64 {
		return func(variant string) (p []float64) {
			for _, l := range loads {
				if c := r.find(w.name, l, variant); c != nil {
					p = append(p, value(c))
				} else {
					p = append(p, -1)
				}
			}
			return p
		}
	}
	panel(56, "goodput, of what was possible, at a load of", at, of(func(c *Cell) float64 { return c.Goodput }))
	panel(56+height+gap, "critical requests answered in time", at, of(func(c *Cell) float64 { return c.Critical }))
	var seconds []string
	for _, c := range r.Cells {
		if c.Workload == w.name && c.Load == "step" && seconds == nil {
			for _, s := range halfSeconds(len(c.Halves)) {
				seconds = append(seconds, strconv.FormatFloat(s, 'f', 2, 64)+"s")
			}
		}
	}
	panel(56+2*(height+gap), "goodput by half seconds, a step from 0.6 to 5 and back", seconds, func(variant string) []float64 {
		if c := r.find(w.name, "step", variant); c != nil {
			return c.Halves
		}
		return nil
	})
	b.WriteString("</svg>\n")
	return b.String()
}

// y is where a share lies in a panel whose top is given; 1.25 and more lie at the top.
func y(top, share float64) float64 { return top + height*(1-min(share, 1.25)/1.25) }
