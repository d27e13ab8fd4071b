// Levels: the pressure and its signals, for display.

package control

import "github.com/stopbank/stopbank/warden/monitor"

// Level is the controller's evaluation of one signal of a sample.
type Level struct {
	// Signal is the name with the unit, as in the reasons of decisions: "lag_p90_seconds".
	Signal string
	// Value is the measurement in that unit; Level its evaluation, 0 to 1, where 0.5 is the configured limit.
	Value, Level float64
}

// Levels evaluates a sample as of the last Step, signal by signal, without signals that were not measured. The pressure
// follows the highest level. Levels changes nothing, may wait for a Step, and allocates the slice.
func (c *Controller) Levels(s monitor.Sample) []Level {
	c.mu.Lock()
	cfg, used := c.cfg, c.state.busy
	c.mu.Unlock()
	var levels []Level
	cfg.each(s, used, func(name string, value, level float64) { levels = append(levels, Level{name, value, level}) })
	return levels
}

// Pressure returns how much work waits for processors as of the last Step, 0 to 1: below 0.35 the concurrency limit may grow,
// above 0.5 it shrinks, above 0.8 the shed probability rises. It may wait for a Step.
func (c *Controller) Pressure() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.pressure
}
