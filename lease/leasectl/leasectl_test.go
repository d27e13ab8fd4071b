// SPDX-License-Identifier: Apache-2.0

package main

// This file runs the program on each engine, also as a process, through the story of docs/dead-letters.md.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/deadletter"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/internal/clip"
	"github.com/stopbank/stopbank/lease/internal/dlq"
	"github.com/stopbank/stopbank/lease/leasekafka"
	"github.com/stopbank/stopbank/lease/leasenats"
	"github.com/stopbank/stopbank/lease/leasepg"
	"github.com/stopbank/stopbank/lease/leasepg/pgtest"
)

// childEnv makes the program of a test binary.
const childEnv = "LEASECTL_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		main()
		return
	}
	flag.Parse()
	code := m.Run()
	if started != nil {
		if err := started.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

var started *pgtest.Server // by the first test that needs one

var pgserver = sync.OnceValue(func() (err error) {
	started, err = pgtest.Open(context.Background(), false)
	return err
})

// desk is an engine with letters of the partition orders/1, and the flags that lead there.
type desk struct {
	letters deadletter.Store
	flags   []string
	source  func(t *testing.T) []string // what was appended: key, payload, trace and where it is a replay of
}

var desks = map[string]func(t *testing.T) desk{"postgres": onPostgres, "outbox": onOutbox, "nats": onNATS, "kafka": onKafka}

// postgres makes a database with the schema.
func postgres(t *testing.T) (pool *pgxpool.Pool, url string) {
	if err := pgserver(); errors.Is(err, pgtest.ErrNone) && !pgtest.Required() {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	url = must(started.Database(t.Context()))(t)
	pool = must(pgxpool.New(t.Context(), url))(t)
	t.Cleanup(pool.Close)
	noError(t, leasepg.Migrate(t.Context(), pool))
	return pool, url
}

func onPostgres(t *testing.T) desk {
	pool, url := postgres(t)
	must(pool.Exec(t.Context(), "CREATE TABLE orders (id bigserial PRIMARY KEY, partition text, customer text, payload bytea, headers jsonb)"))(t)
	letters := must(leasepg.OpenLetters(t.Context(), leasepg.LettersConfig{Pool: pool}))(t)
	return desk{
		letters: letters,
		flags: []string{
			"-postgres", url,
			"-append", "INSERT INTO orders (partition, customer, payload, headers) VALUES (@partition, convert_from(@key, 'UTF8'), @payload, @headers)",
		},
		source: func(t *testing.T) []string {
			rows := must(pool.Query(t.Context(), `SELECT concat_ws(' ', customer, convert_from(payload, 'UTF8'), headers->0->>'value', headers->-1->>'value') FROM orders ORDER BY id`))(t)
			return must(pgx.CollectRows(rows, pgx.RowTo[string]))(t)
		},
	}
}

// onOutbox is a desk whose records go back into an outbox, and are read from there.
func onOutbox(t *testing.T) desk {
	pool, url := postgres(t)
	outbox := must(leasepg.OpenOutbox(t.Context(), leasepg.OutboxConfig{Pool: pool, Name: "orders", Partitions: 2}))(t)
	letters := must(leasepg.OpenLetters(t.Context(), leasepg.LettersConfig{Pool: pool}))(t)
	ledger := must(lease.NewMemory(lease.Config{}))(t) // for Open to look at; nothing is done in it
	return desk{
		letters: letters, flags: []string{"-postgres", url, "-outbox", "orders"},
		source: func(t *testing.T) (all []string) {
			var records []dispatch.Record
			for _, name := range outbox.Partitions() {
				p := must(outbox.Open(t.Context(), name, ledger))(t)
				from := must(p.Source.Committed(t.Context()))(t)
				for end := must(p.Source.(dispatch.Ended).End(t.Context()))(t); from < end; {
					more := must(p.Source.Fetch(t.Context(), from, 1000))(t)
					records, from = append(records, more...), more[len(more)-1].Offset+1
				}
			}
			slices.SortFunc(records, func(a, b dispatch.Record) int { return cmp.Compare(a.Offset, b.Offset) })
			for _, r := range records {
				all = append(all, fmt.Sprintf("%s %s %s %s", r.Domain, r.Payload, r.Headers[0].Value, r.Headers[1].Value))
			}
			return all
		},
	}
}

func onNATS(t *testing.T) desk {
	s := must(server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(),
		NoLog: true, NoSigs: true}))(t)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the server does not start")
	}
	nc := must(nats.Connect(s.ClientURL()))(t)
	t.Cleanup(nc.Close)
	js := must(jetstream.New(nc))(t)
	stream := must(js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.*"}}))(t)
	letters := must(leasenats.OpenLetters(t.Context(), leasenats.LettersConfig{
		Conn: nc, Bucket: "dead-letters", Stream: "ORDERS", Route: func(r dispatch.Record) string { return "orders." + r.Domain },
	}))(t)
	return desk{
		letters: letters, flags: []string{"-nats", s.ClientURL()},
		source: func(t *testing.T) (all []string) {
			info := must(stream.Info(t.Context()))(t)
			for seq := range info.State.LastSeq {
				m := must(stream.GetMsg(t.Context(), seq+1))(t)
				all = append(all, fmt.Sprint(strings.TrimPrefix(m.Subject, "orders."), " ", string(m.Data), " ", m.Header["Trace"][0], " ",
					m.Header[dlq.ReplayOf][0]))
			}
			return all
		},
	}
}

func onKafka(t *testing.T) desk {
	cluster := must(kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "orders")))(t)
	t.Cleanup(cluster.Close)
	brokers := cluster.ListenAddrs()
	letters := must(leasekafka.OpenLetters(t.Context(), leasekafka.LettersConfig{Brokers: brokers, Topic: "dead-letters"}))(t)
	return desk{
		letters: letters, flags: []string{"-kafka", strings.Join(brokers, ",")},
		source: func(t *testing.T) (all []string) {
			client := must(kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.FetchMaxWait(50*time.Millisecond),
				kgo.RecordPartitioner(kgo.ManualPartitioner()),
				kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"orders": {1: kgo.NewOffset().AtStart()}})))(t)
			defer client.Close()
			end := &kgo.Record{Topic: "orders", Partition: 1, Value: []byte("end")}
			noError(t, client.ProduceSync(t.Context(), end).FirstErr())
			for {
				fetches := client.PollFetches(t.Context())
				noError(t, fetches.Err())
				for _, r := range fetches.Records() {
					if r.Offset == end.Offset {
						return all
					}
					if len(r.Headers) == 2 {
						all = append(all, fmt.Sprintf("%s %s %s %s", r.Key, r.Value, r.Headers[0].Value, r.Headers[1].Value))
					}
				}
			}
		},
	}
}

// answer is what a run of the program left.
type answer struct {
	code      int
	out, errs string
}

// program runs it with the flags of a desk, behind the first word. In this process, where it takes a moment; TestThePage and
// TestKilledWhileReplaying make processes of it.
func (d desk) program(t *testing.T, stdin string, args ...string) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out, errs bytes.Buffer
	code := run(ctx, append(args[:1:1], append(slices.Clip(d.flags), args[1:]...)...), strings.NewReader(stdin), &out, &errs)
	return answer{code, out.String(), errs.String()}
}

// must demands an exit code, and parts of what was said.
func (a answer) must(t *testing.T, code int, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(a.out+a.errs, part) {
			t.Errorf("said %q, and not %q", a.out+a.errs, part)
		}
	}
	if a.code != code {
		t.Errorf("exit code %d, want %d: %s%s", a.code, code, a.out, a.errs)
	}
	for _, r := range a.out + a.errs {
		if !unicode.IsPrint(r) && r != '\n' {
			t.Errorf("%U for a terminal: %q", r, a.out+a.errs)
		}
	}
}

// hostile is what somebody may write into an order to meet who reads it.
const hostile = "\x1b[2J\x1b]0;owned\x07 \u009b31m \u202e evil \r\n \x00 \xff"

func (d desk) put(t *testing.T, offset int64, key, payload, failure string) {
	t.Helper()
	noError(t, d.letters.Put(t.Context(), deadletter.Letter{
		Partition: "orders/1", Attempts: 11, Failure: clip.Text(failure), At: time.Date(2026, 11, 22, 3, 0, int(offset), 0, time.UTC),
		Size: len(payload),
		Record: dispatch.Record{Domain: key, Offset: offset, Payload: []byte(payload),
			Headers: []dispatch.Header{{Key: "Trace", Value: []byte("t1")}}},
	}))
}

func TestEveryEngine(t *testing.T) {
	for engine, open := range desks {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			for offset := int64(8); offset < 12; offset++ { // 8, 10: ann; 9, 11: bob
				d.put(t, offset, []string{"ann", "bob"}[offset%2], fmt.Sprint("order-", offset), "no such product")
			}
			d.put(t, 12, "eve", hostile, hostile)
			d.program(t, "", "list").must(t, 0, "ID", "orders/1@8 ", "orders/1@12 ", "ann", "2026-11-22T03:00:08Z", "11",
				"no such product")
			if a := d.program(t, "", "list", "-key", "bob", "-limit", "1"); strings.Count(a.out, "\n") != 2 ||
				!strings.Contains(a.out, "orders/1@9 ") {
				t.Errorf("the first letter of bob: %q", a.out)
			}
			d.program(t, "", "show", "orders/1@8").must(t, 0, "key        ann", `header     Trace: "t1"`, `payload    "order-8"`,
				"failure    no such product")
			d.program(t, "", "show", "orders/1@12").must(t, 0, `\x1b[2J`, `\u202e`, `\x00 \xff`)
			a := d.program(t, "", "show", "-json", "orders/1@12")
			a.must(t, 0)
			var whole letterJSON
			if err := json.Unmarshal([]byte(a.out), &whole); err != nil || string(whole.PayloadBase64) != hostile ||
				whole.ID != "orders/1@12" || whole.Attempts != 11 {
				t.Errorf("%+v, %v", whole, err)
			}
			for line := range strings.Lines(d.program(t, "", "list", "-json").out) {
				var one letterJSON
				if err := json.Unmarshal([]byte(line), &one); err != nil || one.Partition != "orders/1" || one.Payload != nil {
					t.Errorf("%q: %+v, %v", line, one, err)
				}
			}

			d.program(t, "", "park", "orders/1@9", "-note", "ask bob").must(t, 0, "orders/1@9 parked")
			d.program(t, "", "list").must(t, 0, "parked: ask bob")
			d.program(t, "", "discard", "orders/1@12").must(t, 1, "for good? [y/N]", "nothing was done")
			d.program(t, "y\n", "discard", "orders/1@12").must(t, 0, "orders/1@12 discarded")
			d.program(t, "", "discard", "-yes", "orders/1@12").must(t, 3, "discarded")
			d.program(t, "", "replay", "orders/1@10").must(t, 0, "orders/1@10 replayed")
			d.program(t, "", "replay", "orders/1@10", "-json").must(t, 3, `no letter "orders/1@10": replayed`)
			d.program(t, "", "show", "orders/1@77").must(t, 3, "unknown")
			d.program(t, "no\n", "replay", "-all").must(t, 1, "Replay 2 letters (1 parked ones stay)?")
			d.program(t, "", "replay", "-all", "-yes", "-json").must(t, 0, `{"behind":0,"failed":0,"gone":0,"parked":1,"replayed":2}`)
			d.program(t, "", "unpark", "orders/1@9", "-json").must(t, 0, `{"done":"unparked","id":"orders/1@9"}`)
			d.program(t, "yes\n", "replay", "-all", "-partition", "orders/1", "-key", "bob").must(t, 0, "1 replayed, 0 parked")
			if a := d.program(t, "", "list"); strings.Count(a.out, "\n") != 1 {
				t.Errorf("left: %s", a.out)
			}
			want := "ann order-10 t1 orders/1@10, ann order-8 t1 orders/1@8, bob order-11 t1 orders/1@11, bob order-9 t1 orders/1@9"
			if got := strings.Join(d.source(t), ", "); got != want {
				t.Errorf("the source has %s; want %s", got, want)
			}
		})
	}
}

// The page's commands, one after the other, as somebody pastes them.
func TestThePage(t *testing.T) {
	page := must(os.ReadFile("../../docs/dead-letters.md"))(t)
	var commands []string
	_, story, _ := strings.Cut(string(page), "## From alert to replay")
	for i, part := range strings.Split(story, "```") {
		if i%2 == 1 && strings.HasPrefix(part, "sh\n") {
			commands = append(commands, strings.Split(strings.TrimSpace(part[3:]), "\n")...)
		}
	}
	if len(commands) < 9 {
		t.Fatalf("%d commands in the page: %q", len(commands), commands)
	}
	self := must(filepath.Abs(os.Args[0]))(t)
	bin := t.TempDir()
	noError(t, os.Symlink(self, filepath.Join(bin, "leasectl")))
	for _, engine := range []string{"outbox", "nats", "kafka"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			d := desks[engine](t)
			for offset := int64(8); offset < 13; offset++ {
				d.put(t, offset, []string{"ann", "bob", "ann", "bob", "eve"}[offset-8], fmt.Sprint("order-", offset), "no such product")
			}
			pasted := func(command string) ([]byte, error) {
				cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
				cmd.Env = append(os.Environ(), childEnv+"=1", "PATH="+bin+":"+os.Getenv("PATH"), "ENGINE="+strings.Join(d.flags, " "))
				return cmd.CombinedOutput()
			}
			for _, command := range commands {
				out, err := pasted(command)
				if err != nil {
					t.Errorf("%s: %v: %s", command, err, out)
				}
				if strings.Contains(command, "-all") && !strings.Contains(string(page), string(out)) {
					t.Errorf("%s said %q, which is not in the page", command, out)
				}
			}
			var exit *exec.ExitError
			if out, err := pasted("leasectl show $ENGINE orders/1@77"); !errors.As(err, &exit) || exit.ExitCode() != exitNotDead {
				t.Errorf("of no letter: %v: %s", err, out)
			}
			if got := d.source(t); len(got) != 4 {
				t.Errorf("the source has %q", got)
			}
		})
	}
}

// A process that is killed while it replays leaves each letter where it was, or its record in the source; the next one goes on,
// and keys stay in order.
func TestKilledWhileReplaying(t *testing.T) {
	const letters, keys = 120, 8
	for engine, open := range desks {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			for offset := range int64(letters) {
				d.put(t, offset, fmt.Sprint("key-", offset%keys), fmt.Sprint(offset), "")
			}
			kills := 0
			for pause := 10 * time.Millisecond; ; pause = pause * 3 / 2 {
				cmd := exec.Command(os.Args[0], append([]string{"replay", "-all", "-yes"}, d.flags...)...)
				cmd.Env = append(os.Environ(), childEnv+"=1")
				noError(t, cmd.Start())
				kill := time.AfterFunc(pause, func() { _ = cmd.Process.Kill() }) // an error: it was faster
				err := cmd.Wait()
				kill.Stop()
				if err == nil {
					break
				}
				kills++
			}
			if kills == 0 {
				t.Error("nobody was killed")
			}
			last, seen := map[string]int{}, map[string]bool{}
			doubled := 0
			for _, record := range d.source(t) {
				var key, trace, of string
				var n int
				if _, err := fmt.Sscan(record, &key, &n, &trace, &of); err != nil {
					t.Fatalf("%q: %v", record, err)
				}
				if before, known := last[key]; known && n < before {
					t.Errorf("%s: %d after %d", key, n, before)
				}
				if seen[of] {
					doubled++
				}
				last[key], seen[of] = n, true
			}
			if len(seen) != letters || doubled > 0 && engine != "kafka" || doubled > kills {
				t.Errorf("%d of %d letters are in the source, %d of them twice, after %d kills", len(seen), letters, doubled, kills)
			}
			for l, err := range d.letters.List(t.Context(), deadletter.Filter{}) {
				t.Fatalf("left: %s, %v", l.ID(), err)
			}
			t.Logf("%d kills, %d records twice", kills, doubled)
		})
	}
}

func TestUsage(t *testing.T) {
	here := []string{"-nats", "nats://127.0.0.1:1"}
	for _, c := range []struct {
		code int
		said string
		args []string
	}{
		{0, "Usage: leasectl COMMAND", []string{"-h"}},
		{0, "-postgres URL", []string{"list", "-help"}},
		{2, "which command?", nil},
		{2, `"lsit" is no command`, append(here, "lsit")},
		{2, "one of -postgres, -nats and -kafka", []string{"list"}},
		{2, "one of -postgres, -nats and -kafka", append(here, "list", "-kafka", "x:1")},
		{2, "show needs the ID of one letter", append(here, "show")},
		{2, "replay needs the ID of one letter, or -all", append(here, "replay")},
		{2, "replay takes no ID here", append(here, "replay", "-all", "orders/1@5")},
		{2, "an @ and an offset", append(here, "park", "orders/1")},
		{2, "-all is for replay", append(here, "discard", "-all", "orders/1@5")},
		{2, "-note is for park", append(here, "discard", "-note", "x", "orders/1@5")},
		{2, "-partition, -key and -limit say nothing there", append(here, "show", "-key", "x", "orders/1@5")},
		{2, "Filter.Limit is -1", append(here, "list", "-limit", "-1")},
		{2, "needs one of -outbox", []string{"replay", "-postgres", "postgres://127.0.0.1:1/x", "orders/1@5"}},
		{2, "needs one of -outbox", []string{"replay", "-postgres", "postgres://127.0.0.1:1/x", "-outbox", "x", "-append", "INSERT",
			"orders/1@5"}},
		{2, "-outbox is for -postgres", append(here, "list", "-outbox", "orders")},
		{2, "-bucket is for -nats", []string{"list", "-kafka", "x:1", "-bucket", "letters"}},
		{2, "-topic is for -kafka", []string{"list", "-topic", "letters"}},
		{2, "-stream is for -nats", []string{"adopt", "-kafka", "x:1", "-group", "g", "-stream", "S"}},
		{2, "adopt on Kafka needs -group", []string{"adopt", "-kafka", "x:1"}},
		{2, "-key and -limit say nothing there", append(here, "adopt", "-key", "x")},
		{2, "-stream and -group are for adopt", append(here, "list", "-stream", "S")},
		{2, "adopt takes no ID here", append(here, "adopt", "orders/1@5")},
		{2, "flag provided but not defined: -nope", append(here, "list", "-nope")},
		{1, "no servers available", append(here, "list")},
	} {
		var out, errs bytes.Buffer
		code := run(t.Context(), c.args, strings.NewReader(""), &out, &errs)
		if said := out.String() + errs.String(); code != c.code || !strings.Contains(said, c.said) {
			t.Errorf("%q: code %d, %s; want %d, %s", c.args, code, said, c.code, c.said)
		}
	}
}

// Nobody makes a bucket, a topic or an outbox by a slip of the finger.
func TestMissingPlaces(t *testing.T) {
	pg := onOutbox(t)
	for range 2 {
		pg.program(t, "", "list", "-outbox", "odrers").must(t, 1, `no outbox "odrers"`)
	}
	onNATS(t).program(t, "", "list", "-bucket", "ded-letters").must(t, 1, `no bucket "ded-letters"`)
	d := onKafka(t)
	for range 2 {
		d.program(t, "", "list", "-topic", "ded-letters").must(t, 1, `no topic "ded-letters"`)
	}
}

// A letter whose record is from elsewhere does not get into an outbox, and stays.
func TestLetterOfAnotherOutbox(t *testing.T) {
	d := onOutbox(t)
	noError(t, d.letters.Put(t.Context(), deadletter.Letter{Partition: "bills/1", At: time.Now(),
		Record: dispatch.Record{Domain: "ann", Offset: 3}}))
	d.program(t, "", "replay", "bills/1@3").must(t, 1, `outbox "orders" has no partition "bills/1"`)
	d.program(t, "", "show", "bills/1@3").must(t, 0)
	if got := d.source(t); len(got) > 0 {
		t.Errorf("the source has %q", got)
	}
}

// must is for what cannot fail here: x := must(f())(t).
func must[T any](v T, err error) func(fataler) T {
	return func(t fataler) T {
		t.Helper()
		noError(t, err)
		return v
	}
}

func noError(t fataler, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type fataler interface {
	Helper()
	Fatal(args ...any)
}
