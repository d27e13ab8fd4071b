// Package swarm runs a control law in thousands of small random worlds in virtual time. It compares each run with no limit, with the
// best constant concurrency limit and with failsafe-go's adaptive limiter, and reports harm, latch-up and lost goodput.
//
// A seed determines a world: draw.go draws it, users.go its users, who are the same under every control. engine.go and service.go
// simulate the service, one event at a time. Only tasks in the real limiter's queue are goroutines, so a run with a limiter
// needs a testing/synctest bubble. A control law is one method (law.go); judge.go compares, table.go prints. See
// docs/evidence/worlds.md.
package swarm
