// SPDX-License-Identifier: Apache-2.0

// The pools of real clients, read at known instants.

package pool_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/monitor"
	"github.com/stopbank/stopbank/warden/pool"
)

// connector opens connections that can do nothing: the pool before them is that of database/sql.
type connector struct{ driver.Conn }

func (connector) Connect(context.Context) (driver.Conn, error) { return connector{}, nil }
func (connector) Driver() driver.Driver                        { return nil }
func (connector) Close() error                                 { return nil }

func TestSQLTellsWhatIsInUse(t *testing.T) {
	db := sql.OpenDB(connector{})
	defer db.Close()
	p := pool.SQL("orders-db", db)
	if got := p.Stats(); got != (monitor.PoolStats{}) {
		t.Errorf("without a bound: %+v", got)
	}
	db.SetMaxOpenConns(3)
	for range 2 {
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	if diff := cmp.Diff(monitor.PoolStats{InUse: 2, Max: 3}, p.Stats()); diff != "" {
		t.Errorf("two of three: %s", diff)
	}
}

type stat struct{ acquired, most int32 }

func (s *stat) AcquiredConns() int32 { return s.acquired }
func (s *stat) MaxConns() int32      { return s.most }

func TestPgxAndGauge(t *testing.T) {
	p := pool.Pgx("orders-db", func() *stat { return &stat{4, 10} })
	if diff := cmp.Diff(monitor.PoolStats{InUse: 4, Max: 10}, p.Stats()); diff != "" || p.Name != "orders-db" {
		t.Errorf("%s: %s", p.Name, diff)
	}
	var g pool.Gauge
	g.Enter()
	g.Enter()
	g.Leave()
	if got := g.Pool("tokens").Stats(); got.Waiting != (monitor.Reading{Value: 1, OK: true}) {
		t.Errorf("one waits: %+v", got)
	}
}

func TestNoPoolIsAnError(t *testing.T) {
	var g *pool.Gauge
	for what, p := range map[string]monitor.Pool{
		"SQL": pool.SQL("a", nil), "Pgx": pool.Pgx[*stat]("a", nil), "Gauge": g.Pool("a"),
	} {
		var invalid *decision.InvalidError
		if _, err := warden.New(warden.Config{Pools: []monitor.Pool{p}}); !errors.As(err, &invalid) ||
			invalid.Field != "monitor.Pools[0].Stats" {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A warden that knows how much of a database's pool is in use. While it is full, the limit is what it has enough for, and a
// rejection says "orders-db: 10 of 10 in use, 7 wait 40ms".
func ExampleSQL() {
	db := sql.OpenDB(connector{}) // sql.Open, in a program
	db.SetMaxOpenConns(10)
	_, err := warden.New(warden.Config{Pools: []monitor.Pool{pool.SQL("orders-db", db)}})
	fmt.Println(err)
	// Output: <nil>
}

// client stands for a *redis.Client of go-redis.
type client struct{ most int }

type redisStats struct{ TotalConns, IdleConns uint32 }

func (c client) PoolStats() *redisStats           { return &redisStats{7, 3} }
func (c client) Options() *struct{ PoolSize int } { return &struct{ PoolSize int }{c.most} }

// The pool of a go-redis client.
func Example_redis() {
	client := client{10}
	redisPool := monitor.Pool{Name: "redis", Stats: func() monitor.PoolStats {
		s := client.PoolStats()
		return monitor.PoolStats{InUse: int(s.TotalConns) - int(s.IdleConns), Max: client.Options().PoolSize}
	}}
	fmt.Printf("%s: %d of %d in use\n", redisPool.Name, redisPool.Stats().InUse, redisPool.Stats().Max)
	// Output: redis: 4 of 10 in use
}

// A warden whose work waits for a token says so.
func ExampleGauge() {
	var waits pool.Gauge
	tokens := make(chan struct{}, 10)
	w, err := warden.New(warden.Config{Pools: []monitor.Pool{waits.Pool("tokens")}})
	if err != nil {
		panic(err)
	}
	_, _ = warden.Do(context.Background(), w, warden.Task{Name: "report"}, func(context.Context) (int, error) {
		waits.Enter()
		tokens <- struct{}{}
		waits.Leave()
		defer func() { <-tokens }()
		return 1, nil
	})
	// Output:
}
