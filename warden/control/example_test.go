// SPDX-License-Identifier: Apache-2.0

// What a reader may copy: a controller at work, and its past judged once more.

package control_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/stopbank/stopbank/warden/control"
	"github.com/stopbank/stopbank/warden/monitor"
)

// A jam of one second, and what the law makes of it: the target, every half second.
func ExampleController_Step() {
	c, err := control.New(control.Config{Initial: 32})
	if err != nil {
		fmt.Println(err)
		return
	}
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 51 {
		s := monitor.Sample{
			At: at.Add(time.Duration(i) * 100 * time.Millisecond), Processors: 4, Utilization: monitor.Reading{Value: 0.6, OK: true},
		}
		if i > 5 && i <= 15 {
			s.Utilization.Value = 1
			s.Lag = monitor.Lag{P50: 60 * time.Millisecond, P90: 90 * time.Millisecond, Count: 200}
		}
		if d := c.Step(s); i%5 == 0 {
			fmt.Printf("%3.1fs %-32s %v\n", float64(i)/10, strings.Repeat("#", d.TargetConcurrency), d.Reasons[0])
		}
	}
	// Output:
	// 0.0s ################################ no_information: none=0 (hold)
	// 0.5s ################################ calm: utilization=0.6 (relax)
	// 1.0s ####                             queueing: lag_p90_seconds=0.09 (tighten)
	// 1.5s ####                             queueing: lag_p90_seconds=0.09 (tighten)
	// 2.0s ####                             calm: utilization=0.6 (relax)
	// 2.5s ########                         calm: utilization=0.6 (relax)
	// 3.0s ###################              calm: utilization=0.6 (relax)
	// 3.5s ################################ calm: utilization=0.6 (relax)
	// 4.0s ################################ calm: utilization=0.6 (relax)
	// 4.5s ################################ calm: utilization=0.6 (relax)
	// 5.0s ################################ calm: utilization=0.6 (relax)
}
