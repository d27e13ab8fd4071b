// The pool of pgx, as the warden reads it: no server is needed for that.

package testing_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/monitor"
	"github.com/stopbank/stopbank/warden/pool"
)

func TestPoolOfPgx(t *testing.T) {
	db, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/orders?pool_max_conns=10")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	orders := pool.Pgx("orders-db", db.Stat)
	if got := orders.Stats(); got != (monitor.PoolStats{Max: 10}) {
		t.Errorf("%+v", got)
	}
	if _, err := warden.New(warden.Config{Pools: []monitor.Pool{orders}}); err != nil {
		t.Error(err)
	}
}
