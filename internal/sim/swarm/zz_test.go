package swarm

import (
	"fmt"
	"testing"
)

func TestZZ(t *testing.T) {
	for _, pat := range []float64{0.1, 0.25, 1, 5} {
		for _, load := range []float64{1.2, 2, 4} {
			line := fmt.Sprintf("patience %4g load %3g:", pat, load)
			for _, vary := range []float64{0, 0.5} {
				for _, k := range []string{"told", "cancel", "hidden"} {
					w := &World{Seed: 3, Service: 0.04, Share: 0, Spread: "exact", Cores: 2, Places: 10, Capacity: 250, Rate: 250 * load, Low: 250 * load,
						Shape: "steady", Length: 20, Warm: 2, Patience: pat, Vary: vary, Knows: k, Priorities: 2, Attempts: 1, Backoff: 1}
					r, err := Run(w, bubble(t), Static(10), false)
					if err != nil {
						t.Fatal(err)
					}
					line += fmt.Sprintf("  %s %.3f/%.3f", k[:1], float64(r.Warm.Good)/min(250*18, float64(r.Warm.Offered)), r.Warm.CriticalShare())
				}
			}
			fmt.Println(line)
		}
	}
}
