// Benchmark rows of whole consumers on PostgreSQL, beside River.

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/leasepg"
	"github.com/stopbank/stopbank/lease/leasepg/pgtest"
)

const (
	pgWorkers    = 500
	riverWorkers = 500
)

func throughputPostgresRows() []row {
	if pgtest.Available(context.Background()) != nil {
		return nil // leasepgRows has reported it
	}
	var rows []row
	for _, how := range teamSizes() {
		rows = append(rows, teamRow("throughput on PostgreSQL", "PostgreSQL", how.processes, how.waits,
			contender{name: fmt.Sprintf("dispatch over leasepg, %d workers a process, in order per key", pgWorkers), load: loadPostgres},
			contender{name: fmt.Sprintf("River, %d workers a process, in no order", riverWorkers), load: loadRiver, most: 1},
		))
	}
	return rows
}

// loadPostgres fills a table with the records and resets the ledgers.
func loadPostgres(waits bool) job {
	ctx := context.Background()
	if _, err := postgres().Exec(ctx, `
		CREATE TABLE IF NOT EXISTS bench_records (part integer, id bigint, key text NOT NULL, PRIMARY KEY (part, id));
		CREATE TABLE IF NOT EXISTS bench_positions (part integer PRIMARY KEY, floor bigint NOT NULL);
		TRUNCATE bench_records, bench_positions, stopbank.lease_domains`); err != nil {
		exit("%v", err)
	}
	if _, err := postgres().CopyFrom(ctx, pgx.Identifier{"bench_records"}, []string{"part", "id", "key"}, pgx.CopyFromSlice(teamRecords, func(i int) ([]any, error) {
		return []any{teamPart(i), i + 1, teamKey(i)}, nil
	})); err != nil {
		exit("%v", err)
	}
	if _, err := postgres().Exec(ctx, `INSERT INTO bench_positions SELECT generate_series(0, $1 - 1), 0`, teamParts); err != nil {
		exit("%v", err)
	}
	settlePostgres()
	return job{Kind: "postgres", Server: pgServer.Load().URL(), Run: runName(), Workers: pgWorkers, Waits: waits}
}

// settlePostgres completes deferred work of earlier runs.
func settlePostgres() {
	for _, statement := range []string{"VACUUM ANALYZE", "CHECKPOINT"} {
		if _, err := postgres().Exec(context.Background(), statement); err != nil {
			exit("%v", err)
		}
	}
}

func connect(ctx context.Context, url string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = 16
	return pgxpool.NewWithConfig(ctx, cfg)
}

func postgresMember(ctx context.Context, j job, t *tally) error {
	pool, err := connect(ctx, j.Server)
	if err != nil {
		return err
	}
	parts := map[string]int{}
	cfg := leasepg.OwnershipConfig{
		Conn: pool.Config().ConnConfig, Group: "bench " + j.Run,
		Open: func(ctx context.Context, partition string) (dispatch.Partition, error) {
			store, err := leasepg.New(ctx, leasepg.Config{Pool: pool, Ledger: partition})
			if err != nil {
				return dispatch.Partition{}, err
			}
			ledger, err := durable.New(durable.Config{Store: store, MaxRetries: lease.DefaultRetries})
			return dispatch.Partition{Name: partition, Source: recordTable{pool, parts[partition]}, Ledger: ledger}, err
		},
	}
	for i := range teamParts {
		name := "bench/" + strconv.Itoa(i)
		parts[name] = i
		cfg.Partitions = append(cfg.Partitions, name)
	}
	group, err := leasepg.NewOwnership(cfg)
	if err != nil {
		return err
	}
	return consume(ctx, j, t, group)
}

// recordTable is a partition whose records are all present at the start.
type recordTable struct {
	pool *pgxpool.Pool
	part int
}

func (s recordTable) Committed(ctx context.Context) (floor int64, err error) {
	err = s.pool.QueryRow(ctx, `SELECT floor FROM bench_positions WHERE part = $1`, s.part).Scan(&floor)
	return floor, err
}

func (s recordTable) Commit(ctx context.Context, floor int64) error {
	_, err := s.pool.Exec(ctx, `UPDATE bench_positions SET floor = $1 WHERE part = $2`, floor, s.part)
	return err
}

func (s recordTable) Fetch(ctx context.Context, from int64, limit int) ([]dispatch.Record, error) {
	rows, err := s.pool.Query(ctx, `SELECT key, id FROM bench_records WHERE part = $1 AND id >= $2 ORDER BY id LIMIT $3`, s.part, from, limit)
	if err != nil {
		return nil, err
	}
	records, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r dispatch.Record, err error) {
		err = row.Scan(&r.Domain, &r.Offset)
		return r, err
	})
	if err == nil && len(records) == 0 {
		<-ctx.Done() // no more records arrive
		err = ctx.Err()
	}
	return records, err
}

// riverArgs is a River job with as much data as a record.
type riverArgs struct {
	ID  int64  `json:"id"`
	Key string `json:"key"`
}

func (riverArgs) Kind() string { return "bench" }

var riverSchema = sync.OnceFunc(func() {
	migrator, err := rivermigrate.New(riverpgxv5.New(postgres()), &rivermigrate.Config{Logger: quiet()})
	if err == nil {
		_, err = migrator.Migrate(context.Background(), rivermigrate.DirectionUp, nil)
	}
	if err != nil {
		exit("%v", err)
	}
})

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// loadRiver inserts the jobs before any member starts.
func loadRiver(waits bool) job {
	ctx := context.Background()
	riverSchema()
	if _, err := postgres().Exec(ctx, `TRUNCATE river_job`); err != nil {
		exit("%v", err)
	}
	client, err := river.NewClient(riverpgxv5.New(postgres()), &river.Config{Logger: quiet()})
	if err != nil {
		exit("%v", err)
	}
	var params []river.InsertManyParams
	for i := range teamRecords {
		params = append(params, river.InsertManyParams{Args: riverArgs{int64(i) + 1, teamKey(i)}})
	}
	for some := range slices.Chunk(params, 5_000) {
		if _, err := client.InsertManyFast(ctx, some); err != nil {
			exit("%v", err)
		}
	}
	settlePostgres()
	return job{Kind: "river", Server: pgServer.Load().URL(), Run: runName(), Workers: riverWorkers, Waits: waits}
}

// riverMember configures River like its own benchmark, with the shortest intervals. A job is done when its completion is written.
func riverMember(ctx context.Context, j job, t *tally) error {
	pool, err := connect(ctx, j.Server)
	if err != nil {
		return err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(_ context.Context, job *river.Job[riverArgs]) error {
		t.handle(j, job.Args.ID)
		return nil
	}))
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: j.Workers}}, Workers: workers, Logger: quiet(),
		FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond, JobTimeout: -1,
	})
	if err != nil {
		return err
	}
	completed, unsubscribe := client.SubscribeConfig(&river.SubscribeConfig{Kinds: []river.EventKind{river.EventKindJobCompleted}, ChanSize: 2 * teamRecords})
	defer unsubscribe()
	if err := pool.Ping(ctx); err != nil {
		return err
	}
	if !t.begins(ctx) {
		return nil
	}
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	for ctx.Err() == nil {
		select {
		case <-completed:
			t.done.Add(1)
		case <-ctx.Done():
		}
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := client.Stop(stop); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}
