// Package warden keeps a service at full speed when more is asked of it than it can do, and can say afterwards why it
// refused what it refused. It composes three layers, each of which can be used alone:
//
//	runtime -> monitor -Sample-> control -ControlDecision-> limiter -> your function
//
// Package monitor measures and knows no threshold. Package control judges and touches no task. Package limiter executes
// what control decided and sees no measurement. Nothing flows back: what the limiter tells is for people.
//
// A [Warden] is the three of them running: every tenth of a second it takes a sample, lets control judge it and applies
// the decision. [Do] runs a function under that regime.
//
// # Who ticks
//
// A ticker's goroutine starves under just the load that it is there for: when every processor is taken by work that does not
// pause, it may wait for half a second for its turn. So requests tick as well: whoever asks to run, and finds that the
// last sample is old, takes the next one, which costs that request some microseconds. [Warden.Run] is therefore needed
// only for quiet times, in which a service should recover although nobody asks; without it, or after it has ended, requests
// drive everything.
//
// # What is measured of the work
//
// The time from the grant to the release of every task, and how many run, is told to the monitor, so that a slow
// dependency shows although no processor is busy. The limiter has no part in that.
package warden
