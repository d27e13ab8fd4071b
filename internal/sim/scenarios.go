// The scenarios.

package sim

import (
	"fmt"
	"math/rand/v2"
	"time"
)

const ms = time.Millisecond

// fixed is work that needs about the same each time.
func fixed(cpu, io time.Duration) func(time.Duration, *rand.Rand) Work {
	return func(_ time.Duration, r *rand.Rand) Work {
		w := Work{CPU: lognormal(r, cpu, 0.2)}
		if io > 0 {
			w.IO = lognormal(r, io, 0.2)
		}
		return w
	}
}

// spread is the mean of lognormal(…, 0.2) per median.
const spread = 1.0202

func perCPU(cores int, cpu time.Duration) float64 {
	return float64(cores) / (float64(cpu.Seconds())*spread + arrival.Seconds())
}

func perServer(servers int, io time.Duration) float64 {
	return float64(servers) / (io.Seconds() * spread)
}

// bound is a service that only uses processors.
func bound(cores int, cost time.Duration, load float64) Scenario {
	return Scenario{
		Name: fmt.Sprintf("CPU %v, %gx", cost, load), Cores: cores,
		Work: fixed(cost, 0), Capacity: constant(perCPU(cores, cost)), Load: constant(load),
		Warm: 3 * time.Second, Length: 15 * time.Second, Steady: true,
		Static: []int{cores, cores + (cores+3)/4, 2 * cores},
	}
}

// downstream is a service that waits for a dependency with ten servers of 40 ms.
func downstream(cores int, load float64) Scenario {
	return Scenario{
		Name: fmt.Sprintf("dependency 10 x 40ms, %gx", load), Cores: cores, Servers: 10,
		Work: fixed(200*time.Microsecond, 40*ms), Capacity: constant(perServer(10, 40*ms)), Load: constant(load),
		Warm: 5 * time.Second, Length: 40 * time.Second, Steady: true,
		Static: []int{10, 11, 12},
	}
}
