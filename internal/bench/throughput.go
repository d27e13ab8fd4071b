// SPDX-License-Identifier: Apache-2.0

// Benchmark rows of whole consumers: throughput of several members with order per key, beside peers on the same engine.

package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/leasenats"
	"github.com/stopbank/stopbank/lease/leasepg"
)

const (
	teamKeys    = 1_000 // that the records have in turn
	teamParts   = 4     // partitions that the members share
	pgWorkers   = 500   // handlers of a member at a time
	natsWorkers = 256
)

func teamKey(record int) string { return "key-" + strconv.Itoa(record%teamKeys) }

// teamPart is the partition of a key; all partitions have the same number of keys.
func teamPart(record int) int { return record % teamKeys % teamParts }

// pause is 1 to 5 ms, depending on the record.
func pause(record int64) time.Duration {
	return time.Millisecond + time.Duration(record*7919%4000)*time.Microsecond
}

// A contender is one way to process the records. Load creates them and returns what a member does with its own connection.
type contender struct {
	variant
	written bool // the time lasts until the partitions are given back, and all is written
	load    func() (member func(context.Context, *team))
}

func throughputRows() []row {
	var rows []row
	add := func(engine string, contenders ...contender) {
		for _, how := range []struct {
			members int
			waits   bool
		}{{1, false}, {2, false}, {4, false}, {1, true}, {4, true}} {
			rows = append(rows, teamRow(engine, how.members, how.waits, contenders))
		}
	}
	if havePostgres() {
		add("PostgreSQL",
			contender{variant{name: fmt.Sprintf("dispatch over leasepg, ledgers per window, %d workers a member, in order per key",
				pgWorkers)}, true, func() func(context.Context, *team) { return loadPostgres(true) }},
			contender{variant{name: "as above, ledgers per record"}, false, func() func(context.Context, *team) { return loadPostgres(false) }},
			contender{variant{name: fmt.Sprintf("River, %d workers a member, in no order", pgWorkers), most: 0.7}, false, loadRiver})
	}
	add("JetStream",
		contender{variant{name: fmt.Sprintf("dispatch over leasenats, ledgers per window, %d workers a member, in order per key",
			natsWorkers)}, true, func() func(context.Context, *team) { return loadJetstream(true) }},
		contender{variant{name: "as above, ledgers per record"}, false, func() func(context.Context, *team) { return loadJetstream(false) }},
		contender{variant{name: fmt.Sprintf("a pull consumer, acks awaited, %d workers a member, in no order", natsWorkers), most: 2.5},
			false, loadPull})
	return append(rows, kafkaRow(16), kafkaRow(64))
}

func teamRow(engine string, members int, waits bool, contenders []contender) row {
	handler, plural := "no-op handler", ""
	if waits {
		handler = "handler of 1 to 5 ms"
	}
	if members > 1 {
		plural = "s"
	}
	r := row{layer: "throughput on " + engine, title: fmt.Sprintf("%s: %d records of %d keys, %s, workers of %d member%s", engine,
		records, teamKeys, handler, members, plural)}
	for _, c := range contenders {
		r.variants = append(r.variants, c.variant)
	}
	round := 0
	r.whole = func() []float64 {
		ns := make([]float64, len(contenders))
		for k := range contenders {
			i := (k + round) % len(contenders)
			ns[i] = process(contenders[i], members, waits)
			fmt.Fprintf(os.Stderr, "\r\033[K%s: %.0f records/s%s\n", contenders[i].name, 1e9/ns[i], perRecord())
		}
		round++
		return ns
	}
	return r
}

// team is one run: what its members share.
type team struct {
	members int
	waits   bool          // handlers pause
	ready   atomic.Int64  // members
	begin   chan struct{} // closed when all members are ready
	begun   sync.Once
	began   time.Time // of the first handler
	done    atomic.Int64
	written bool          // the last records are done for good when the members have returned, and the partitions are given back
	end     chan struct{} // closed when the last record is done
}

// statements counts those of the members of one run, and their batches as one.
var statements atomic.Int64

// perRecord returns the statements of the last run.
func perRecord() string {
	if n := statements.Swap(0); n > 0 {
		return fmt.Sprintf(", %.3f statements a record", float64(n)/records)
	}
	return ""
}

// TraceQueryStart implements pgx.QueryTracer.
func (t *team) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	statements.Add(1)
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (t *team) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart implements pgx.BatchTracer.
func (t *team) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	statements.Add(1)
	return ctx
}

// TraceBatchQuery implements pgx.BatchTracer.
func (t *team) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd implements pgx.BatchTracer.
func (t *team) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// process returns nanoseconds per record, from the first handler to the last record that is done for good.
func process(c contender, members int, waits bool) float64 {
	ctx, cancel := context.WithCancel(context.Background())
	t := &team{members: members, waits: waits, written: c.written, begin: make(chan struct{}), end: make(chan struct{})}
	member := c.load()
	var group sync.WaitGroup
	for range members {
		group.Go(func() { member(ctx, t) })
	}
	select {
	case <-t.end:
	case <-time.After(2 * time.Minute):
		exit("%s: %d of %d records done in two minutes", c.name, t.done.Load(), records)
	}
	took := time.Since(t.began)
	cancel()
	group.Wait()
	if t.written {
		took = time.Since(t.began)
	}
	return float64(took) / records
}

// begins says that a member is ready and waits for the others.
func (t *team) begins(ctx context.Context) {
	if t.ready.Add(1) == int64(t.members) {
		close(t.begin)
	}
	t.wait(ctx)
}

func (t *team) wait(ctx context.Context) {
	select {
	case <-t.begin:
	case <-ctx.Done():
	}
}

// handle is every member's handler.
func (t *team) handle(record int64) {
	t.begun.Do(func() { t.began = time.Now() })
	if t.waits {
		time.Sleep(pause(record))
	}
}

func (t *team) finished() {
	if t.done.Add(1) == records {
		close(t.end)
	}
}

// consume processes what an Ownership assigns to a member, once all members have their share of the partitions.
func (t *team) consume(ctx context.Context, group dispatch.Ownership, workers int) {
	must(0, must(dispatch.NewConsumer(&gated{Ownership: group, team: t}, dispatch.Config{
		MaxInFlight: workers, MaxBuffered: 8 * 1024, DeadLetter: dispatch.Discard, Observer: t,
		Handler: func(_ context.Context, job dispatch.Job) error {
			t.handle(job.Record.Offset)
			return nil
		},
	})).Run(ctx))
}

// Observe implements dispatch.Observer.
func (t *team) Observe(e dispatch.Event) {
	switch e.Kind {
	case dispatch.Succeeded:
		t.finished()
	case dispatch.LedgerError, dispatch.Fenced, dispatch.Foreign, dispatch.GaveUp, dispatch.FetchFailed, dispatch.TakeFailed:
		fmt.Fprintf(os.Stderr, "bench: %v of %s: %v\n", e.Kind, e.Domain, e.Err)
	}
}

// gated is an Ownership whose sources can be read when all members have their share of the partitions.
type gated struct {
	dispatch.Ownership
	team *team
	held atomic.Int64 // partitions, among them those that another member got since
}

func (g *gated) Hold(ctx context.Context, work func(context.Context, dispatch.Partition)) error {
	return g.Ownership.Hold(ctx, func(ctx context.Context, p dispatch.Partition) {
		if g.held.Add(1) == int64(teamParts/g.team.members) {
			g.team.begins(ctx)
		}
		g.team.wait(ctx)
		work(ctx, p)
	})
}

// loadPostgres enqueues the records in an outbox of its own, which deletes them as they are done, and resets the ledgers.
func loadPostgres(perWindow bool) func(context.Context, *team) {
	ctx, name := context.Background(), "bench "+runName()
	must(postgres().Exec(ctx, "TRUNCATE stopbank.outbox_records, stopbank.lease_domains, stopbank.lease_journals, stopbank.lease_entries"))
	open := func(pool *pgxpool.Pool) *leasepg.Outbox {
		return must(leasepg.OpenOutbox(ctx, leasepg.OutboxConfig{Pool: pool, Name: name, Partitions: teamParts}))
	}
	outbox := open(postgres())
	var all []dispatch.Record
	for i := range records {
		all = append(all, dispatch.Record{Domain: teamKey(i), Payload: []byte(strconv.Itoa(i))})
	}
	for some := range slices.Chunk(all, 1_000) {
		must(0, pgx.BeginFunc(ctx, postgres(), func(tx pgx.Tx) error { return outbox.Enqueue(ctx, tx, some...) }))
	}
	settlePostgres()
	return func(ctx context.Context, t *team) {
		pool := connect(ctx, t)
		defer pool.Close()
		t.consume(ctx, must(leasepg.OpenGroup(ctx, leasepg.GroupConfig{Conn: pool.Config().ConnConfig, Group: name, Outbox: open(pool),
			Ledger: lease.Config{MaxRetries: lease.DefaultRetries}, Journal: perWindow})), pgWorkers)
	}
}

// settlePostgres completes deferred work of earlier runs.
func settlePostgres() {
	must(postgres().Exec(context.Background(), "VACUUM ANALYZE"))
	must(postgres().Exec(context.Background(), "CHECKPOINT"))
}

// riverArgs is a River job with as much data as a record.
type riverArgs struct {
	ID  int64  `json:"id"`
	Key string `json:"key"`
}

func (riverArgs) Kind() string { return "bench" }

var (
	quiet       = slog.New(slog.NewTextHandler(io.Discard, nil))
	riverSchema = sync.OnceFunc(func() {
		migrator := must(rivermigrate.New(riverpgxv5.New(postgres()), &rivermigrate.Config{Logger: quiet}))
		must(migrator.Migrate(context.Background(), rivermigrate.DirectionUp, nil))
	})
)

// loadRiver inserts the jobs before any member starts. A member is configured like River's own benchmark, with the shortest
// intervals; a job is done when its completion is written.
func loadRiver() func(context.Context, *team) {
	ctx := context.Background()
	riverSchema()
	must(postgres().Exec(ctx, `TRUNCATE river_job`))
	client := must(river.NewClient(riverpgxv5.New(postgres()), &river.Config{Logger: quiet}))
	var params []river.InsertManyParams
	for i := range records {
		params = append(params, river.InsertManyParams{Args: riverArgs{int64(i) + 1, teamKey(i)}})
	}
	for some := range slices.Chunk(params, 5_000) {
		must(client.InsertManyFast(ctx, some))
	}
	settlePostgres()
	return func(ctx context.Context, t *team) {
		pool := connect(ctx, t)
		defer pool.Close()
		workers := river.NewWorkers()
		river.AddWorker(workers, river.WorkFunc(func(_ context.Context, job *river.Job[riverArgs]) error {
			t.handle(job.Args.ID)
			return nil
		}))
		client := must(river.NewClient(riverpgxv5.New(pool), &river.Config{
			Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: pgWorkers}}, Workers: workers, Logger: quiet,
			FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond, JobTimeout: -1,
		}))
		completed, unsubscribe := client.SubscribeConfig(&river.SubscribeConfig{Kinds: []river.EventKind{river.EventKindJobCompleted},
			ChanSize: 2 * records})
		defer unsubscribe()
		must(0, pool.Ping(ctx))
		t.begins(ctx)
		must(0, client.Start(context.WithoutCancel(ctx)))
		for ctx.Err() == nil {
			select {
			case <-completed:
				t.finished()
			case <-ctx.Done():
			}
		}
		must(0, client.Stop(context.WithoutCancel(ctx)))
	}
}

// loadJetstream creates a stream with the records, partitioned by key.
func loadJetstream(perWindow bool) func(context.Context, *team) {
	run, _ := loadStream()
	return func(ctx context.Context, t *team) {
		conn := must(nats.Connect(jetStream().ConnectedUrl()))
		defer conn.Close()
		t.consume(ctx, must(leasenats.OpenGroup(ctx, leasenats.GroupConfig{
			Conn: conn, Stream: "TEAM" + run, Subject: "team.*.>", Partitions: teamParts, Bucket: "team" + run, Session: 2 * time.Second,
			Ledger: lease.Config{MaxRetries: lease.DefaultRetries}, Journal: perWindow,
			Domain: func(r dispatch.Record) string { return r.Domain[strings.LastIndex(r.Domain, ".")+1:] },
		})), natsWorkers)
	}
}

// loadPull creates the same stream. Members handle messages in any order, one per worker at a time; a record is done when the
// server confirms its ack.
func loadPull() func(context.Context, *team) {
	run, stream := loadStream()
	must(stream.CreateConsumer(context.Background(), jetstream.ConsumerConfig{Durable: "bare",
		AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 1 << 16}))
	return func(ctx context.Context, t *team) {
		conn := must(nats.Connect(jetStream().ConnectedUrl()))
		defer conn.Close()
		consumer := must(must(jetstream.New(conn)).Consumer(ctx, "TEAM"+run, "bare"))
		t.begins(ctx)
		messages := must(consumer.Messages(jetstream.PullMaxMessages(2 * natsWorkers)))
		var group sync.WaitGroup
		for range natsWorkers {
			group.Go(func() {
				for m, err := messages.Next(); err == nil; m, err = messages.Next() {
					t.handle(int64(must(m.Metadata()).Sequence.Stream))
					if err := m.DoubleAck(ctx); err != nil {
						if ctx.Err() == nil {
							exit("%v", err)
						}
						return
					}
					t.finished()
				}
			})
		}
		<-ctx.Done()
		messages.Stop()
		group.Wait()
	}
}

func loadStream() (run string, stream jetstream.Stream) {
	ctx := context.Background()
	js := must(jetstream.New(jetStream(), jetstream.WithPublishAsyncMaxPending(1000)))
	for name := range js.StreamNames(ctx).Name() { // of earlier runs
		if strings.HasPrefix(name, "TEAM") || strings.HasPrefix(name, "KV_team") || strings.HasPrefix(name, "JOURNAL_team") {
			must(0, js.DeleteStream(ctx, name))
		}
	}
	run = runName()
	stream = must(js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "TEAM" + run, Subjects: []string{"team.*"},
		SubjectTransform: &jetstream.SubjectTransformConfig{Source: "team.*",
			Destination: fmt.Sprintf("team.{{partition(%d,1)}}.{{wildcard(1)}}", teamParts)},
	}))
	for i := range records {
		must(js.PublishAsync("team."+teamKey(i), nil, jetstream.WithStallWait(time.Minute)))
	}
	<-js.PublishAsyncComplete()
	if info := must(stream.Info(ctx)); info.State.Msgs != records {
		exit("%d of %d records in the stream", info.State.Msgs, records)
	}
	return run, stream
}

func runName() string { return strings.ReplaceAll(time.Now().Format("150405.000000"), ".", "_") }
