// SPDX-License-Identifier: Apache-2.0

//go:build linux

// The plot: results with untold clients at four times the capacity, beside the best peer of each cell.

package main

import (
	"fmt"
	"strings"
)

// Sizes of the plot in pixels.
const (
	plotWidth, labels, panelWide, panelGap = 1000.0, 400.0, 230.0, 70.0
	top, rowHigh                           = 76.0, 34.0
)

// plotStyle supports light and dark pages. The two colors also differ in lightness, and the two marks in shape.
const plotStyle = `<style>
text{fill:#1f2328;font:13px system-ui,sans-serif}.m{fill:#59636e}.b{font-weight:600}
.grid{stroke:#d1d9e0}.link{stroke:#8c959f;stroke-width:2}
.ours{fill:#0969da}.peer{fill:#fff;stroke:#bc4c00;stroke-width:2}.oursT{fill:#0969da;font-weight:600}.peerT{fill:#bc4c00}
.paper{fill:#fff}
@media (prefers-color-scheme:dark){text{fill:#f0f6fc}.m{fill:#9198a1}.grid{stroke:#3d444d}.link{stroke:#656c76}
.ours{fill:#58a6ff}.peer{fill:#0d1117;stroke:#f0883e}.oursT{fill:#58a6ff}.peerT{fill:#f0883e}.paper{fill:#0d1117}}
</style>
`

// plot draws a row for each workload measured at 4×, with a mark for Stopbank and one for the best peer.
func (r *report) plot() string {
	var rows strings.Builder
	n := 0
	for _, w := range overloadWork() {
		ours, peer := r.find(w.name, 4, untold, "warden"), r.bestCell(w.name, 4)
		if w.unbound() || ours == nil || peer == nil {
			continue
		}
		y := top + rowHigh*(float64(n)+0.5)
		fmt.Fprintf(&rows, `<text x="%g" y="%g" text-anchor="end">%s</text>`+"\n", labels-16, y+4, w.about)
		mark(&rows, labels, y, ours.Goodput, peer.Goodput)
		mark(&rows, labels+panelWide+panelGap, y, ours.Critical, peer.Critical)
		n++
	}
	bottom := top + rowHigh*float64(n)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" role="img"><title>%s</title>`+"\n%s",
		plotWidth, bottom+34, "At four times its capacity: goodput and critical requests answered in time, Stopbank and the best peer of each workload", plotStyle)
	fmt.Fprintf(&b, `<rect class="paper" width="100%%" height="100%%"/><text class="b" x="16" y="24">Four times the load that one core can serve</text>`+"\n")
	fmt.Fprintf(&b, `<circle class="ours" cx="420" cy="20" r="6"/><text class="oursT" x="434" y="24">Stopbank, all defaults</text>`+
		"\n")
	fmt.Fprintf(&b, `<circle class="peer" cx="620" cy="20" r="5"/><text class="peerT" x="634" y="24">best other library, by row</text>`+"\n")
	for i, title := range []string{"goodput, share of the capacity", "critical requests answered in time"} {
		x := labels + float64(i)*(panelWide+panelGap)
		fmt.Fprintf(&b, `<text class="m" x="%g" y="%g">%s</text>`+"\n", x, top-18, title)
		for _, tick := range []float64{0, 0.5, 1} {
			at := x + tick*panelWide
			fmt.Fprintf(&b, `<path class="grid" d="M%g %gV%g"/><text class="m" x="%g" y="%g" text-anchor="middle">%g %%</text>`+"\n", at,
				top-8, bottom, at, bottom+20, 100*tick)
		}
	}
	return b.String() + rows.String() + "</svg>\n"
}

// mark draws one pair in the panel that begins at x.
func mark(b *strings.Builder, x, y, ours, peer float64) {
	at := func(v float64) float64 { return x + min(v, 1.1)*panelWide }
	fmt.Fprintf(b, `<path class="link" d="M%.1f %gH%.1f"/><circle class="peer" cx="%.1f" cy="%g" r="5"/><circle class="ours" cx="%.1f" cy="%g" r="6"/>`+"\n",
		at(peer), y, at(ours), at(peer), y, at(ours), y)
}
