// SPDX-License-Identifier: Apache-2.0

// The pressure and its signals, for display.

package control

import "github.com/stopbank/stopbank/warden/monitor"

// Pressure returns how much work waits for processors as of the last Step, 0 to 1: below 0.35 the concurrency limit may grow,
// above 0.5 it shrinks, above 0.8 the shed probability rises. levels has the level of each measured signal of s, 0 to 1, by the
// name that the reasons of decisions give it ("lag_p90_seconds"); 0.5 is the configured limit, and the pressure follows the
// highest level. Pressure changes nothing, may wait for a Step, and allocates the map.
func (c *Controller) Pressure(s monitor.Sample) (pressure float64, levels map[string]float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	levels = map[string]float64{}
	c.cfg.each(related(s), c.state.busy, func(name string, _, level float64) { levels[name] = level })
	return c.state.pressure, levels
}
