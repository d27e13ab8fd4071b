// The plots of fleets: one over time under each guard, as an SVG that needs nothing else.

package sim

import (
	"fmt"
	"strings"
)

// FleetSVG draws the runs of one fleet under different guards.
func FleetSVG(runs []*FleetResult) string {
	colors := []string{"#c22", "#e90", "#960", "#639", "#0a5"}
	var answered, attempts []series
	target := series{name: "warden: targets of all servers together", color: "#06c"}
	for i, r := range runs {
		share := series{name: r.Fleet.Guard.Name, color: colors[i%len(colors)]}
		sent := series{name: r.Fleet.Guard.Name, color: share.color}
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
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="sans-serif" font-size="11">`+"\n", width, 3*(high+gap)+30)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#fff"/><text x="%g" y="15" font-size="13">%s</text>`+"\n", left, sc.Name)
	from, until := place(sc.From.Seconds(), end), place(sc.Until.Seconds(), end)
	for i := range 3 {
		fmt.Fprintf(&b, `<rect x="%.1f" y="%g" width="%.1f" height="%g" fill="#eee"/>`+"\n", from, 30+float64(i)*(high+gap), until-from, high)
	}
	panel(&b, 30, end, "answered, %", answered...)
	panel(&b, 30+high+gap, end, "attempts per second", attempts...)
	panel(&b, 30+2*(high+gap), end, "tasks", target)
	b.WriteString("</svg>\n")
	return b.String()
}
