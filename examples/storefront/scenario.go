// The scenarios as numbers: connections of each route, traffic of each phase, timeouts.
package main

import (
	"net/http"
	"time"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
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

// about has, for each route, its name, request, importance (in the warden and in the compartments) and query.
var about = [routes]struct {
	name, method, path string
	priority           decision.Priority
	query              string // returns rows of a name and a number
}{
	checkout: {"checkout", http.MethodPost, "/checkout", decision.Critical,
		`INSERT INTO orders (product, cents) SELECT id, cents FROM products ORDER BY RANDOM() LIMIT 1 RETURNING 'order', id`},
	products: {"products", http.MethodGet, "/products", decision.Normal,
		`SELECT name, cents FROM products ORDER BY id LIMIT 20`},
	analytics: {"analytics", http.MethodGet, "/analytics/report", decision.Background,
		`SELECT p.category, SUM(o.cents) FROM (SELECT product, cents FROM orders ORDER BY id DESC LIMIT 100) o
			JOIN products p ON p.id = o.product GROUP BY p.category`},
	admin: {"admin", http.MethodGet, "/admin/counts", decision.High,
		`SELECT 'products', COUNT(*) FROM products UNION ALL SELECT 'orders', COUNT(*) FROM orders`},
}

func (r route) String() string { return about[r].name }

// A phase is a period of constant traffic and query times.
type phase struct {
	name      string
	lasts     time.Duration
	perSecond [routes]float64       // mean arrivals per second
	hold      [routes]time.Duration // how long a query keeps its connection busy
}

// The phases of the database incident, and of the sale.
const (
	healthy  = "healthy"
	slow     = "slow"     // a slow analytics query is deployed
	crowded  = "crowded"  // the products query is slow, too, and more customers come
	rollback = "rollback" // both queries are rolled back; running queries still finish
	rush     = "rush"     // more products pages are requested than one processor can render
)

// A scenario is the input of an act, except for the kind of shop and the seed of the traffic.
type scenario struct {
	conns    [routes]int   // connections guaranteed to each route; the shared pool has their sum
	acquire  time.Duration // the server's timeout for a connection
	patience time.Duration // the client's timeout, from the intended start of a request
	render   time.Duration // CPU time of a products page
	partner  int           // slots that the reports of one partner may take; 0: partners are not told apart
	phases   []phase
}

// incident is an outage of a shop with 100 connections: a release slows a report from 0.1 s to 60 s, and requests wait at most
// 5 s for a connection. The demo is 20 times as fast. Two cores serve this traffic without overload, but the slow report wants
// more connections (130/s x 3 s = 390) than there are.
func incident() scenario {
	const scale = 20
	usual := [routes]float64{checkout: 40, products: 50, analytics: 130, admin: 25}
	more := usual
	more[products] = 130
	well := [routes]time.Duration{analytics: 100 * time.Millisecond / scale}
	report := [routes]time.Duration{analytics: 60 * time.Second / scale}
	both := report
	both[products] = 10 * time.Second / scale // 130/s x 0.5 s = 65 connections
	return scenario{
		conns:    [routes]int{checkout: 50, products: 30, analytics: 15, admin: 5},
		acquire:  5 * time.Second / scale,
		patience: 60 * time.Second / scale,
		phases: []phase{
			{healthy, 80 * time.Second / scale, usual, well},
			{slow, 100 * time.Second / scale, usual, report},
			{crowded, 40 * time.Second / scale, more, both},
			{rollback, 40 * time.Second / scale, usual, well},
		},
	}
}

// sale overloads the processor: clients request three times as many products pages as one processor can render, while
// checkout, which needs hardly any CPU, continues. Its time is not scaled.
func sale() scenario {
	const render = 8 * time.Millisecond
	const capacity = float64(time.Second / render)
	calm := [routes]float64{checkout: 40, products: capacity / 10, analytics: 5, admin: 10}
	flood := calm
	flood[products] = 3 * capacity
	sc := incident()
	sc.patience, sc.render = 2*time.Second, render
	sc.phases = []phase{{name: healthy, lasts: 2 * time.Second, perSecond: calm},
		{name: rush, lasts: 6 * time.Second, perSecond: flood}}
	return sc
}

// total is the size of the shared pool, and the sum of the compartments' guarantees.
func (sc scenario) total() (sum int) {
	for _, n := range sc.conns {
		sum += n
	}
	return sum
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
			Tenants: sc.partners(),
		},
		admin: {
			Max:      2 * sc.conns[admin],
			MaxQueue: 2 * sc.conns[admin], MaxWait: sc.acquire, Timeout: 3 * sc.patience / 4,
		},
	}
	for r := range routes {
		all[r].Name, all[r].Guaranteed, all[r].Criticality = r.String(), sc.conns[r], about[r].priority
	}
	return all
}

// partners are the tenants of reports.
func (sc scenario) partners() bulkhead.TenantsConfig {
	if sc.partner == 0 {
		return bulkhead.TenantsConfig{}
	}
	return bulkhead.TenantsConfig{Max: sc.partner, Keys: 20}
}
