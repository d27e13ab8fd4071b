// The fleets: triggers, the users' retries, and the guards of the servers.

package sim

import "time"

// guards are the compared guards for a fleet whose servers should run this many requests at a time.
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

// clients are the compared clients. The last one has 1000 processes with 1.4 requests per second each at a load of 0.7.
func clients() []Retry {
	return []Retry{
		once(), immediate(), backoff(),
		{Name: "backoff, Finagle's budget", Attempts: 3, Base: 200 * ms, Budget: 0.2},
		{Name: "backoff, failsafe-go's budget", Attempts: 3, Base: 200 * ms, Failsafe: true},
		{Name: "`retry.Caller` in 20 processes", Callers: 20},
		{Name: "`retry.Caller` in 1000 processes", Callers: 1000},
	}
}

// computing is a CPU-bound fleet at this load.
func computing(servers int, load float64) Fleet {
	const cores, cost = 2, 20 * ms
	return Fleet{
		Servers: servers, Cores: cores, Work: Work{CPU: cost},
		Capacity: float64(servers) * cores / (cost.Seconds()*mean + reception.Seconds()),
		Load:     load,
		From:     4 * time.Second, Until: 7 * time.Second, Length: 20 * time.Second, Timeout: 250 * ms, Retry: immediate(), Seed: 1,
	}
}

// waiting is a fleet at this load that waits for a shared dependency.
func waiting(servers int, load float64) Fleet {
	sc := computing(servers, load)
	sc.Work, sc.Places = Work{CPU: 1 * ms, IO: 40 * ms}, 5*servers
	sc.Capacity = perServer(sc.Places, sc.Work.IO)
	return sc
}

// The triggers. The load step hits a CPU-bound fleet; the others hit a fleet with a shared dependency.
func step(sc Fleet) Fleet {
	sc.Name, sc.Peak = "load 0.7, 2 for 3 s", 2
	return sc
}

func slow(sc Fleet) Fleet {
	sc.Name, sc.Slow = "load 0.7, dependency 5 times slower for 3 s", 5
	return sc
}

func moment(sc Fleet) Fleet {
	sc.Name, sc.Peak, sc.Until = "load 0.7, 4 for 0.2 s", 4, sc.From+200*ms
	return sc
}

func down(sc Fleet) Fleet {
	sc.Name, sc.Down, sc.Until, sc.Length = "everything is refused for 20 s", true, sc.From+20*time.Second, 32*time.Second
	return sc
}

const size = 20

// Fleets are the fleets whose users make three immediate attempts, without guards.
func Fleets() []Fleet {
	return []Fleet{step(computing(size, 0.7)), slow(waiting(size, 0.7)), moment(computing(size, 0.7))}
}

// under returns a fleet under each guard.
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

// hops is a chain of three services at twice the capacity of the last one. The first two have a quarter more capacity than the
// load needs.
func hops(patience time.Duration, propagate bool) Fleet {
	sc := computing(4, 2)
	front := seconds(sc.Work.CPU.Seconds() / 2.5)
	sc.Front, sc.Propagate, sc.Inner, sc.Timeout, sc.Retry = []time.Duration{front, front}, propagate, time.Second, patience, once()
	sc.Guard = Guard{Name: "warden", Warden: true}
	return sc
}
