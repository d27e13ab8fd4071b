// The incident as numbers: who owns how many connections, what traffic comes, how long everything takes.
package main

import "time"

// A route is one feature of the shop; each is a compartment in the isolated way.
type route int

const (
	checkout route = iota
	products
	analytics
	admin
	routes // how many there are
)

func (r route) String() string {
	return [routes]string{"checkout", "products", "analytics", "admin"}[r]
}

// A phase is one act of the incident.
type phase int

const (
	healthy  phase = iota
	slow           // a slow analytics query has been shipped
	rollback       // it has been taken back; what already runs still runs
	phases         // how many there are
)

func (p phase) String() string { return [phases]string{"healthy", "slow", "rollback"}[p] }

// A scenario is everything that one run depends on besides the seed of its traffic.
type scenario struct {
	scale     int                   // the incident's time divided by the demo's time
	conns     [routes]int           // connections owned by each route; their sum is the shared pool
	perSecond [routes]float64       // mean arrivals per second of demo time
	lasts     [phases]time.Duration // demo time
	report    [phases]time.Duration // how long the analytics query holds its connection
	acquire   time.Duration         // longest wait of the server for a connection
	patience  time.Duration         // deadline of the client, counted from the intended start
}

// incident is an outage as it is told of a shop with 100 connections: a report that took 0.1 s takes 60 s after a
// release, and waiting for a connection gives up after 5 s. The connections are not scaled, every duration is.
// The traffic is as thin as two cores can serve without noticing, but the slow report is asked for often enough
// (150/s x 3 s = 450 connections wanted) to take every connection that it can get.
func incident() scenario {
	const scale = 20
	return scenario{
		scale:     scale,
		conns:     [routes]int{checkout: 50, products: 30, analytics: 15, admin: 5},
		perSecond: [routes]float64{checkout: 60, products: 80, analytics: 150, admin: 20},
		lasts: [phases]time.Duration{
			healthy:  60 * time.Second / scale,
			slow:     100 * time.Second / scale,
			rollback: 80 * time.Second / scale,
		},
		report: [phases]time.Duration{
			healthy:  100 * time.Millisecond / scale,
			slow:     60 * time.Second / scale,
			rollback: 100 * time.Millisecond / scale,
		},
		acquire:  5 * time.Second / scale,
		patience: 20 * time.Second / scale,
	}
}

// total is the size of the shared pool.
func (sc scenario) total() int {
	sum := 0
	for _, n := range sc.conns {
		sum += n
	}
	return sum
}

// duration is how long one way is under traffic.
func (sc scenario) duration() time.Duration {
	var sum time.Duration
	for _, d := range sc.lasts {
		sum += d
	}
	return sum
}

// at tells which phase is on after this much of the run; after the end it is still the last one.
func (sc scenario) at(elapsed time.Duration) phase {
	for p := range phases {
		if elapsed < sc.lasts[p] {
			return p
		}
		elapsed -= sc.lasts[p]
	}
	return phases - 1
}
