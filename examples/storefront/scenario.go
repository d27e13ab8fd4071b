// The scenarios as numbers: connections of each route, traffic of each phase, timeouts.
package main

import (
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
)

// A route is one feature of the shop, and one compartment.
type route int

const (
	checkout route = iota
	products
	analytics
	admin
	routes // how many there are
)

// ping is a page that needs neither a connection nor a slot. Its latency, measured beside the other routes, is the latency
// that the machine itself adds to every request.
const ping = routes

func (r route) String() string {
	return [routes + 1]string{"checkout", "products", "analytics", "admin", "(empty)"}[r]
}

// priority is the route's priority in the warden and the criticality of its compartment.
func (r route) priority() warden.Priority {
	return [routes]warden.Priority{warden.Critical, warden.Normal, warden.Background, warden.High}[r]
}

// A phase is a period of constant traffic and query times.
type phase struct {
	name      string
	lasts     time.Duration         // of demo time
	perSecond [routes]float64       // mean arrivals per second of demo time
	hold      [routes]time.Duration // how long a query sleeps while it holds its connection
}

// The phases of the database incident, and of the CPU overload.
const (
	healthy  = "healthy"
	slow     = "slow"     // a slow analytics query is deployed
	crowded  = "crowded"  // the products query is slow, too, and more customers come
	rollback = "rollback" // both queries are rolled back; running queries still finish
	sale     = "sale"     // more products pages are requested than one processor can render
)

// A scenario is the input of a run, except for the kind of shop and the seed of the traffic.
type scenario struct {
	scale    int         // the incident's time divided by the demo's time
	conns    [routes]int // connections guaranteed to each route; the shared pool has their sum
	phases   []phase
	pings    float64       // per second
	acquire  time.Duration // the server's timeout for a connection
	patience time.Duration // the client's timeout, from the intended start of a request
	render   time.Duration // CPU time of a products page
}

// incident is an outage of a shop with 100 connections: a release slows a report from 0.1 s to 60 s, and requests wait at
// most 5 s for a connection. All durations are scaled, the connections are not. Two cores serve this traffic without
// overload, but the slow report still wants more connections (130/s x 3 s = 390) than there are.
func incident() scenario {
	const scale = 20
	usual := [routes]float64{checkout: 40, products: 50, analytics: 130, admin: 25}
	rush := usual
	rush[products] = 130
	well := [routes]time.Duration{analytics: 100 * time.Millisecond / scale}
	report := [routes]time.Duration{analytics: 60 * time.Second / scale}
	both := report
	both[products] = 10 * time.Second / scale // 130/s x 0.5 s = 65 connections
	return scenario{
		scale: scale,
		conns: [routes]int{checkout: 50, products: 30, analytics: 15, admin: 5},
		phases: []phase{
			{healthy, 80 * time.Second / scale, usual, well},
			{slow, 100 * time.Second / scale, usual, report},
			{crowded, 40 * time.Second / scale, rush, both},
			{rollback, 40 * time.Second / scale, usual, well},
		},
		pings:    40,
		acquire:  5 * time.Second / scale,
		patience: 60 * time.Second / scale,
	}
}

// renderTime is the CPU time of a products page in the CPU overload.
const renderTime = 8 * time.Millisecond

// overload is a sale: clients request three times as many products pages as one processor can render, while checkout, which
// needs hardly any CPU, continues. Its time is not scaled.
func overload() scenario {
	const capacity = float64(time.Second / renderTime)
	calm := [routes]float64{checkout: 40, products: capacity / 10, analytics: 5, admin: 10}
	flood := calm
	flood[products] = 3 * capacity
	sc := incident()
	sc.scale, sc.pings, sc.patience, sc.render = 1, 0, 2*time.Second, renderTime
	sc.phases = []phase{
		{name: healthy, lasts: 2 * time.Second, perSecond: calm},
		{name: sale, lasts: 6 * time.Second, perSecond: flood},
	}
	return sc
}

// total is the size of the shared pool, and the sum of the compartments' guarantees.
func (sc scenario) total() int {
	sum := 0
	for _, n := range sc.conns {
		sum += n
	}
	return sum
}

// halved is sc with half the connections: PostgreSQL accepts 100 from all clients together.
func (sc scenario) halved() scenario {
	for r := range routes {
		sc.conns[r] = (sc.conns[r] + 1) / 2
	}
	return sc
}

// compartments divides the connections among the routes. Checkout lends only slots that it has never needed; analytics, which
// may be late, lends all of its slots; admin is too small to lend.
func (sc scenario) compartments(reports bulkhead.Breaker) []bulkhead.CompartmentConfig {
	all := []bulkhead.CompartmentConfig{
		checkout: {
			Lendable: 2 * sc.conns[checkout] / 5, Max: 7 * sc.conns[checkout] / 5,
			MaxQueue: 2 * sc.conns[checkout], MaxWait: sc.acquire, Timeout: 3 * sc.patience / 4,
		},
		products: {
			Lendable: sc.conns[products] / 3, Max: 4 * sc.conns[products] / 3,
			MaxQueue: sc.conns[products], MaxWait: sc.acquire / 5, Timeout: 3 * sc.patience / 4,
		},
		analytics: {
			Lendable: sc.conns[analytics], Max: 2 * sc.conns[analytics],
			MaxQueue: 10, MaxWait: sc.acquire / 5, Timeout: 12 * sc.acquire / 5, Breaker: reports,
		},
		admin: {
			Max:      2 * sc.conns[admin],
			MaxQueue: 2 * sc.conns[admin], MaxWait: sc.acquire, Timeout: 3 * sc.patience / 4,
		},
	}
	for r := range routes {
		all[r].Name, all[r].Guaranteed, all[r].Criticality = r.String(), sc.conns[r], r.priority()
	}
	return all
}

// at is the index of the phase at this time of the run; after the end, of the last phase.
func (sc scenario) at(elapsed time.Duration) int {
	for i, p := range sc.phases {
		if elapsed < p.lasts {
			return i
		}
		elapsed -= p.lasts
	}
	return len(sc.phases) - 1
}
