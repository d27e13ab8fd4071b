// Pool overloads a real database through a pool of connections and shows what a warden makes of it that knows the pool, beside
// one that has only execution times to go by.
//
//	go run ./examples/pool             # a private PostgreSQL, through pgxpool; it needs PostgreSQL's server programs
//	go run ./examples/pool -sqlite     # SQLite, through database/sql
//
// Each row is a fresh server, cold, under a load of real HTTP requests for ten seconds, beside which it is measured what the pool
// can do. Users leave after a second; one in five is a critical one. They are in this process, so queries wait and do not
// compute.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/monitor"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

const patience = time.Second

func main() {
	file := flag.Bool("sqlite", false, "SQLite through database/sql instead of PostgreSQL through pgxpool")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	open := openPostgres
	if *file {
		open = openSQLite
	}
	err := show(ctx, open)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// database is one with its pool of connections.
type database struct {
	query       func(context.Context) error
	pool        monitor.Pool
	connections int
	close       func()
}

func show(ctx context.Context, open func(context.Context) (*database, error)) error {
	db, err := open(ctx)
	if err != nil {
		return err
	}
	defer db.close()
	fmt.Printf("%s: %d connections\n\n", db.pool.Name, db.connections)
	fmt.Println("queries/s  load  the warden    answered  critical  limit  why")
	for _, load := range []float64{2, 4} {
		for _, pools := range [][]monitor.Pool{nil, {db.pool}} {
			capacity, err := db.probe(ctx)
			if err != nil {
				return err
			}
			r, err := run(ctx, db, pools, load*capacity, 10*time.Second)
			if err != nil {
				return err
			}
			who := "guesses"
			if pools != nil {
				who = "is told"
			}
			fmt.Printf("%9.0f  %3gx  %-12s  %8.3f  %8.3f  %5d  %s\n", capacity, load, who, float64(r.answered)/(capacity*r.seconds),
				float64(r.critical)/float64(r.criticals), r.limit, r.why)
		}
	}
	return ctx.Err()
}

// probe returns how many queries a second the pool can do: as many at a time as it has connections.
func (db *database) probe(ctx context.Context) (perSecond float64, err error) {
	var done atomic.Int64
	var failed atomic.Pointer[error]
	var workers sync.WaitGroup
	began := time.Now()
	for range db.connections {
		workers.Go(func() {
			for time.Since(began) < 2*time.Second {
				if err := db.query(ctx); err != nil {
					failed.Store(&err)
					return
				}
				done.Add(1)
			}
		})
	}
	workers.Wait()
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return float64(done.Load()) / time.Since(began).Seconds(), nil
}

// result counts the users who left before the load ended, or would have.
type result struct {
	seconds                       float64
	answered, critical, criticals int
	limit                         int
	why                           string
}

// run serves a cold server to so many users a second, for so long.
func run(ctx context.Context, db *database, pools []monitor.Pool, rate float64, lasts time.Duration) (r result, err error) {
	w, err := warden.New(warden.Config{Pools: pools})
	if err != nil {
		return r, err
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	var running sync.WaitGroup
	defer running.Wait()
	defer end()
	running.Go(func() { _ = w.Run(ctx) })

	protect, err := wardenhttp.New(w, wardenhttp.Config{Task: func(r *http.Request) warden.Task {
		if r.URL.Path == "/order" {
			return warden.Task{Name: "order", Priority: decision.Critical}
		}
		return warden.Task{Name: "page"}
	}})
	if err != nil {
		return r, err
	}
	server := httptest.NewServer(protect.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if err := db.query(r.Context()); err != nil {
			http.Error(rw, "the database does not answer", http.StatusServiceUnavailable)
		}
	})))
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 10_000}}
	defer client.CloseIdleConnections()

	var mu sync.Mutex
	var users sync.WaitGroup
	began := time.Now()
	for i := 0; ; i++ {
		at := time.Duration(float64(i) / rate * float64(time.Second))
		if at > lasts || ctx.Err() != nil {
			break
		}
		time.Sleep(time.Until(began.Add(at)))
		users.Go(func() {
			path := "/browse"
			if i%5 == 0 {
				path = "/order"
			}
			good := get(ctx, client, server.URL+path)
			if at > lasts-patience {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			r.answered += one(good)
			r.criticals += one(i%5 == 0)
			r.critical += one(good && i%5 == 0)
		})
	}
	for _, reading := range w.History(nil, 0) { // the last time that the limit was held or lowered, and why
		r.limit = reading.Decision.TargetConcurrency
		for _, why := range reading.Decision.Reasons[1:] {
			r.why = why.String()
		}
	}
	users.Wait()
	r.seconds = (lasts - patience).Seconds()
	return r, nil
}

// get is a user who waits so long for an answer.
func get(ctx context.Context, client *http.Client, url string) (good bool) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return false
	}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}
