// Levels: the pressure and what it follows, for people to look at.

package control

import "github.com/stopbank/stopbank/warden/monitor"

// Level is one signal of a sample as control judges it.
type Level struct {
	// Signal names it and its unit, as the reasons of decisions do: "lag_p90_seconds".
	Signal string
	// Value is what was read, in that unit; Level what it amounts to, 0 to 1, with 0.5 where too much begins.
	Value, Level float64
}

// Levels is how a sample is judged after the last Step, signal by signal; what the sample does not have is left out. The
// pressure follows the highest of them. It changes nothing, may wait for a Step, and allocates the slice.
func (c *Controller) Levels(s monitor.Sample) []Level {
	c.mu.Lock()
	used := c.state.busy
	c.mu.Unlock()
	var levels []Level
	c.cfg.each(s, used, func(name string, value, level float64) { levels = append(levels, Level{name, value, level}) })
	return levels
}

// Pressure is how much work waits for processors as of the last Step, 0 to 1: below 0.35 the target may grow, above 0.5 it
// shrinks, above 0.8 shedding rises. It may wait for a Step.
func (c *Controller) Pressure() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.pressure
}

// Levels is [Controller.Levels].
func (r *Recorder) Levels(s monitor.Sample) []Level { return r.c.Levels(s) }

// Pressure is [Controller.Pressure].
func (r *Recorder) Pressure() float64 { return r.c.Pressure() }
