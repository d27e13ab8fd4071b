// Package sim runs the real controller and the real limiter in virtual time against modelled services, and prints how
// much of what was possible they served, beside a limiter with the best constant target.
//
// It must run inside a testing/synctest bubble: a request is a goroutine, and everything that takes time sleeps. Only what
// stands below the limiter is modelled: processors with Go's run queue (cpu.go), a dependency (dependency.go), and what a
// monitor would read off them (sensor.go). See docs/evidence/simulation.md.
package sim
