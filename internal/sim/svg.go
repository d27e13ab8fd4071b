// The plots: one run over time, as an SVG that needs nothing else.

package sim

import (
	"fmt"
	"math"
	"strings"
)

// A series is one line of a panel.
type series struct {
	name, color string
	x, y        []float64
}

const (
	width, left, right = 760.0, 60.0, 10.0
	high, gap          = 110.0, 34.0
)

// SVG draws a run, with the constant target of the oracle beside it.
func SVG(r, oracle *Result) string {
	second := func(n int) []float64 {
		x := make([]float64, n)
		for i := range x {
			x[i] = float64(i)
		}
		return x
	}
	n := min(len(r.perSecond), int(r.Scenario.Length.Seconds()))
	offered := series{name: "offered", color: "#bbb", x: second(n)}
	ours := series{name: "in time", color: "#0a5", x: second(n)}
	best := series{name: fmt.Sprintf("in time with a constant target of %d", oracle.Static), color: "#c60", x: second(n)}
	for i := range n {
		offered.y = append(offered.y, float64(r.offeredPerSecond[i]))
		ours.y = append(ours.y, float64(r.perSecond[i]))
		best.y = append(best.y, float64(oracle.perSecond[i]))
	}
	target := series{name: "target", color: "#06c"}
	running := series{name: "running", color: "#9bd"}
	execution := series{name: "execution, median", color: "#639"}
	lag := series{name: "scheduling delay, 90th percentile", color: "#c06"}
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
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="sans-serif" font-size="11">`+"\n", width, 3*(high+gap)+30)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#fff"/><text x="%g" y="15" font-size="13">%s</text>`+"\n", left, r.Scenario.title())
	panel(&b, 30, end, "requests per second", offered, best, ours)
	panel(&b, 30+high+gap, end, "tasks", running, target)
	panel(&b, 30+2*(high+gap), end, "milliseconds", lag, execution)
	b.WriteString("</svg>\n")
	return b.String()
}

func panel(b *strings.Builder, top, end float64, unit string, lines ...series) {
	most := 1.0
	for _, s := range lines {
		for _, y := range s.y {
			most = max(most, y)
		}
	}
	most = roundUp(most)
	fmt.Fprintf(b, `<path d="M%g %gV%gH%g" fill="none" stroke="#999"/>`, left, top, top+high, width-right)
	fmt.Fprintf(b, `<text x="%g" y="%g" text-anchor="end">%g</text><text x="%g" y="%g" text-anchor="end">0</text>`, left-4, top+8, most, left-4, top+high)
	for at := 0.0; at <= end; at += roundUp(end / 10) {
		fmt.Fprintf(b, `<text x="%.0f" y="%g" text-anchor="middle" fill="#666">%gs</text>`, place(at, end), top+high+12, at)
	}
	x := left + 6
	fmt.Fprintf(b, `<text x="%g" y="%g" fill="#666">%s</text>`, x, top-4, unit)
	x += 130
	for _, s := range lines {
		fmt.Fprintf(b, `<text x="%g" y="%g" fill="%s">%s</text>`, x, top-4, s.color, s.name)
		x += 7*float64(len(s.name)) + 20
		fmt.Fprintf(b, "\n"+`<polyline fill="none" stroke="%s" stroke-width="1.3" points="`, s.color)
		for i := range s.x {
			fmt.Fprintf(b, "%.1f,%.1f ", place(s.x[i], end), top+high*(1-s.y[i]/most))
		}
		b.WriteString(`"/>`)
	}
	b.WriteString("\n")
}

func place(at, end float64) float64 { return left + (width-left-right)*min(at/end, 1) }

// roundUp is the next of 1, 2, 5, 10, …
func roundUp(x float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(x)))
	for _, step := range []float64{1, 2, 5} {
		if x <= step*unit {
			return step * unit
		}
	}
	return 10 * unit
}
