// The HTTP server: four handlers, and the status of each rejection and error.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// cachedHeader marks a response from the cache; its value is the reason.
const cachedHeader = "Storefront-Cached"

// A server serves the shop on one address.
type server struct {
	url    string
	http   *http.Server
	way    way
	store  store
	render work
	hold   [routes]atomic.Int64 // duration of a route's query in ms; changed by deploy
	list   atomic.Pointer[any]  // the last products list, for the fallback
	ctx    context.Context      // ends when the server closes
	cancel context.CancelFunc
	served chan error // the result of Serve
}

func newServer(st store, w way, render work) *server {
	s := &server{way: w, store: st, render: render, served: make(chan error, 1)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// serve starts serving on l; middleware, if not nil, wraps the handlers.
func (s *server) serve(l net.Listener, middleware func(http.Handler) http.Handler) {
	s.url = "http://" + l.Addr().String()
	var handler http.Handler = s.mux()
	if middleware != nil {
		handler = middleware(handler)
	}
	s.http = &http.Server{
		Handler: handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute, IdleTimeout: time.Minute,
	}
	go func() { s.served <- s.http.Serve(l) }()
}

// deploy changes the query duration of later requests.
func (s *server) deploy(hold [routes]time.Duration) {
	for r := range routes {
		s.hold[r].Store(hold[r].Milliseconds())
	}
}

// close shuts the server down gracefully: it ends all sleeps and CPU work and waits for the handlers.
func (s *server) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s.cancel()
	s.store.wake()
	if s.http == nil {
		return nil
	}
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

func (r route) method() string {
	return [routes + 1]string{http.MethodPost, http.MethodGet, http.MethodGet, http.MethodGet, http.MethodGet}[r]
}

func (r route) path() string {
	return [routes + 1]string{"/checkout", "/products", "/analytics/report", "/admin/counts", "/ping"}[r]
}

func (s *server) mux() *http.ServeMux {
	mux := http.NewServeMux()
	nothing := func(http.ResponseWriter, *http.Request) {}
	for r, handler := range [routes + 1]http.HandlerFunc{s.order, s.products, s.revenue, s.counts, nothing} {
		mux.Handle(route(r).method()+" "+route(r).path(), handler)
	}
	return mux
}

// run runs q on a connection of the route, after the deployed sleep.
func (s *server) run(req *http.Request, r route, q query, instead fallback) (any, error) {
	hold := time.Duration(s.hold[r].Load()) * time.Millisecond
	return s.way.do(req.Context(), r, func(ctx context.Context, conn *sql.Conn) (any, error) {
		if hold > 0 {
			if err := s.store.pause(ctx, conn, hold); err != nil {
				return nil, err
			}
		}
		return q(ctx, conn)
	}, instead)
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
	case errors.Is(err, sql.ErrNoRows):
		problem(w, http.StatusNotFound, "not_found")
	case errors.Is(err, context.Canceled):
		problem(w, 499, "canceled") // the client has left
	default: // the error text is internal
		problem(w, http.StatusInternalServerError, "internal")
	}
}

// problem responds in the format of package wardenhttp (RFC 9457).
func problem(w http.ResponseWriter, status int, reason string, detail ...any) {
	body := map[string]any{"title": http.StatusText(status), "status": status, "reason": reason}
	if len(detail) > 0 {
		body["detail"] = fmt.Sprint(detail...)
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func (s *server) order(w http.ResponseWriter, req *http.Request) {
	product := req.URL.Query().Get("product")
	v, err := s.run(req, checkout, func(ctx context.Context, conn *sql.Conn) (any, error) {
		var id int64
		err := conn.QueryRowContext(ctx, `
			INSERT INTO orders (product, cents) SELECT id, cents FROM products WHERE CAST(id AS TEXT) = $1 RETURNING id`, product).Scan(&id)
		return map[string]int64{"order": id}, err
	}, nil)
	answer(w, v, err)
}

// products falls back to the last list when the database is overloaded. It renders the page after it has returned the
// connection, so no compartment limits its use of the CPU.
func (s *server) products(w http.ResponseWriter, req *http.Request) {
	v, err := s.run(req, products, func(ctx context.Context, conn *sql.Conn) (any, error) {
		rows, err := conn.QueryContext(ctx, `SELECT name, cents FROM products ORDER BY id LIMIT 20`)
		list, err := perName(rows, err)
		if err == nil {
			s.list.Store(&list)
		}
		return list, err
	}, func(_ context.Context, cause error) (any, error) {
		list := s.list.Load()
		if list == nil {
			return nil, cause
		}
		w.Header().Set(cachedHeader, causeOf(cause))
		return *list, nil
	})
	if err == nil {
		s.render.do(s.ctx)
	}
	answer(w, v, err)
}

// causeOf is the reason of a fallback response.
func causeOf(err error) string {
	var timeout *bulkhead.TimeoutError
	var rejection *limiter.Rejection
	switch {
	case errors.As(err, &timeout):
		return "timeout_" + timeout.Phase.String()
	case errors.As(err, &rejection):
		return rejection.Reason.String()
	}
	return "error"
}

// revenue is the report that becomes slow: revenue per category of the latest orders.
func (s *server) revenue(w http.ResponseWriter, req *http.Request) {
	v, err := s.run(req, analytics, func(ctx context.Context, conn *sql.Conn) (any, error) {
		rows, err := conn.QueryContext(ctx, `
			SELECT p.category, SUM(o.cents)
			FROM (SELECT product, cents FROM orders ORDER BY id DESC LIMIT 100) o JOIN products p ON p.id = o.product
			GROUP BY p.category`)
		return perName(rows, err)
	}, nil)
	answer(w, v, err)
}

// counts is an internal page: only clients on this machine may read it.
func (s *server) counts(w http.ResponseWriter, req *http.Request) {
	if from, err := netip.ParseAddrPort(req.RemoteAddr); err != nil || !from.Addr().IsLoopback() {
		problem(w, http.StatusForbidden, "forbidden")
		return
	}
	v, err := s.run(req, admin, func(ctx context.Context, conn *sql.Conn) (any, error) {
		var users, orders int64
		err := conn.QueryRowContext(ctx, `SELECT (SELECT COUNT(*) FROM users), (SELECT COUNT(*) FROM orders)`).Scan(&users, &orders)
		return map[string]int64{"users": users, "orders": orders}, err
	}, nil)
	answer(w, v, err)
}

// perName reads and closes rows of a name and a number.
func perName(rows *sql.Rows, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	found := map[string]int64{}
	for rows.Next() {
		var name string
		var n int64
		if err := rows.Scan(&name, &n); err != nil {
			return nil, errors.Join(err, rows.Close())
		}
		found[name] = n
	}
	return found, errors.Join(rows.Err(), rows.Close())
}
