// SPDX-License-Identifier: Apache-2.0

// C7 while pressure outlives the signal that raised it.

package control_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden/control"
	"github.com/stopbank/stopbank/warden/monitor"
)

// TestAfterTheSignal: pressure falls more slowly than its signals. Until it has fallen, what raised it is named, and not a
// utilization that never could have.
func TestAfterTheSignal(t *testing.T) {
	c, now := mustNew(t, control.Config{Processors: 16}), clock{}
	jam := monitor.Sample{Utilization: value(1), Lag: monitor.Lag{P90: 80 * time.Millisecond, Count: 100}}
	for range 10 {
		c.Step(now.next(jam))
	}
	codes := map[string]string{} // to the signal that was named with it
	for range 20 {
		r := c.Step(now.next(monitor.Sample{Utilization: value(0.1), Runnable: value(0)})).Reasons[0]
		code, rest, _ := strings.Cut(r.String(), ": ")
		signal, _, _ := strings.Cut(rest, "=")
		if before := codes[code]; before != "" && before != signal {
			t.Fatalf("C7: %s: first %s, then %s", code, before, signal)
		}
		codes[code] = signal
	}
	if codes["queueing"] != "lag_p90_seconds" || codes["busy"] != "lag_p90_seconds" || codes["calm"] != "utilization" {
		t.Fatalf("C7: %v", codes)
	}
}
