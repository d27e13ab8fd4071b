// The shop itself: four handlers over whichever way shares the connections, and what each refusal looks like in HTTP.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/stopbank/stopbank/admission"
)

// A server serves the shop on a free port of the loopback interface.
type server struct {
	url    string
	http   *http.Server
	way    way
	report atomic.Int64 // milliseconds that the analytics query takes: the part that a deploy changes
	served chan error   // what Serve returned
}

func serve(w way) (*server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &server{url: "http://" + l.Addr().String(), way: w, served: make(chan error, 1)}
	s.http = &http.Server{Handler: s.mux(), ReadHeaderTimeout: 5 * time.Second}
	go func() { s.served <- s.http.Serve(l) }()
	return s, nil
}

// deploy changes how long the analytics query of later requests takes.
func (s *server) deploy(report time.Duration) { s.report.Store(report.Milliseconds()) }

// close waits until every handler has returned; call wake of the store first, or it waits for slow queries too.
func (s *server) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

func (s *server) mux() *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("POST /checkout", s.handler(checkout, s.order))
	mux.Handle("GET /products", s.handler(products, s.list))
	mux.Handle("GET /analytics/report", s.handler(analytics, s.revenue))
	mux.Handle("GET /admin/counts", s.handler(admin, s.counts))
	return mux
}

type query func(*http.Request, *sql.Conn) (any, error)

// handler answers with what q returns, as JSON. A rejection by the gate is 503 with Retry-After: nothing was done and
// a later try may work. No connection within the acquire time is 504: the server waited for something behind it
// and gave up, which is how a client can tell the two apart.
func (s *server) handler(r route, q query) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		var answer any
		err := s.way.do(req.Context(), r, func(conn *sql.Conn) (err error) {
			answer, err = q(req, conn)
			return err
		})
		switch {
		case err == nil:
			rw.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(rw).Encode(answer) // fails only when the client has left
		case errors.Is(err, admission.ErrRejected):
			rw.Header().Set("Retry-After", "1")
			http.Error(rw, err.Error(), http.StatusServiceUnavailable)
		case errors.Is(err, errPoolTimeout):
			http.Error(rw, err.Error(), http.StatusGatewayTimeout)
		case errors.Is(err, sql.ErrNoRows):
			http.Error(rw, "no such product", http.StatusNotFound)
		default:
			http.Error(rw, err.Error(), http.StatusInternalServerError)
		}
	})
}

func (s *server) order(req *http.Request, conn *sql.Conn) (any, error) {
	var id int64
	err := conn.QueryRowContext(req.Context(), `
		INSERT INTO orders (product, cents) SELECT id, cents FROM products WHERE id = ? RETURNING id`,
		req.URL.Query().Get("product")).Scan(&id)
	return map[string]int64{"order": id}, err
}

func (s *server) list(req *http.Request, conn *sql.Conn) (any, error) {
	rows, err := conn.QueryContext(req.Context(), `SELECT name, cents FROM products ORDER BY id LIMIT 20`)
	return perName(rows, err)
}

// revenue is the report that goes wrong: the sum per category over the latest orders, with a sleep inside the query.
func (s *server) revenue(req *http.Request, conn *sql.Conn) (any, error) {
	rows, err := conn.QueryContext(req.Context(), `
		WITH pause AS MATERIALIZED (SELECT sleep_ms(?) AS ms),
		     latest AS (SELECT product, cents FROM orders ORDER BY id DESC LIMIT 100)
		SELECT p.category, SUM(o.cents)
		FROM pause CROSS JOIN latest o JOIN products p ON p.id = o.product
		GROUP BY p.category`, s.report.Load())
	return perName(rows, err)
}

func (s *server) counts(req *http.Request, conn *sql.Conn) (any, error) {
	var users, orders int64
	err := conn.QueryRowContext(req.Context(), `
		SELECT (SELECT COUNT(*) FROM users), (SELECT COUNT(*) FROM orders)`).Scan(&users, &orders)
	return map[string]int64{"users": users, "orders": orders}, err
}

// perName reads rows of a name and a number, and closes them.
func perName(rows *sql.Rows, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	answer := map[string]int64{}
	for rows.Next() {
		var name string
		var n int64
		if err := rows.Scan(&name, &n); err != nil {
			return nil, errors.Join(err, rows.Close())
		}
		answer[name] = n
	}
	return answer, errors.Join(rows.Err(), rows.Close())
}
