// SPDX-License-Identifier: Apache-2.0

// Package sim runs the real control law and the real limiter in virtual time against modelled services, and compares them with no
// limit, with the best constant concurrency limit, and with failsafe-go's adaptive limiter.
//
// A World (world.go) is plain data: kinds of work, a service, its load, and what disturbs both. A seed determines its users
// (users.go), who are the same under every guard (gate.go, law.go). One engine (engine.go, service.go, sensor.go) runs every
// world, one event at a time; only tasks in the real limiter's queue are goroutines, so a run needs a testing/synctest bubble.
//
// Three collections of worlds share it: random ones drawn from seeds (draw.go, judge.go, table.go), scenarios of one server
// (scenarios.go), and fleets of servers with users who retry (fleet.go, clients.go). See worlds.md, simulation.md and fleet.md in
// docs/evidence.
package sim
