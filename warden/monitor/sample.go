// SPDX-License-Identifier: Apache-2.0

// Samples: measurements with their units, each present or missing.

package monitor

import "time"

// Sample holds the measurements of one instant, and of the time since the previous sample. It is a plain value. No value is
// negative.
type Sample struct {
	// At is when the sample was taken, with a monotonic clock reading.
	At time.Time
	// Lag is Go scheduler latency: how long runnable goroutines waited for a processor since the previous sample.
	Lag Lag
	// Processors is how many processors may be used at once: GOMAXPROCS, or the cgroup's quota if that is less, above 0. It changes
	// when a container is resized. 0 is unknown.
	Processors float64
	// Utilization is the processor time used, as a share of that of Processors, since the previous sample, 0 to 1.
	Utilization Reading
	// Runnable is the number of goroutines ready to run but not running at this instant, per processor (GOMAXPROCS), 0 or
	// more. It needs Go 1.26.
	Runnable Reading
	// Throttled is the share of time in which the cgroup's quota kept its processors from running, 0 to 1. It covers the last
	// second or more, and repeats until the next value is known.
	Throttled Reading
	// Share is the processor time that this process got, of what its threads were ready to use and no quota or GOMAXPROCS of its own
	// withheld, 0 to 1: below 1, other processes use the processors. It covers the last second or more, and repeats until the next
	// value is known. Missing while the threads needed next to nothing, and where the kernel does not say it: Linux only.
	Share Reading
	// Memory is the heap as the last garbage collection left it, and what it may grow to.
	Memory Memory
	// Remote says that the work runs in other processes, so that the processors of this one do not matter. A Sampler does not know.
	Remote bool
	// Service describes the executions since the previous sample, as far as [Sampler.Recorder] recorded them.
	Service Service
	// Parts describe the executions of each part of the program, see [Recorder.Part], in the order in which they became known;
	// nil without parts. If they are more than what is recorded beside them, Service is their sum.
	Parts []Part
	// Pools are the readings of the pools that [New] was given, in their order; nil without pools.
	Pools []PoolReading
	// Gap is the time since the previous sample, 0 for the first. A large Gap shows that sampling is late.
	Gap time.Duration
}

// Lag is the distribution of scheduling delays. Go observes about one in eight of a goroutine's transitions: a percentile is
// only as good as Count. With Count 0 nothing was observed and everything else is 0, which does not mean that there was no
// delay.
type Lag struct {
	P50, P90, P99 time.Duration
	// Count is the number of observed delays.
	Count uint64
}

// Reading is a value that may be missing. If OK is false, Value is 0 and meaningless: missing is not zero.
type Reading struct {
	Value float64
	OK    bool
}

// Service describes the executions that a [Recorder] recorded since the previous sample.
type Service struct {
	// P50 and P90 are percentiles of the execution times that ended; 0 while Count is 0.
	P50, P90 time.Duration
	// Count is the number of executions that ended.
	Count uint64
	// Throughput is the number of executions that ended per second.
	Throughput float64
	// Abandoned is the number of executions that were cut off by their deadline or client, see [Span.Abandon], and AbandonedTime
	// the sum of their execution times. That is less than the work takes, so they are in no other time here, nor in Count.
	Abandoned     uint64
	AbandonedTime time.Duration
	// Running is the number of executions at this instant.
	Running int
	// Parked is how many of them only wait for something to tell their clients, see [Span.Park]; they are no part of what follows.
	Parked int
	// Long is how many of them wait for their client ([Span.Await]) or have run for long: for a second at least, and for 8 times the 90th percentile of the last 64 that
	// ended with their name; while that rises, none is added. LongName is the name of the oldest, and LongFor its age.
	Long     int
	LongName string
	LongFor  time.Duration
	// Needs is how long work of a name takes at least: the shortest of the last 64 executions that ended, rounded down by a
	// sixteenth or 64 ns at most, if 64 have ended. Samples share it: do not modify it.
	Needs map[string]time.Duration
	// Concurrency is the average number of running executions, without those in Parked. With Count 0 it is above 0 if executions take longer than the
	// time between samples.
	Concurrency float64
	// Times are the execution times, sorted: the first Count elements, or all 32, evenly spaced, if more executions ended.
	Times [32]time.Duration
}

// Memory is what the process may use, and what the last garbage collection found.
type Memory struct {
	// Limit is the memory that the process may use, in bytes: GOMEMLIMIT, or the limit of its tightest cgroup if that is less. 0: none is
	// known. Soft says that it is GOMEMLIMIT, which the collector keeps by working harder; nothing keeps the other.
	Limit uint64
	Soft  bool
	// Live is what the last collection found in use, in bytes.
	Live uint64
	// Growth is by what share of Live the heap may grow until the next one: GOGC / 100. 0: GOGC is off, only the limit starts one.
	Growth float64
	// Collections is how many collections have ended since the previous sample, Allocated how many bytes were allocated.
	Collections, Allocated uint64
}
