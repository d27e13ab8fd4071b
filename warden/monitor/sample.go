// What a sample says: facts with their units, and for each whether it exists.

package monitor

import "time"

// Sample is what could be observed at one instant and since the sample before. It is a plain value. Nothing in it is
// negative, and nothing in it is judged: what is much or little is not known here.
type Sample struct {
	// At is when the sample was taken, with a monotonic clock reading.
	At time.Time
	// Lag is how long goroutines that could run waited for a processor, since the previous sample.
	Lag Lag
	// Utilization is processor time used per processor time allowed since the previous sample, 0 to 1. Allowed are
	// GOMAXPROCS processors, or the cgroup's quota where that is less.
	Utilization Reading
	// Runnable is how many goroutines were ready to run and not running at this instant, per processor (GOMAXPROCS);
	// 0 or more. Go has known it since 1.26.
	Runnable Reading
	// Throttled is the share of time for which the cgroup's quota kept its processors from running, 0 to 1. It is of the
	// last second or more and is repeated until the next is known.
	Throttled Reading
	// Service is how work executed since the previous sample; the zero Service when no Recorder is fed.
	Service Service
	// Gap is the time since the previous sample, 0 for the first. A late monitor is itself a fact.
	Gap time.Duration
}

// Lag is the distribution of scheduling delays. Go observes about one in eight of a goroutine's transitions, and which
// transitions count differs between versions of Go: a percentile says as much as Count carries. With Count 0 there was
// nothing to observe and everything else is 0, which is not the same as no delay.
type Lag struct {
	P50, P90, P99 time.Duration
	// Max is where the range of values ends into which the longest delay fell: nothing observed was longer, unless it
	// was beyond the last range, which begins at a day or more.
	Max  time.Duration
	Mean time.Duration
	// Count is how many delays were observed.
	Count uint64
}

// Reading is a value that may not exist. Where OK is false, Value is 0 and means nothing: missing is not zero.
type Reading struct {
	Value float64
	OK    bool
}

// Service is how the work ran that a [Recorder] was told of, since the previous sample.
type Service struct {
	// P50 and P90 are of the execution times of what ended; 0 while Count is 0.
	P50, P90 time.Duration
	// Count is how many executions ended.
	Count uint64
	// Throughput is how many ended per second.
	Throughput float64
	// Concurrency is how many were executing, on average over the time: with Count 0 it is not 0 when all that runs
	// takes longer than the time between two samples.
	Concurrency float64
	// Times are the execution times in order of length: the first Count of them, or all 32, evenly spaced, if more ended.
	Times [32]time.Duration
}
