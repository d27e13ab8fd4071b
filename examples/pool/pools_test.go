// Pools that are not all that work waits for, as real ones: database/sql and SQLite in virtual time.

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/control"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/monitor"
	"github.com/stopbank/stopbank/warden/pool"
)

// connections is a database with so many connections.
func connections(t *testing.T, n int) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "orders.db"))
	if err := errors.Join(err, withSleep()); err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(n)
	db.SetMaxIdleConns(n)
	return db
}

// query holds a connection for 20 ms.
func query(ctx context.Context, on interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}) error {
	_, err := on.ExecContext(ctx, "SELECT sleep_ms(20)")
	return err
}

// Twice and four times as many requests as the pools can serve, from cold: the limit follows the tightest pool, the reasons name
// it and no other, and nearly all critical users are answered.
func TestPoolsOfAllSorts(t *testing.T) {
	type request func(ctx context.Context, i int, db []*sql.DB) error // of the user i
	whole := func(ctx context.Context, _ int, db []*sql.DB) error { return query(ctx, db[0]) }
	for _, c := range []struct {
		name        string
		sizes       []int // of the pools
		beside      int   // connections of the first that others hold
		request     request
		capacity    float64 // requests a second
		tightest    string
		least, most int     // limit, after three seconds
		part        float64 // of the capacity, and of the critical users, who are answered
	}{
		{"one", []int{10}, 0, whole, 500, "pool-0", 9, 12, 1},
		{"two in turn, of which the second is full with 6 requests", []int{8, 3}, 0,
			func(ctx context.Context, _ int, db []*sql.DB) error {
				return errors.Join(query(ctx, db[0]), query(ctx, db[1]))
			}, 150, "pool-1", 4, 8, 1},
		{"one that half of the requests use, which is full with 20", []int{10}, 0,
			func(ctx context.Context, i int, db []*sql.DB) error {
				if i%2 == 0 {
					return query(ctx, db[0])
				}
				time.Sleep(20 * time.Millisecond)
				return nil
			}, 1000, "pool-0", 12, 32, 1},
		// The limit does not learn that 7 are enough: the pool is never seen with room, and does not say how many wait.
		{"one of which others hold 3", []int{10}, 3, whole, 350, "pool-0", 6, 12, 1},
		// Nor that a request needs two: ten that hold one each wait for another until their users leave. Untold, 2 % are answered.
		{"two connections a request", []int{10}, 0, func(ctx context.Context, _ int, db []*sql.DB) error {
			conn, err := db[0].Conn(ctx)
			if err != nil {
				return err
			}
			defer conn.Close()
			return errors.Join(query(ctx, conn), query(ctx, db[0]))
		}, 167, "pool-0", 5, 12, 0.1},
	} {
		for _, load := range []float64{2, 4} {
			t.Run(fmt.Sprintf("%s, %g×", c.name, load), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var dbs []*sql.DB
					var pools []monitor.Pool
					for i, n := range c.sizes {
						db := connections(t, n)
						defer db.Close()
						dbs, pools = append(dbs, db), append(pools, pool.SQL(fmt.Sprintf("pool-%d", i), db))
					}
					for range c.beside {
						conn, err := dbs[0].Conn(t.Context())
						if err != nil {
							t.Fatal(err)
						}
						defer conn.Close()
					}
					o := overload(t, pools, load*c.capacity, func(ctx context.Context, i int) error { return c.request(ctx, i, dbs) })
					if o.least < c.least || o.most > c.most {
						t.Errorf("limit %d to %d, not %d to %d", o.least, o.most, c.least, c.most)
					}
					if share := float64(o.answered) / (c.capacity * counted.Seconds()); share < 0.8*c.part ||
						float64(o.critical) < 0.98*c.part*float64(o.criticals) {
						t.Errorf("%.3f of the capacity and %d of %d critical users answered, not %g", share, o.critical, o.criticals, c.part)
					}
					if full := o.full[c.tightest]; full == 0 || len(o.full) > 1 {
						t.Errorf("full are said to be %v, not %s", o.full, c.tightest)
					}
				})
			})
		}
	}
}

const (
	lasts   = 6 * time.Second
	counted = lasts - patience // the users of this time
	settled = 3 * time.Second
)

type outcome struct {
	answered, critical, criticals int            // users
	least, most                   int            // limit, from settled on
	full                          map[string]int // decisions from then on that name a pool
}

// idle is the warden's own law on processors that are never busy: those of the test belong to other tests as well.
type idle struct{ *control.Controller }

// Step decides without what was measured of processors.
func (c idle) Step(s monitor.Sample) decision.ControlDecision {
	s.Lag, s.Throttled = monitor.Lag{}, monitor.Reading{}
	s.Utilization, s.Runnable = monitor.Reading{OK: true}, monitor.Reading{OK: true}
	return c.Controller.Step(s)
}

// overload serves so many users a second, every fifth of whom is critical, behind a cold warden.
func overload(t *testing.T, pools []monitor.Pool, rate float64, request func(ctx context.Context, i int) error) (o outcome) {
	t.Helper()
	law, err := control.New(control.Config{Processors: 2, ValidFor: patience})
	if err != nil {
		t.Fatal(err)
	}
	w, err := warden.New(warden.Config{Pools: pools, Controller: idle{law}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	var running, users sync.WaitGroup
	defer running.Wait()
	defer end()
	running.Go(func() { _ = w.Run(ctx) })

	var mu sync.Mutex
	began := time.Now()
	for i := 0; time.Since(began) < lasts; i++ {
		counts := time.Since(began) < counted
		users.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			var task warden.Task
			if i%5 == 0 {
				task.Priority = decision.Critical
			}
			_, err := warden.Do(ctx, w, task, func(ctx context.Context) (int, error) { return 0, request(ctx, i) })
			mu.Lock()
			defer mu.Unlock()
			o.answered += one(counts && err == nil)
			o.criticals += one(counts && i%5 == 0)
			o.critical += one(counts && i%5 == 0 && err == nil)
		})
		time.Sleep(time.Duration(float64(time.Second) / rate))
	}
	o.least, o.full = math.MaxInt, map[string]int{}
	for _, r := range w.History(nil, 0) {
		if r.Decision.At.Sub(began) < settled {
			continue
		}
		o.least, o.most = min(o.least, r.Decision.TargetConcurrency), max(o.most, r.Decision.TargetConcurrency)
		for _, why := range r.Decision.Reasons {
			if _, rest, ok := strings.Cut(why.String(), "pool_full: "); ok {
				name, _, _ := strings.Cut(rest, ":")
				o.full[name]++
			}
		}
	}
	users.Wait()
	return o
}
