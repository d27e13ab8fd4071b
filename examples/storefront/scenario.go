// The incident as numbers: who owns how many connections, what traffic comes, how long everything takes.
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

// ping is a page that needs neither database nor a place, and is asked for along with the others: how long it takes is how
// long this machine, busy with whatever else, takes for any request.
const ping = routes

func (r route) String() string {
	return [routes + 1]string{"checkout", "products", "analytics", "admin", "(empty)"}[r]
}

// priority says how much a request to the route matters: to the warden, and as the compartment's criticality.
func (r route) priority() warden.Priority {
	return [routes]warden.Priority{warden.Critical, warden.Normal, warden.Background, warden.High}[r]
}

// A phase is one act of a story.
type phase struct {
	name      string
	lasts     time.Duration         // of demo time
	perSecond [routes]float64       // mean arrivals per second of demo time
	hold      [routes]time.Duration // how long a query sleeps while it has its connection
}

// The phases of the incident, and of the overload of a processor.
const (
	healthy  = "healthy"
	slow     = "slow"     // a slow analytics query has been shipped
	crowded  = "crowded"  // and then the query of the products page is slow as well, in a rush of customers
	rollback = "rollback" // both have been taken back; what already runs still runs
	sale     = "sale"     // more product pages are asked for than one processor can render
)

// A scenario is everything that one run depends on besides the way and the seed of its traffic.
type scenario struct {
	scale    int         // the incident's time divided by the demo's time
	conns    [routes]int // connections owned by each route; their sum is the shared pool
	phases   []phase
	pings    float64       // per second
	acquire  time.Duration // longest wait of the server for a connection
	patience time.Duration // deadline of the client, counted from the intended start
}

// incident is an outage as it is told of a shop with 100 connections: a report that took 0.1 s takes 60 s after a
// release, and waiting for a connection gives up after 5 s. The connections are not scaled, every duration is.
// The traffic is as thin as two cores can serve without noticing, but the slow report is asked for often enough
// (130/s x 3 s = 390 connections wanted) to take every connection that it can get.
func incident() scenario {
	const scale = 20
	usual := [routes]float64{checkout: 40, products: 50, analytics: 130, admin: 25}
	rush := usual
	rush[products] = 130
	well := [routes]time.Duration{analytics: 100 * time.Millisecond / scale}
	report := [routes]time.Duration{analytics: 60 * time.Second / scale}
	both := report
	both[products] = 10 * time.Second / scale // 130/s x 0.5 s: 65 connections wanted
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

// renderTime is how long a processor needs for one page of products in the overload of the processor.
const renderTime = 8 * time.Millisecond

// overload is a sale: three times as many product pages as one processor can render, while checkout, which needs next to
// no processor, goes on. Its time is not scaled.
func overload() scenario {
	const capacity = float64(time.Second / renderTime)
	calm := [routes]float64{checkout: 40, products: capacity / 10, analytics: 5, admin: 10}
	flood := calm
	flood[products] = 3 * capacity
	sc := incident()
	sc.scale, sc.pings, sc.patience = 1, 0, 2*time.Second
	sc.phases = []phase{
		{name: healthy, lasts: 2 * time.Second, perSecond: calm},
		{name: sale, lasts: 6 * time.Second, perSecond: flood},
	}
	return sc
}

// total is the size of the shared pool, and what the compartments share.
func (sc scenario) total() int {
	sum := 0
	for _, n := range sc.conns {
		sum += n
	}
	return sum
}

// halved is sc with half the connections, for a server that allows a hundred to all its users together.
func (sc scenario) halved() scenario {
	for r := range routes {
		sc.conns[r] = (sc.conns[r] + 1) / 2
	}
	return sc
}

// compartments shares the connections: what each route owns, what it lends while it does not need it, how much it may have
// with what it borrows, and how long anybody waits. Checkout keeps more to itself than it has ever needed; analytics, which
// may be late, lends all that it has; admin is too small to lend.
func (sc scenario) compartments(reports bulkhead.Breaker) []bulkhead.CompartmentConfig {
	all := []bulkhead.CompartmentConfig{
		checkout:  {Lendable: 2 * sc.conns[checkout] / 5, Max: 7 * sc.conns[checkout] / 5, MaxQueue: 2 * sc.conns[checkout], MaxWait: sc.acquire, Timeout: 3 * sc.patience / 4},
		products:  {Lendable: sc.conns[products] / 3, Max: 4 * sc.conns[products] / 3, MaxQueue: sc.conns[products], MaxWait: sc.acquire / 5, Timeout: 3 * sc.patience / 4},
		analytics: {Lendable: sc.conns[analytics], Max: 2 * sc.conns[analytics], MaxQueue: 10, MaxWait: sc.acquire / 5, Timeout: 12 * sc.acquire / 5, Breaker: reports},
		admin:     {Max: 2 * sc.conns[admin], MaxQueue: 2 * sc.conns[admin], MaxWait: sc.acquire, Timeout: 3 * sc.patience / 4},
	}
	for r := range routes {
		all[r].Name, all[r].Guaranteed, all[r].Criticality = r.String(), sc.conns[r], r.priority()
	}
	return all
}

// duration is how long one way is under traffic.
func (sc scenario) duration() time.Duration {
	var sum time.Duration
	for _, p := range sc.phases {
		sum += p.lasts
	}
	return sum
}

// at tells which phase is on after this much of the run, by its index; after the end it is still the last one.
func (sc scenario) at(elapsed time.Duration) int {
	for i, p := range sc.phases {
		if elapsed < p.lasts {
			return i
		}
		elapsed -= p.lasts
	}
	return len(sc.phases) - 1
}
