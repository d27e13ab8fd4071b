// Plots of fleets over time, one for each guard, as self-contained SVG.

package sim

import (
	"fmt"
	"strings"
)

// FleetSVG draws the runs of one fleet under different guards.
func FleetSVG(runs []*FleetResult) string {
	inks := []int{0, 2, 4, 3, 1} // the warden's is the last
	var answered, attempts []series
	target := series{name: "limits of all servers", ink: 1}
	for i, r := range runs {
		share := series{name: r.Fleet.Guard.Name, ink: inks[i%len(inks)]}
		sent := series{name: r.Fleet.Guard.Name, ink: share.ink}
		for j, w := range r.windows {
			at := (float64(j) + 0.5) * window.Seconds()
			share.x, share.y = append(share.x, at), append(share.y, 100*w.success())
			sent.x, sent.y = append(sent.x, at), append(sent.y, float64(w.attempts)/window.Seconds())
			if r.Fleet.Guard.Warden {
				target.x, target.y = append(target.x, at), append(target.y, float64(w.target))
			}
		}
		answered, attempts = append(answered, share), append(attempts, sent)
	}
	sc := runs[0].Fleet
	end := sc.Length.Seconds()
	var b strings.Builder
	begin(&b, sc.Name)
	from, until := place(sc.From.Seconds(), end), place(sc.Until.Seconds(), end)
	for i := range 3 {
		fmt.Fprintf(&b, `<rect class="shade" x="%.1f" y="%g" width="%.1f" height="%g"/>`+"\n", from, first+float64(i)*(high+gap), until-from, high)
	}
	panel(&b, first, end, "answered, %", answered...)
	panel(&b, first+high+gap, end, "attempts per second", attempts...)
	panel(&b, first+2*(high+gap), end, "tasks", target)
	b.WriteString("</svg>\n")
	return b.String()
}
