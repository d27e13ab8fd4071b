// A decision is the only thing that crosses from control to the limiter: how many may run, who is shed, and why.

// Package decision defines what control tells a limiter. It measures nothing and decides nothing.
package decision
