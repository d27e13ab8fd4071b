package leasepg_test

// This file measures the outbox on a server that syncs: what notifying costs who enqueues, what the horizon costs who reads, beside a reader without one in the
// same run, and what a record costs from the outbox to its end.

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/leasepg"
	"github.com/stopbank/stopbank/lease/leasepg/pgtest"
)

func syncing(b *testing.B) *pgxpool.Pool {
	b.Helper()
	need(b)
	s, err := pgtest.Open(b.Context(), true)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	pool := connect(b, s.URL(), 40)
	if err := leasepg.Migrate(b.Context(), pool); err != nil {
		b.Fatal(err)
	}
	execute(b, pool, "CREATE TABLE effects (domain text, record bigint PRIMARY KEY)")
	return pool
}

// naive is the reader that loses what commits late, on the same rows.
type naive struct {
	pool *pgxpool.Pool
	name string
}

func (n naive) Fetch(ctx context.Context, from int64, limit int) ([]dispatch.Record, error) {
	for {
		rows, err := n.pool.Query(ctx, `SELECT id, domain, payload, enqueued FROM stopbank.outbox_records
			WHERE outbox = $1 AND partition = 0 AND id >= $2 ORDER BY id LIMIT $3`, n.name, from, limit)
		if err != nil {
			return nil, err
		}
		records, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r dispatch.Record, err error) {
			var domain []byte
			err = row.Scan(&r.Offset, &domain, &r.Payload, &r.Time)
			r.Domain = string(domain)
			return r, err
		})
		if err != nil || len(records) > 0 {
			return records, err
		}
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func BenchmarkOutbox(b *testing.B) {
	pool := syncing(b)
	open := func(b *testing.B, name string, partitions int, notify bool) *leasepg.Outbox {
		b.Helper()
		o, err := leasepg.OpenOutbox(b.Context(), leasepg.OutboxConfig{Pool: pool, Name: name, Partitions: partitions, Notify: notify, Poll: 2 * time.Millisecond})
		if err != nil {
			b.Fatal(err)
		}
		return o
	}
	for _, notify := range []bool{false, true} {
		for _, producers := range []int{1, 16} {
			b.Run(fmt.Sprintf("enqueue/notify=%v/producers=%d", notify, producers), func(b *testing.B) {
				o := open(b, b.Name()+strconv.Itoa(b.N), 1, notify)
				var left atomic.Int64
				left.Store(int64(b.N))
				var group sync.WaitGroup
				for i := range producers {
					group.Go(func() {
						for left.Add(-1) >= 0 {
							put(b, pool, o, record(fmt.Sprint(i), 0))
						}
					})
				}
				group.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tx/s")
			})
		}
	}
	b.Run("enqueue/100 a transaction", func(b *testing.B) {
		o := open(b, b.Name()+strconv.Itoa(b.N), 1, false)
		for range (b.N + 99) / 100 {
			put(b, pool, o, slices.Repeat([]dispatch.Record{record("a", 0)}, 100)...)
		}
		b.ReportMetric(float64((b.N+99)/100*100)/b.Elapsed().Seconds(), "records/s")
	})

	reader := func(b *testing.B, o *leasepg.Outbox, name string, safe bool) (interface {
		Fetch(ctx context.Context, from int64, limit int) ([]dispatch.Record, error)
	}, int64) {
		s := opened(b, o, 0, new(durable.MemStore))
		from, _ := take(b, s)
		if safe {
			return s, from
		}
		return naive{pool, name}, from
	}
	for _, safe := range []bool{false, true} {
		b.Run(fmt.Sprintf("read a backlog/horizon=%v", safe), func(b *testing.B) {
			name := b.Name() + strconv.Itoa(b.N)
			o := open(b, name, 1, false)
			put(b, pool, o, slices.Repeat([]dispatch.Record{record("a", 0)}, b.N)...)
			s, from := reader(b, o, name, safe)
			b.ResetTimer()
			for n := 0; n < b.N; {
				records, err := s.Fetch(b.Context(), from, 256)
				if err != nil {
					b.Fatal(err)
				}
				n += len(records)
				from = records[len(records)-1].Offset + 1
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
		})
		// Sixteen producers whose transactions stay open for 0 to 10 ms, 200 a second each at most: from the commit to the reader.
		b.Run(fmt.Sprintf("follow/horizon=%v", safe), func(b *testing.B) {
			name := b.Name() + strconv.Itoa(b.N)
			o := open(b, name, 1, false)
			s, from := reader(b, o, name, safe)
			var mu sync.Mutex
			committed := map[string]time.Time{}
			var left atomic.Int64
			left.Store(int64(b.N))
			var group sync.WaitGroup
			for i := range 16 {
				group.Go(func() {
					for n := left.Add(-1); n >= 0; n = left.Add(-1) {
						if err := pgx.BeginFunc(b.Context(), pool, func(tx pgx.Tx) error {
							err := o.Enqueue(b.Context(), tx, record(strconv.Itoa(i), int(n)))
							time.Sleep(time.Duration(n%11) * time.Millisecond) // it stays open
							return err
						}); err != nil {
							b.Error(err)
						}
						mu.Lock()
						committed[strconv.Itoa(int(n))] = time.Now()
						mu.Unlock()
					}
				})
			}
			over := make(chan struct{})
			go func() { group.Wait(); close(over) }()
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			go func() {
				<-over
				time.Sleep(100 * time.Millisecond) // what is late enough counts as lost
				cancel()
			}()
			seen := map[string]time.Time{}
			for len(seen) < b.N {
				records, err := s.Fetch(ctx, from, 256)
				if err != nil { // the naive one misses some
					break
				}
				for _, r := range records {
					seen[string(r.Payload)] = time.Now()
				}
				from = records[len(records)-1].Offset + 1
			}
			<-over
			var took []time.Duration
			for n, at := range seen {
				took = append(took, at.Sub(committed[n]))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
			b.ReportMetric(100*float64(b.N-len(seen))/float64(b.N), "%lost")
		})
	}

	// From the outbox to the end, with one row written by each handler.
	for _, partitions := range []int{1, 4} {
		for _, within := range []bool{false, true} {
			b.Run(fmt.Sprintf("work/partitions=%d/SucceedTx=%v", partitions, within), func(b *testing.B) {
				o := open(b, b.Name()+strconv.Itoa(b.N), partitions, false)
				var records []dispatch.Record
				for i := range b.N {
					records = append(records, record(strconv.Itoa(i%500), i))
				}
				put(b, pool, o, records...)
				var done sync.WaitGroup
				done.Add(b.N)
				handle := func(ctx context.Context, job dispatch.Job) error {
					err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
						if _, err := tx.Exec(ctx, "INSERT INTO effects VALUES ($1, $2)", job.Record.Domain, job.Record.Offset); err != nil || !within {
							return err
						}
						return leasepg.SucceedTx(ctx, tx, job.Ledger, job.Lease)
					})
					if err == nil {
						done.Done()
					}
					return err
				}
				ctx, cancel := context.WithCancel(b.Context())
				var works sync.WaitGroup
				b.ResetTimer()
				for i, name := range o.Partitions() {
					store, err := leasepg.New(b.Context(), leasepg.Config{Pool: pool, Ledger: name})
					if err != nil {
						b.Fatal(err)
					}
					d, err := dispatch.New(dispatch.Config{
						Name: name, Ledger: ledgerIn(b, store), Source: opened(b, o, i, new(durable.MemStore)), Handler: handle, DeadLetter: dispatch.Discard, MaxInFlight: 32 / partitions,
					})
					if err != nil {
						b.Fatal(err)
					}
					works.Go(func() {
						if err := d.Run(ctx); err != nil {
							b.Error(err)
						}
					})
				}
				done.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
				cancel()
				works.Wait()
			})
		}
	}
}
