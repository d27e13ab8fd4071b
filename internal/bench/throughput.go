// SPDX-License-Identifier: Apache-2.0

// Benchmark rows of whole consumers: throughput of several members with order per key, beside peers on the same engine.

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
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
	records     = 10_000 // of a run
	teamKeys    = 1_000  // that the records have in turn
	teamParts   = 4      // partitions that the members share
	pgWorkers   = 500    // handlers of a member at a time
	natsWorkers = 256
)

func teamKey(record int) string { return "key-" + strconv.Itoa(record%teamKeys) }

// pause is 1 to 5 ms, depending on the record.
func pause(record int64) time.Duration {
	return time.Millisecond + time.Duration(record*7919%4000)*time.Microsecond
}

// A contender is one way to process the records. Load creates them under the name of a run; a member, which is a process of its
// own, works through its own connection.
type contender struct {
	variant
	written bool // the time lasts until the members have given their partitions back, and all is written
	load    func() (run string)
	member  func(ctx context.Context, t *team)
}

// contenders are all of them, by the engine that they are compared on, ours first.
func contenders() map[string][]contender {
	return map[string][]contender{
		"PostgreSQL": {
			{variant{name: "ledgers per window, in order per key"}, true,
				loadPostgres, func(ctx context.Context, t *team) { workPostgres(ctx, t, true) }},
			{variant{name: "ledgers per record"}, false,
				loadPostgres, func(ctx context.Context, t *team) { workPostgres(ctx, t, false) }},
			{variant{name: "River, in no order", most: 0.7}, false, loadRiver, workRiver},
		},
		"JetStream": {
			{variant{name: "ledgers per window, in order per key"}, true,
				loadStream, func(ctx context.Context, t *team) { workJetstream(ctx, t, true) }},
			{variant{name: "ledgers per record"}, false,
				loadStream, func(ctx context.Context, t *team) { workJetstream(ctx, t, false) }},
			{variant{name: "a pull consumer, in no order", most: 2.5}, false,
				loadPull, workPull},
		},
	}
}

func throughputRows() []row {
	var rows []row
	for _, engine := range []string{"PostgreSQL", "JetStream"} {
		if engine == "PostgreSQL" && !havePostgres() {
			continue
		}
		for _, how := range []struct {
			members int
			waits   bool
		}{{1, false}, {2, false}, {4, false}, {1, true}, {4, true}} {
			rows = append(rows, teamRow(engine, how.members, how.waits))
		}
	}
	return rows
}

func teamRow(engine string, members int, waits bool) row {
	handler := map[bool]string{false: "no-op handler", true: "handler of 1 to 5 ms"}[waits]
	processes := map[bool]string{false: "process", true: "processes"}[members > 1]
	r := row{layer: "throughput on " + engine, title: fmt.Sprintf("%s, %d %s", handler, members, processes)}
	all := contenders()[engine]
	for _, c := range all {
		r.variants = append(r.variants, c.variant)
	}
	round := 0
	r.whole = func() []float64 {
		ns := make([]float64, len(all))
		for k := range all {
			i := (k + round) % len(all)
			ns[i] = process(all[i], order{Engine: engine, Contender: i, Members: members, Waits: waits})
			fmt.Fprintf(os.Stderr, "\r\033[K%s: %.0f records/s\n", all[i].name, 1e9/ns[i])
		}
		round++
		return ns
	}
	return r
}

// order is what a member is told: which contender it is, and of which run.
type order struct {
	Engine    string
	Contender int
	Run, URL  string
	Members   int
	Waits     bool // handlers pause
}

// memberVariable makes this program a member, which carries out the order in it.
const memberVariable = "STOPBANK_BENCH_MEMBER"

// told is the order of this process, nil in the one that measures.
var told = sync.OnceValue(func() *order {
	text := os.Getenv(memberVariable)
	if text == "" {
		return nil
	}
	o := new(order)
	must(0, json.Unmarshal([]byte(text), o))
	return o
})

// report is a line that a member prints. Times are of the machine's clock, in nanoseconds.
type report struct {
	Ready      bool  // it waits for the word to begin
	Began      int64 // the first handler
	Done, Last int64 // so many more records are done, and when the last was
	Over       int64 // it has returned
}

// process returns nanoseconds per record, from the first handler to the last record that is done for good. It starts the members one
// after the other, and says begin to all when all are ready.
func process(c contender, o order) (ns float64) {
	o.Run = c.load()
	if o.URL = pgURL(); o.Engine == "JetStream" {
		o.URL = jetStream().ConnectedUrl()
	}
	reports := make(chan report)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var members []io.WriteCloser
	var group sync.WaitGroup
	for range o.Members {
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env, cmd.Stderr = append(os.Environ(), memberVariable+"="+string(must(json.Marshal(o)))), os.Stderr
		members = append(members, must(cmd.StdinPipe()))
		out := must(cmd.StdoutPipe())
		must(0, cmd.Start())
		group.Go(func() {
			for lines := json.NewDecoder(out); ; {
				var r report
				if lines.Decode(&r) != nil {
					break
				}
				reports <- r
			}
			if err := cmd.Wait(); err != nil {
				exit("a member of %s: %v", c.name, err)
			}
		})
	}
	go func() {
		group.Wait()
		close(reports)
	}()
	ready, began, end, done := 0, int64(0), int64(0), int64(0)
	for r := range reports {
		if r.Ready {
			if ready++; ready == o.Members {
				for _, m := range members {
					must(io.WriteString(m, "begin\n"))
				}
			}
		}
		if r.Began > 0 && (began == 0 || r.Began < began) {
			began = r.Began
		}
		if r.Last > 0 || c.written && r.Over > 0 {
			end = max(end, r.Last, r.Over)
		}
		if done += r.Done; r.Done > 0 && done == records {
			for _, m := range members {
				must(0, m.Close()) // asks it to end
			}
		}
	}
	if done != records {
		exit("%s: %d of %d records done in two minutes", c.name, done, records)
	}
	return float64(end-began) / records
}

// team is a member's part of a run.
type team struct {
	order
	begin chan struct{} // closed when all members are ready
	begun sync.Once

	mu   sync.Mutex // guards all below, and the standard output
	done report     // not printed
}

// work is what a member does: it carries out the order, and reports.
func work(o order) {
	ctx, end := context.WithCancel(context.Background())
	t := &team{order: o, begin: make(chan struct{})}
	go func() {
		lines := bufio.NewReader(os.Stdin)
		if _, err := lines.ReadString('\n'); err == nil {
			close(t.begin)
		}
		_, _ = lines.ReadString('\n')
		end()
	}()
	go func() {
		for range time.Tick(5 * time.Millisecond) {
			t.print(report{})
		}
	}()
	contenders()[o.Engine][o.Contender].member(ctx, t)
	t.print(report{Over: time.Now().UnixNano()})
}

// print reports r, after what is done.
func (t *team) print(r report) {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := json.NewEncoder(os.Stdout)
	for _, r := range []report{t.done, r} {
		if r != (report{}) {
			must(0, out.Encode(r))
		}
	}
	t.done = report{}
}

// begins says that the member is ready and waits for the others.
func (t *team) begins(ctx context.Context) {
	t.print(report{Ready: true})
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
	t.begun.Do(func() { t.print(report{Began: time.Now().UnixNano()}) })
	if t.Waits {
		time.Sleep(pause(record))
	}
}

func (t *team) finished() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done.Done++
	t.done.Last = time.Now().UnixNano()
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
		if g.held.Add(1) == int64(teamParts/g.team.Members) {
			g.team.begins(ctx)
		}
		g.team.wait(ctx)
		work(ctx, p)
	})
}

// loadPostgres enqueues the records in an outbox of its own, which deletes them as they are done, and resets the ledgers.
func loadPostgres() (run string) {
	ctx, run := context.Background(), "bench "+runName()
	must(postgres().Exec(ctx, "TRUNCATE stopbank.outbox_records, stopbank.lease_domains, stopbank.lease_journals, stopbank.lease_entries"))
	outbox := openOutbox(postgres(), run)
	var all []dispatch.Record
	for i := range records {
		all = append(all, dispatch.Record{Domain: teamKey(i), Payload: []byte(strconv.Itoa(i))})
	}
	for some := range slices.Chunk(all, 1_000) {
		must(0, pgx.BeginFunc(ctx, postgres(), func(tx pgx.Tx) error { return outbox.Enqueue(ctx, tx, some...) }))
	}
	settlePostgres()
	return run
}

func openOutbox(pool *pgxpool.Pool, run string) *leasepg.Outbox {
	return must(leasepg.OpenOutbox(context.Background(), leasepg.OutboxConfig{Pool: pool, Name: run, Partitions: teamParts}))
}

func workPostgres(ctx context.Context, t *team, perWindow bool) {
	pool := connect(ctx)
	defer pool.Close()
	t.consume(ctx, must(leasepg.OpenGroup(ctx, leasepg.GroupConfig{Conn: pool.Config().ConnConfig, Group: t.Run,
		Outbox: openOutbox(pool, t.Run), Ledger: lease.Config{MaxRetries: lease.DefaultRetries}, Journal: perWindow})), pgWorkers)
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

// loadRiver inserts the jobs before any member starts.
func loadRiver() string {
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
	return ""
}

// workRiver is configured like River's own benchmark, with the shortest intervals; a job is done when its completion is written.
func workRiver(ctx context.Context, t *team) {
	pool := connect(ctx)
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

// loadStream creates a stream with the records, partitioned by key.
func loadStream() (run string) {
	ctx := context.Background()
	js := must(jetstream.New(jetStream(), jetstream.WithPublishAsyncMaxPending(1000)))
	for name := range js.StreamNames(ctx).Name() { // of earlier runs
		if strings.HasPrefix(name, "TEAM") || strings.HasPrefix(name, "KV_team") || strings.HasPrefix(name, "JOURNAL_team") {
			must(0, js.DeleteStream(ctx, name))
		}
	}
	run = runName()
	stream := must(js.CreateStream(ctx, jetstream.StreamConfig{
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
	return run
}

// lastToken is the key in a subject.
func lastToken(r dispatch.Record) string { return r.Domain[strings.LastIndex(r.Domain, ".")+1:] }

func workJetstream(ctx context.Context, t *team, perWindow bool) {
	conn := must(nats.Connect(t.URL))
	defer conn.Close()
	t.consume(ctx, must(leasenats.OpenGroup(ctx, leasenats.GroupConfig{
		Conn: conn, Stream: "TEAM" + t.Run, Subject: "team.*.>", Partitions: teamParts, Bucket: "team" + t.Run, Session: 2 * time.Second,
		Ledger: lease.Config{MaxRetries: lease.DefaultRetries}, Journal: perWindow, Domain: lastToken,
	})), natsWorkers)
}

// loadPull creates the same stream, and a consumer.
func loadPull() (run string) {
	ctx, run := context.Background(), loadStream()
	must(must(jetstream.New(jetStream())).CreateConsumer(ctx, "TEAM"+run, jetstream.ConsumerConfig{Durable: "bare",
		AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 1 << 16}))
	return run
}

// workPull handles messages in any order, one per worker at a time; a record is done when the server confirms its ack.
func workPull(ctx context.Context, t *team) {
	conn := must(nats.Connect(t.URL))
	defer conn.Close()
	consumer := must(must(jetstream.New(conn)).Consumer(ctx, "TEAM"+t.Run, "bare"))
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

func runName() string { return strings.ReplaceAll(time.Now().Format("150405.000000"), ".", "_") }
