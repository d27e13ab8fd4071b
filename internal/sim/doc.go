// Package sim runs the real controller and the real limiter in virtual time against modelled services, and compares the goodput
// with that of a limiter with the best constant concurrency limit.
//
// Call it inside a testing/synctest bubble: a request is a goroutine, and everything that takes time sleeps. Only the layers
// below the limiter are modelled: processors with Go's run queue (cpu.go), a dependency (dependency.go), and the readings of a
// monitor (sensor.go). See docs/evidence/simulation.md.
package sim
