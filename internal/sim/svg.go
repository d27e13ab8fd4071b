// SPDX-License-Identifier: Apache-2.0

// The plots: runs over time, as self-contained SVG.

package sim

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// A series is one line of a panel, in one of five colors.
type series struct {
	name string
	ink  int
	x, y []float64
}

const (
	width, left, right = 860.0, 60.0, 210.0 // right: space for the names of lines
	high, gap          = 130.0, 40.0
	first              = 42.0 // top of the first panel
)

// style supports light and dark pages. The colors are distinguishable for color-blind readers; dashes help in print.
const style = `<style>
text{fill:#1f2328;font:12px system-ui,sans-serif}.m{fill:#59636e}.b{font-weight:600}.paper{fill:#fff}.axis{stroke:#8c959f;fill:none}.shade{fill:#eaeef2}
polyline{fill:none;stroke-width:1.6}.s0{stroke:#8c959f}.s1{stroke:#0969da;stroke-width:2.2}.s2{stroke:#bc4c00;stroke-dasharray:6 3}.s3{stroke:#8250df;stroke-dasharray:2 3}.s4{stroke:#9a6700;stroke-dasharray:8 3 2 3}
.t0{fill:#59636e}.t1{fill:#0969da;font-weight:600}.t2{fill:#bc4c00}.t3{fill:#8250df}.t4{fill:#9a6700}
@media (prefers-color-scheme:dark){text{fill:#f0f6fc}.m{fill:#9198a1}.paper{fill:#0d1117}.axis{stroke:#656c76}.shade{fill:#21262d}
.s1{stroke:#58a6ff}.s2{stroke:#f0883e}.s3{stroke:#bc8cff}.s4{stroke:#d29922}.t0{fill:#9198a1}.t1{fill:#58a6ff}.t2{fill:#f0883e}.t3{fill:#bc8cff}.t4{fill:#d29922}}
</style>
`

// begin writes everything before the panels.
func begin(b *strings.Builder, title string) {
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" role="img"><title>%s</title>`+"\n%s", width,
		first+3*(high+gap), title, style)
	fmt.Fprintf(b, `<rect class="paper" width="100%%" height="100%%"/><text class="b" x="%g" y="15">%s</text>`+"\n", left, title)
}

// by is what a function says of each part of a run.
func by(name string, ink int, r *Result, part float64, f func(s *stretch) float64) series {
	out := series{name: name, ink: ink}
	for at := 0.0; at < r.World.Length; at += part {
		out.x, out.y = append(out.x, at+part/2), append(out.y, f(r.during(at, at+part)))
	}
	return out
}

// SVG draws a run with the oracle's constant concurrency limit.
func (t *Trial) SVG() string {
	r := t.Laws[0]
	good := func(s *stretch) float64 { return float64(s.Good) }
	offered := by("offered", 0, r, 1, func(s *stretch) float64 { return float64(s.Offered) })
	best := by(fmt.Sprintf("in time: best constant, %d", t.Best), 2, t.Oracle, 1, good)
	target, running := series{name: "concurrency limit", ink: 1}, series{name: "running"}
	execution, lag := series{name: "execution time, p50", ink: 3}, series{name: "scheduling delay, p90", ink: 2}
	for _, p := range r.points {
		add := func(s *series, y float64) { s.x, s.y = append(s.x, p.at.Seconds()), append(s.y, y) }
		add(&target, float64(p.rules.TargetConcurrency))
		add(&running, p.sample.Service.Concurrency)
		add(&execution, p.sample.Service.P50.Seconds()*1000)
		add(&lag, p.sample.Lag.P90.Seconds()*1000)
	}
	var b strings.Builder
	begin(&b, t.World.title())
	panel(&b, first, t.World.Length, "requests per second", offered, best, by("in time: Stopbank", 1, r, 1, good))
	panel(&b, first+high+gap, t.World.Length, "tasks", running, target)
	panel(&b, first+2*(high+gap), t.World.Length, "milliseconds", lag, execution)
	b.WriteString("</svg>\n")
	return b.String()
}

// FleetSVG draws the runs of one fleet under different guards, of which the warden is the last.
func FleetSVG(runs []*Result) string {
	w, inks := runs[0].World, []int{0, 2, 4, 3, 1}
	var answered, attempts []series
	for i, r := range runs {
		ink := inks[i%len(inks)]
		answered = append(answered, by(r.Guard, ink, r, window, func(s *stretch) float64 { return 100 * s.Share() }))
		attempts = append(attempts, by(r.Guard, ink, r, window, func(s *stretch) float64 { return float64(s.attempts) / window }))
	}
	// The sum over all servers, each with its last decision.
	limits, each := series{name: "limits of all servers", ink: 1}, map[int]int{}
	for _, p := range runs[len(runs)-1].points {
		each[p.server] = p.rules.TargetConcurrency
		if p.server == w.Servers-1 && p.at.Seconds() < w.Length {
			all := 0
			for _, target := range each {
				all += target
			}
			limits.x, limits.y = append(limits.x, p.at.Seconds()), append(limits.y, float64(all))
		}
	}
	var b strings.Builder
	begin(&b, w.Name)
	from, until := place(w.Spells[0].From, w.Length), place(w.Spells[0].Until, w.Length)
	for i := range 3 {
		fmt.Fprintf(&b, `<rect class="shade" x="%.1f" y="%g" width="%.1f" height="%g"/>`+"\n", from, first+float64(i)*(high+gap),
			until-from, high)
	}
	panel(&b, first, w.Length, "answered, %", answered...)
	panel(&b, first+high+gap, w.Length, "attempts per second", attempts...)
	panel(&b, first+2*(high+gap), w.Length, "tasks", limits)
	b.WriteString("</svg>\n")
	return b.String()
}

// panel draws lines over the same time. The scale covers 99 % of the points, so a single peak does not flatten the rest.
func panel(b *strings.Builder, top, end float64, unit string, lines ...series) {
	var all []float64
	for _, s := range lines {
		all = append(all, s.y...)
	}
	slices.Sort(all)
	most := 1.0
	if len(all) > 0 {
		most = roundUp(max(most, all[len(all)*99/100]))
	}
	fmt.Fprintf(b, `<path class="axis" d="M%g %gV%gH%g"/>`, left, top, top+high, width-right)
	fmt.Fprintf(b, `<text class="m" x="%g" y="%g" text-anchor="end">%g</text><text class="m" x="%g" y="%g" text-anchor="end">0</text>`, left-6, top+9, most, left-6, top+high)
	fmt.Fprintf(b, `<text class="m" x="%g" y="%g">%s</text>`+"\n", left+4, top-5, unit)
	for at := 0.0; at <= end; at += roundUp(end / 10) {
		fmt.Fprintf(b, `<text class="m" x="%.0f" y="%g" text-anchor="middle">%gs</text>`, place(at, end), top+high+14, at)
	}
	var names []float64 // height at which each line ends
	for _, s := range lines {
		fmt.Fprintf(b, "\n"+`<polyline class="s%d" points="`, s.ink)
		last := top + high
		for i := range s.x {
			last = top + high*(1-min(s.y[i]/most, 1))
			fmt.Fprintf(b, "%.1f,%.1f ", place(s.x[i], end), last)
		}
		b.WriteString(`"/>`)
		names = append(names, last)
	}
	apart(names, 14, top+high)
	for i, s := range lines {
		fmt.Fprintf(b, "\n"+`<text class="t%d" x="%g" y="%.1f">%s</text>`, s.ink, width-right+8, names[i]+4, s.name)
	}
	b.WriteString("\n")
}

// apart spreads labels that are closer than least, upwards from the lowest, which is at most at bottom.
func apart(heights []float64, least, bottom float64) {
	order := make([]int, len(heights))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(heights[b], heights[a]) })
	for _, i := range order {
		heights[i] = min(heights[i], bottom)
		bottom = heights[i] - least
	}
}

func place(at, end float64) float64 { return left + (width-left-right)*min(at/end, 1) }

// roundUp returns the next of 1, 2, 5, 10, ….
func roundUp(x float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(x)))
	for _, step := range []float64{1, 2, 5} {
		if x <= step*unit {
			return step * unit
		}
	}
	return 10 * unit
}
