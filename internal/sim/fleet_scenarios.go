// The fleets: what happens to them, how their users retry, and what guards their servers.

package sim

import "time"

// guards are what is compared, for a fleet whose servers should run so many at once.
func guards(static int) []Guard {
	return []Guard{
		{Name: "nothing"},
		{Name: "bound", Static: static},
		{Name: "bound ten times as high", Static: 10 * static},
		{Name: "bound, queue of 1024", Static: static, Queue: 1024},
		{Name: "warden", Warden: true},
	}
}

func once() Retry      { return Retry{Name: "no retries", Attempts: 1} }
func immediate() Retry { return Retry{Name: "3 attempts at once", Attempts: 3} }
func backoff() Retry   { return Retry{Name: "3 attempts, backoff", Attempts: 3, Base: 200 * ms} }
func budget() Retry {
	return Retry{Name: "3 attempts, backoff, budget 0.2", Attempts: 3, Base: 200 * ms, Budget: 0.2}
}

// computing is a fleet that only computes, at this load.
func computing(servers int, load float64) Fleet {
	const cores, cost = 2, 20 * ms
	return Fleet{
		Servers: servers, Cores: cores, Work: Work{CPU: cost},
		Capacity: float64(servers) * cores / (cost.Seconds()*mean + reception.Seconds()),
		Load:     load,
		From:     4 * time.Second, Until: 7 * time.Second, Length: 20 * time.Second, Timeout: 250 * ms, Retry: immediate(), Seed: 1,
	}
}

// waiting is a fleet that waits for a dependency which they share, at this load.
func waiting(servers int, load float64) Fleet {
	sc := computing(servers, load)
	sc.Work, sc.Places = Work{CPU: 1 * ms, IO: 40 * ms}, 5*servers
	sc.Capacity = perServer(sc.Places, sc.Work.IO)
	return sc
}

func fleetNamed(name string, sc Fleet, retry Retry, change func(sc *Fleet)) Fleet {
	sc.Name, sc.Retry = name, retry
	change(&sc)
	return sc
}

// Fleets are all of them, without their guards.
func Fleets() (all []Fleet) {
	const size = 20
	step := func(sc *Fleet) { sc.Peak = 2 }
	slow := func(sc *Fleet) { sc.Slow = 5 }
	for _, retry := range []Retry{once(), immediate(), backoff(), budget()} {
		all = append(all, fleetNamed("load 0.7, 2 for 3 s", computing(size, 0.7), retry, step))
	}
	for _, retry := range []Retry{immediate(), backoff()} {
		all = append(all, fleetNamed("load 0.7, dependency 5 times slower for 3 s", waiting(size, 0.7), retry, slow))
	}
	return append(all,
		fleetNamed("load 0.7, 4 for 0.2 s", computing(size, 0.7), immediate(), func(sc *Fleet) { sc.Peak, sc.Until = 4, sc.From+200*ms }),
		fleetNamed("load 0.9, no trigger", computing(size, 0.9), immediate(), func(*Fleet) {}),
	)
}

// under are a fleet under each guard.
func under(sc Fleet) (all []Fleet) {
	static := 2 * sc.Cores
	if sc.Places > 0 {
		static = 2 * sc.Places / sc.Servers
	}
	for _, sc.Guard = range guards(static) {
		all = append(all, sc)
	}
	return all
}
