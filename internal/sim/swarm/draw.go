// A world: a service, its load, and the patience of its users, all drawn from a seed.

package swarm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// World is one draw. Times are in seconds, rates per second.
type World struct {
	Seed uint64
	// Service is the mean execution time, Share the fraction of it that is computing; the rest is a call of the dependency.
	Service, Share float64
	Spread         string // of the execution time: exact, 20%, exponential, 1:40
	// Cores is the number of processors, Places the number of calls that the dependency serves at a time; 0: unlimited.
	Cores, Places int
	// Capacity is the rate of executions that the service can serve. Rate is the peak rate of users, without retries, and Low the rate
	// between peaks.
	Capacity, Rate, Low float64
	Shape               string // of the load: steady, step, pulse, sawtooth
	// Length is how long users arrive. Events before Warm are not counted.
	Warm, Length float64
	// Patience is the median time that a user waits, Vary the standard deviation of its logarithm.
	Patience, Vary float64
	Knows          string // what the server knows of Patience: told, cancel, hidden
	// Priorities is 2 or 3.
	Priorities int
	// Attempts is the highest number of attempts per user, Backoff the mean time before the second; it doubles.
	Attempts int
	Backoff  float64
}

// budget bounds the cost of the runs of one world, in microseconds per run as estimated by cost.
const budget = 80_000

// Draw returns the world of a seed.
func Draw(seed uint64) *World {
	r := rand.New(rand.NewPCG(seed, 77))
	w := &World{Seed: seed, Service: logUniform(r, 0.0002, 60), Share: r.Float64(), Cores: 1 << r.IntN(7)}
	w.Spread = pick(r, "exact", "20%", "exponential", "1:40")
	switch x := r.Float64(); {
	case x < 0.35:
		w.Share = logUniform(r, 0.0005, 0.05)
	case x < 0.45:
		w.Share = 1
	case x < 0.5:
		w.Share = 0
	}
	bounded := r.Float64() < 0.65 && w.Share < 1
	load := logUniform(r, 0.2, 10)
	w.Shape = pick(r, "steady", "steady", "steady", "step", "pulse", "sawtooth")
	low := 0.2 + 0.6*r.Float64()
	warm := r.Float64() < 1./3
	w.Knows = pick(r, "told", "cancel", "hidden")
	w.Patience = logUniform(r, max(w.Service, 0.05), 120)
	w.Vary = []float64{0, 0, 0.5}[r.IntN(3)]
	w.Priorities = 2 + r.IntN(2)
	w.Attempts = 1
	if r.Float64() < 1./3 {
		w.Attempts = 3
	}
	w.Backoff = logUniform(r, 0.2, 2)
	for try := 1; ; try++ {
		w.Places = 0
		if bounded {
			w.Places = int(logUniform(r, 1, 500.99))
		}
		w.Capacity = float64(w.Cores) / (w.Share*w.Service + (2 * arrival).Seconds())
		if w.Places > 0 {
			w.Capacity = min(w.Capacity, float64(w.Places)/((1-w.Share)*w.Service))
		}
		// Nearly unlimited worlds need some bound on the offered load.
		w.Rate = load * min(w.Capacity, logUniform(r, min(2, 100*w.Service), 800)/w.Service)
		w.Low = w.Rate
		if w.Shape != "steady" {
			w.Low = low * min(w.Rate, w.Capacity)
		}
		for _, enough := range []float64{1, 0.6, 0.4} {
			// Enough executions in sequence, enough decisions, and enough answers for a verdict.
			w.Length = max(50*w.Service, 8) * enough
			few := 350 / w.possible()
			if w.Class() == Overload {
				few += 20 * w.Service
			}
			w.Length = max(w.Length, 1.35*few)
			w.Warm = 0
			if warm {
				w.Warm = w.Length / 4
			}
			if w.cost() < budget {
				return w
			}
		}
		w.Cores = 1 << r.IntN(7)
		if try%20 == 0 {
			load = logUniform(r, 0.2, max(0.2, load))
			w.Share *= r.Float64()
		}
	}
}

// possible is the mean rate of answers that the service could give over the run.
func (w *World) possible() (p float64) {
	const parts = 64
	for i := range parts {
		p += min(w.rate((float64(i)+0.5)*w.Length/parts), w.Capacity) / parts
	}
	return p
}

// offered is the number of requests, without retries.
func (w *World) offered() (n float64) {
	const parts = 64
	for i := range parts {
		n += w.rate((float64(i)+0.5)*w.Length/parts) * w.Length / parts
	}
	return n
}

// cost estimates the cost of a run in microseconds.
func (w *World) cost() float64 {
	answers := w.possible() * w.Length
	slices := answers * (3 + w.Share*w.Service/slice.Seconds())
	return 4*w.offered() + 6*answers + 0.1*slices + 3*w.Length/tick.Seconds()
}

// rate is the arrival rate of users at a time.
func (w *World) rate(at float64) float64 {
	part := at / w.Length
	switch w.Shape {
	case "step":
		if part < 1./3 {
			return w.Low
		}
	case "pulse":
		if part < 1./4 || part >= 3./4 {
			return w.Low
		}
	case "sawtooth":
		return w.Low + (w.Rate-w.Low)*(4*part-math.Floor(4*part))
	}
	return w.Rate
}

// Load is the peak load relative to the capacity.
func (w *World) Load() float64 { return w.Rate / w.Capacity }

// factor draws the execution time relative to its mean.
func (w *World) factor(r *rand.Rand) float64 {
	const deviation = 0.2
	switch w.Spread {
	case "20%":
		return math.Exp(deviation*r.NormFloat64() - deviation*deviation/2)
	case "exponential":
		return r.ExpFloat64()
	case "1:40":
		if r.Float64() < 0.1 {
			return 40 / 4.9
		}
		return 1 / 4.9
	}
	return 1
}

// typical is the median execution time.
func (w *World) typical() time.Duration {
	return seconds(w.Service * map[string]float64{"exact": 1, "20%": 0.98, "exponential": math.Ln2, "1:40": 1 / 4.9}[w.Spread])
}

// String describes the world in one line.
func (w *World) String() string {
	places := "no bound"
	if w.Places > 0 {
		places = fmt.Sprintf("%d places", w.Places)
	}
	start := "cold"
	if w.Warm > 0 {
		start = "warm"
	}
	again := ""
	if w.Attempts > 1 {
		again = fmt.Sprintf(", asks %d times", w.Attempts)
	}
	return fmt.Sprintf("%v %s, %.3g computing, %d cores, %s; %s %.2fx (%.4g/s, %.3g at once) %s for %.3gs; patience %.3gs±%g %s%s; %d priorities",
		seconds(w.Service).Round(10*time.Microsecond), w.Spread, w.Share, w.Cores, places, w.Shape, w.Load(), w.Rate, w.Rate*w.Service, start, w.Length,
		w.Patience, w.Vary, w.Knows, again, w.Priorities)
}

func logUniform(r *rand.Rand, from, to float64) float64 {
	return from * math.Exp(r.Float64()*math.Log(max(to/from, 1)))
}

func pick(r *rand.Rand, of ...string) string { return of[r.IntN(len(of))] }

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
