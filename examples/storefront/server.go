// The shop itself: four handlers over whichever way shares the connections, and what each rejection looks like in HTTP.
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

// cachedHeader says that an answer is an old one, and why.
const cachedHeader = "Storefront-Cached"

// A server serves the shop on one address.
type server struct {
	url    string
	http   *http.Server
	way    way
	store  store
	render work
	hold   [routes]atomic.Int64 // milliseconds that a route's query sleeps: the part that a deploy changes
	list   atomic.Pointer[any]  // the last list of products, for when there is no better one
	life   context.Context      // ends when the server closes
	die    context.CancelFunc
	served chan error // what Serve returned
}

func newServer(st store, w way, render work) *server {
	s := &server{way: w, store: st, render: render, served: make(chan error, 1)}
	s.life, s.die = context.WithCancel(context.Background())
	return s
}

// serve begins to serve on l; inFront, if not nil, is put in front of the handlers.
func (s *server) serve(l net.Listener, inFront func(http.Handler) http.Handler) {
	s.url = "http://" + l.Addr().String()
	var handler http.Handler = s.mux()
	if inFront != nil {
		handler = inFront(handler)
	}
	s.http = &http.Server{
		Handler: handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute, IdleTimeout: time.Minute,
	}
	go func() { s.served <- s.http.Serve(l) }()
}

// deploy changes how long the queries of later requests sleep.
func (s *server) deploy(hold [routes]time.Duration) {
	for r := range routes {
		s.hold[r].Store(hold[r].Milliseconds())
	}
}

// close takes no more requests and waits until every handler has returned. Whatever sleeps or computes is ended.
func (s *server) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s.die()
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

// A route as http.ServeMux knows it.
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

// ask runs q for a route, after the sleep that was last deployed.
func (s *server) ask(req *http.Request, r route, q query, instead fallback) (any, error) {
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

// answer writes what came of a request, as JSON. A rejection says its reason: 503, and Retry-After, where nothing was done
// and a later try may work; 504 where the server waited for something behind it and gave up.
func answer(w http.ResponseWriter, v any, err error) {
	switch {
	case err == nil:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v) // fails only when the client has left
	case wardenhttp.WriteError(w, nil, err):
	case errors.Is(err, errPoolTimeout):
		problem(w, http.StatusGatewayTimeout, "pool_timeout")
	case errors.Is(err, sql.ErrNoRows):
		problem(w, http.StatusNotFound, "not_found")
	case errors.Is(err, context.Canceled):
		problem(w, 499, "canceled") // nobody will read it
	default: // what it says is about the inside
		problem(w, http.StatusInternalServerError, "internal")
	}
}

// problem answers as the package wardenhttp does (RFC 9457).
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
	v, err := s.ask(req, checkout, func(ctx context.Context, conn *sql.Conn) (any, error) {
		var id int64
		err := conn.QueryRowContext(ctx, `
			INSERT INTO orders (product, cents) SELECT id, cents FROM products WHERE CAST(id AS TEXT) = $1 RETURNING id`, product).Scan(&id)
		return map[string]int64{"order": id}, err
	}, nil)
	answer(w, v, err)
}

// products is the page that can do without the database for a while: an old list sells as well. What the page costs of a
// processor it costs after the connection was given back, where no compartment bounds it.
func (s *server) products(w http.ResponseWriter, req *http.Request) {
	v, err := s.ask(req, products, func(ctx context.Context, conn *sql.Conn) (any, error) {
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
		s.render.do(s.life)
	}
	answer(w, v, err)
}

// causeOf names what made a fallback answer.
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

// revenue is the report that goes wrong: the sum per category over the latest orders.
func (s *server) revenue(w http.ResponseWriter, req *http.Request) {
	v, err := s.ask(req, analytics, func(ctx context.Context, conn *sql.Conn) (any, error) {
		rows, err := conn.QueryContext(ctx, `
			SELECT p.category, SUM(o.cents)
			FROM (SELECT product, cents FROM orders ORDER BY id DESC LIMIT 100) o JOIN products p ON p.id = o.product
			GROUP BY p.category`)
		return perName(rows, err)
	}, nil)
	answer(w, v, err)
}

// counts is for the house: whoever is not on this machine is not told how much it sells.
func (s *server) counts(w http.ResponseWriter, req *http.Request) {
	if from, err := netip.ParseAddrPort(req.RemoteAddr); err != nil || !from.Addr().IsLoopback() {
		problem(w, http.StatusForbidden, "forbidden")
		return
	}
	v, err := s.ask(req, admin, func(ctx context.Context, conn *sql.Conn) (any, error) {
		var users, orders int64
		err := conn.QueryRowContext(ctx, `SELECT (SELECT COUNT(*) FROM users), (SELECT COUNT(*) FROM orders)`).Scan(&users, &orders)
		return map[string]int64{"users": users, "orders": orders}, err
	}, nil)
	answer(w, v, err)
}

// perName reads rows of a name and a number, and closes them.
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
