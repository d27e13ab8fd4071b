// A shop: an SQLite database, connection pools, an HTTP server with four routes and, if configured, compartments and a warden.
package main

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
	"github.com/stopbank/stopbank/warden/pool"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// The kinds of shop.
const (
	shared    = "shared"       // one pool for all routes
	divided   = "compartments" // a compartment and a pool for each route
	protected = "warden"       // the same, with a warden in front of the server
	told      = "pool"         // one pool for all routes, and a warden that asks it
	defaults  = "defaults"     // compartments, and a warden as warden.Config{} makes it, which nobody tells how long clients stay
)

// A shop serves customers on one address.
type shop struct {
	scenario

	url    string
	dir    string             // of the database
	pools  [routes]*sql.DB    // the same pool for each route if the kind is shared
	set    *bulkhead.Set      // nil without compartments
	warden *warden.Warden     // nil without a warden
	spin   int                // rounds of hashing for a products page
	list   atomic.Value       // the last products list, for the fallback
	ctx    context.Context    // ends when the shop closes
	cancel context.CancelFunc // of ctx
	http   *http.Server
	served chan error     // the result of Serve
	runs   sync.WaitGroup // the warden
	resize sync.Mutex     // held during a change of the plan

	fault   atomic.Pointer[fault]
	queries [routes]atomic.Int64 // counted for faults of some of them
}

// open opens a shop of this kind on an address; the observers may be nil. close stops it and leaves no goroutine and no file.
func (sc scenario) open(kind, address string, tasks limiter.Observer, calls bulkhead.Observer) (_ *shop, err error) {
	s := &shop{scenario: sc, spin: roundsOf(sc.render), served: make(chan error, 1)}
	s.deploy(fault{})
	s.ctx, s.cancel = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.dir, err = os.MkdirTemp("", "storefront-"); err != nil {
		return nil, err
	}
	if err := s.connect(kind, calls); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	for r := range routes {
		mux.HandleFunc(about[r].method+" "+about[r].path, func(w http.ResponseWriter, req *http.Request) { s.serve(w, req, r) })
	}
	var handler http.Handler = mux
	if kind != shared && kind != divided {
		if handler, err = s.protect(kind, mux, tasks); err != nil {
			return nil, err
		}
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	s.url = "http://" + l.Addr().String()
	s.http = &http.Server{
		Handler: handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute,
		IdleTimeout: time.Minute,
	}
	go func() { s.served <- s.http.Serve(l) }()
	return s, nil
}

// connect fills the database and makes the pools. A compartment's pool has the compartment's Max connections, so that a call
// with a slot never waits for a connection; the set limits the connections in use by all pools together.
func (s *shop) connect(kind string, observer bulkhead.Observer) (err error) {
	connections := func(limit, idle int) (*sql.DB, error) {
		db, err := sql.Open("sqlite", s.source())
		if err == nil {
			db.SetMaxOpenConns(limit)
			db.SetMaxIdleConns(idle)
		}
		return db, err
	}
	if kind == shared || kind == told {
		db, err := connections(s.total(), s.total())
		for r := range routes {
			s.pools[r] = db
		}
		if err != nil {
			return err
		}
	} else {
		if s.set, err = bulkhead.New(bulkhead.Config{Total: s.total(), Observer: observer,
			Compartments: s.compartments(reportsBreaker(s.scenario))}); err != nil {
			return err
		}
		for r, share := range s.set.Plan().Compartments {
			if s.pools[r], err = connections(share.Max, share.Guaranteed); err != nil {
				return err
			}
		}
	}
	_, err = s.pools[0].ExecContext(s.ctx, `
		CREATE TABLE products (id INTEGER PRIMARY KEY, category TEXT NOT NULL, name TEXT NOT NULL, cents INTEGER NOT NULL);
		CREATE TABLE orders   (id INTEGER PRIMARY KEY, product INTEGER NOT NULL REFERENCES products, cents INTEGER NOT NULL);
		WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 100)
			INSERT INTO products SELECT i, 'category ' || (i % 5), 'product ' || i, 100 + i FROM n;
		INSERT INTO orders (product, cents) SELECT id, cents FROM products`)
	return err
}

// source names the database for the driver. In WAL mode readers and one writer run concurrently; another writer waits for up to a
// second. Nothing is synced: the file is temporary.
func (s *shop) source() string {
	return "file:" + filepath.Join(s.dir, "shop.db") +
		"?_pragma=busy_timeout(1000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)"
}

// reportsBreaker opens after ten consecutive failures of reports, then lets single probes through until one succeeds.
func reportsBreaker(sc scenario) bulkhead.Breaker {
	return gobreaker.NewTwoStepCircuitBreaker[any](gobreaker.Settings{
		Name:        "analytics",
		Timeout:     2 * sc.acquire,
		ReadyToTrip: func(n gobreaker.Counts) bool { return n.ConsecutiveFailures >= 10 },
		IsExcluded:  bulkhead.IsExcluded,
	})
}

// protect puts a warden in front of next. Of the kind protected its sampler has no execution times, on purpose: they are
// mostly spent in the database, and one slow report would lower the concurrency limit of all routes. A pool that all routes share
// does bound all of them.
func (s *shop) protect(kind string, next http.Handler, observer limiter.Observer) (http.Handler, error) {
	cfg := warden.Config{Limiter: limiter.Config{Name: "storefront", Observer: observer}}
	timeout := s.patience
	switch kind {
	case defaults:
		timeout = 0
	case told:
		cfg.Pools = []monitor.Pool{pool.SQL("shop-db", s.pools[checkout])}
	case protected:
		processor, err := monitor.New()
		if err != nil {
			return nil, err
		}
		cfg.Sampler = sampler{processor, s}
	}
	var err error
	if s.warden, err = warden.New(cfg); err != nil {
		return nil, err
	}
	middleware, err := wardenhttp.New(s.warden, wardenhttp.Config{Task: s.taskOf, Timeout: timeout, Instance: instance()})
	if err != nil {
		return nil, err
	}
	s.runs.Go(func() { _ = s.warden.Run(s.ctx) }) // fails only if called twice
	return middleware.Handler(next), nil
}

// taskOf gives a request its route's priority, and Background to unknown paths, which only get a 404.
func (s *shop) taskOf(req *http.Request) warden.Task {
	for r := range routes {
		switch {
		case req.URL.Path != about[r].path:
		case s.fault.Load().critical:
			return warden.Task{Name: r.String(), Priority: decision.Critical}
		default:
			return warden.Task{Name: r.String(), Priority: about[r].priority}
		}
	}
	return warden.Task{Name: "unknown", Priority: decision.Background}
}

// deploy changes what later requests meet.
func (s *shop) deploy(f fault) { s.fault.Store(&f) }

// partnerHeader names the partner shop that asks for a report. A partner's reports are those of a tenant.
const partnerHeader = "Shop-Partner"

// cachedHeader marks an answer from the fallback.
const cachedHeader = "Storefront-Cached"

// serve answers a request with the rows of its route's query. Products falls back to its last list when the compartment is
// full or the query fails. It renders the page after it has returned the connection: no compartment limits its use of the CPU.
func (s *shop) serve(w http.ResponseWriter, req *http.Request, r route) {
	if s.handled(w, req, r) {
		return
	}
	var v any
	var err error
	query := func(ctx context.Context) (any, error) { return s.query(ctx, r) }
	switch {
	case s.set == nil:
		v, err = query(req.Context())
	case r == products:
		v, err = bulkhead.DoOr(req.Context(), s.set.Compartment(r.String()), query, func(_ context.Context, cause error) (any, error) {
			list := s.list.Load()
			if list == nil {
				return nil, cause
			}
			w.Header().Set(cachedHeader, "true")
			return list, nil
		})
	default:
		v, err = bulkhead.Do(req.Context(), s.set.Compartment(r.String()).Tenant(req.Header.Get(partnerHeader)), query)
	}
	if r == products && err == nil {
		s.list.Store(v)
		for n := 0; n < s.spin && s.ctx.Err() == nil; n++ {
			round()
		}
	}
	answer(w, v, err)
}

var errPoolTimeout = errors.New("timed out waiting for a database connection")

// query runs a route's query on a connection of its pool. The end of ctx ends the wait for a connection, but not the time for
// which the query keeps it busy, as with a driver that cannot cancel a query on the server.
func (s *shop) query(ctx context.Context, r route) (any, error) {
	wait, cancel := context.WithTimeoutCause(ctx, s.acquire, errPoolTimeout)
	conn, err := s.pools[r].Conn(wait)
	cause := context.Cause(wait)
	cancel()
	switch {
	case err != nil && errors.Is(cause, errPoolTimeout):
		return nil, errPoolTimeout
	case err != nil:
		return nil, err
	}
	if s.fault.Load().handler[r] != leaks {
		defer conn.Close()
	}
	select {
	case <-time.After(s.holds(r)):
	case <-s.ctx.Done():
		return nil, errors.New("the shop closes")
	}
	rows, err := conn.QueryContext(ctx, about[r].query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	found := map[string]int64{}
	for rows.Next() {
		var name string
		var n int64
		if err := rows.Scan(&name, &n); err != nil {
			return nil, err
		}
		found[name] = n
	}
	return found, rows.Err()
}

// answer writes v or err as JSON. Errors have a reason: 503 with Retry-After if the request was rejected and can be retried,
// 504 if the server timed out waiting for its database.
func answer(w http.ResponseWriter, v any, err error) {
	switch {
	case err == nil:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v) // fails only if the client has left
	case wardenhttp.WriteError(w, nil, err):
	case errors.Is(err, errPoolTimeout):
		problem(w, http.StatusGatewayTimeout, "pool_timeout")
	case errors.Is(err, context.Canceled):
		problem(w, 499, "canceled") // the client has left
	default: // the error text is internal
		problem(w, http.StatusInternalServerError, "internal")
	}
}

// problem responds in the format of package wardenhttp (RFC 9457).
func problem(w http.ResponseWriter, status int, reason string, detail ...any) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"title": http.StatusText(status), "status": status, "reason": reason,
		"detail": fmt.Sprint(detail...)})
}

// apply applies a new plan to the set and the pools. A pool is never smaller than its compartment: calls with a slot would
// otherwise wait for a connection, in a queue that no metric shows.
func (s *shop) apply(next bulkhead.Plan) error {
	s.resize.Lock()
	defer s.resize.Unlock()
	for r, share := range s.set.Plan().Compartments {
		for _, target := range next.Compartments {
			if target.Name == share.Name {
				s.pools[r].SetMaxOpenConns(max(share.Max, target.Max, target.Guaranteed))
			}
		}
	}
	_, err := s.set.Resize(next)
	for r, share := range s.set.Plan().Compartments {
		s.pools[r].SetMaxOpenConns(share.Max)
		s.pools[r].SetMaxIdleConns(share.Guaranteed)
	}
	return err
}

// close shuts down gracefully: it ends all sleeps and CPU work, waits for the handlers and for abandoned queries, and removes
// the database.
func (s *shop) close() (err error) {
	s.cancel()
	if s.http != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err = s.http.Shutdown(ctx); err != nil {
			err = errors.Join(err, s.http.Close())
		}
		if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
	}
	for s.set != nil && s.set.Snapshot().InFlight > 0 {
		time.Sleep(time.Millisecond)
	}
	for _, db := range s.pools {
		if db != nil {
			err = errors.Join(err, db.Close())
		}
	}
	s.runs.Wait()
	if s.dir != "" {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	return err
}

// round is a unit of CPU work, some ten microseconds.
func round() { sha256.Sum256(make([]byte, 8<<10)) }

// roundsOf measures how many rounds take d. The fastest of several measurements counts: other load has slowed the rest.
func roundsOf(d time.Duration) int {
	if d <= 0 {
		return 0
	}
	const rounds = 100
	fastest := time.Duration(1 << 62)
	for range 20 {
		start := time.Now()
		for range rounds {
			round()
		}
		fastest = min(fastest, time.Since(start))
	}
	return int(max(1, rounds*d/max(1, fastest)))
}
