// Package swarm runs a law of control in thousands of small random worlds, in virtual time, beside no limit at all, beside
// the best constant target and beside failsafe-go's adaptive limiter: who harms, who latches, who gets less done.
//
// A seed is a world: draw.go draws it, users.go its users, who are the same whatever controls it. engine.go and service.go
// simulate the service, one event after the other; only what waits in the real limiter is a goroutine, so a run with a limiter
// needs a testing/synctest bubble. A law is one method (law.go); judge.go compares, table.go prints. See docs/swarm.md.
package swarm
