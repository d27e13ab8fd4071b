// The plots: one run over time, as self-contained SVG.

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
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" role="img"><title>%s</title>`+"\n%s", width, first+3*(high+gap), title, style)
	fmt.Fprintf(b, `<rect class="paper" width="100%%" height="100%%"/><text class="b" x="%g" y="15">%s</text>`+"\n", left, title)
}

// SVG draws a run with the oracle's constant concurrency limit.
func SVG(r, oracle *Result) string {
	second := func(n int) []float64 {
		x := make([]float64, n)
		for i := range x {
			x[i] = float64(i)
		}
		return x
	}
	n := min(len(r.perSecond), int(r.Scenario.Length.Seconds()))
	offered := series{name: "offered", x: second(n)}
	ours := series{name: "in time: Stopbank", ink: 1, x: second(n)}
	best := series{name: fmt.Sprintf("in time: best constant, %d", oracle.Static), ink: 2, x: second(n)}
	for i := range n {
		offered.y = append(offered.y, float64(r.offeredPerSecond[i]))
		ours.y = append(ours.y, float64(r.perSecond[i]))
		best.y = append(best.y, float64(oracle.perSecond[i]))
	}
	target := series{name: "concurrency limit", ink: 1}
	running := series{name: "running"}
	execution := series{name: "execution time, p50", ink: 3}
	lag := series{name: "scheduling delay, p90", ink: 2}
	for _, p := range r.Trace {
		at := p.At.Seconds()
		add := func(s *series, y float64) { s.x, s.y = append(s.x, at), append(s.y, y) }
		add(&target, float64(p.Target))
		add(&running, p.Concurrency)
		add(&execution, p.P50*1000)
		add(&lag, p.Lag*1000)
	}
	end := r.Scenario.Length.Seconds()
	var b strings.Builder
	begin(&b, r.Scenario.title())
	panel(&b, first, end, "requests per second", offered, best, ours)
	panel(&b, first+high+gap, end, "tasks", running, target)
	panel(&b, first+2*(high+gap), end, "milliseconds", lag, execution)
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
