// Benchmark rows of whole consumers: throughput of several processes with order per key, beside peers on the same engine.

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stopbank/stopbank/lease/dispatch"
)

const (
	// teamRecords is the number of records of a run, of teamKeys keys in turn.
	teamRecords = 10_000
	teamKeys    = 1_000
	// teamParts is the number of partitions that the processes share.
	teamParts = 4
	// teamRounds is small: a run over so many records is an average by itself.
	teamRounds = 3

	// memberVariable makes this program a member of a team. Its value is a job.
	memberVariable = "STOPBANK_BENCH_MEMBER"
)

// job configures a member.
type job struct {
	Kind    string // the member's program
	Server  string // the engine's address
	Run     string // unique name of the run
	Workers int    // handlers at a time
	Parts   int    // partitions that this member waits for before it is ready
	Waits   bool   // handlers sleep for 1 to 5 ms
}

func members() map[string]func(context.Context, job, *tally) error {
	return map[string]func(context.Context, job, *tally) error{
		"postgres": postgresMember, "river": riverMember, "jetstream": jetstreamMember, "pull": pullMember,
	}
}

// tally is a member's progress.
type tally struct {
	begun, done atomic.Int64
	held        atomic.Int64  // partitions
	ready       chan struct{} // closed by the member when it has all its partitions
	begin       chan struct{} // closed when the member may begin
}

// begins reports that the member is ready and waits until it may begin; false: the member is to end.
func (t *tally) begins(ctx context.Context) bool {
	close(t.ready)
	select {
	case <-t.begin:
		return true
	case <-ctx.Done():
		return false
	}
}

// handle is every member's handler: it returns immediately, or sleeps for 1 to 5 ms, depending on the record.
func (t *tally) handle(j job, record int64) {
	if t.begun.Load() == 0 {
		t.begun.Store(1)
	}
	if j.Waits {
		wait(record)
	}
}

// wait sleeps for 1 to 5 ms, depending on the record.
func wait(record int64) {
	time.Sleep(time.Millisecond + time.Duration(record*7919%4000)*time.Microsecond)
}

// member is the life of a member process: it reports ready, begins on request, reports its progress when it changes, and ends with
// its standard input.
func member(spec string) {
	var j job
	if err := json.Unmarshal([]byte(spec), &j); err != nil {
		exit("%v", err)
	}
	t := &tally{ready: make(chan struct{}), begin: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- members()[j.Kind](ctx, j, t) }()
	go func() {
		<-t.ready
		fmt.Println("ready")
		for last := int64(-1); ; time.Sleep(time.Millisecond) {
			if done := t.done.Load(); done > last && t.begun.Load() > 0 {
				fmt.Println(done)
				last = done
			}
		}
	}()
	go func() {
		in := bufio.NewReader(os.Stdin)
		if _, err := in.ReadString('\n'); err == nil {
			close(t.begin)
			_, _ = io.Copy(io.Discard, in)
		}
		cancel()
	}()
	if err := <-ended; err != nil && ctx.Err() == nil {
		exit("%s: %v", j.Kind, err)
	}
	os.Exit(0)
}

// team processes the records by several processes. It returns nanoseconds per record, from the first handler to the last commit.
func team(j job, processes int) float64 {
	type line struct {
		member int
		text   string
	}
	lines := make(chan line, 1024)
	var ins []io.Closer
	var group sync.WaitGroup
	var begin []func()
	for i := range processes {
		j := j
		j.Parts = teamParts / processes
		spec, err := json.Marshal(j)
		if err != nil {
			exit("%v", err)
		}
		cmd := exec.Command(os.Args[0])
		cmd.Env, cmd.Stderr = append(os.Environ(), memberVariable+"="+string(spec)), os.Stderr
		in, err1 := cmd.StdinPipe()
		out, err2 := cmd.StdoutPipe()
		if err := errors.Join(err1, err2, cmd.Start()); err != nil {
			exit("%v", err)
		}
		ins = append(ins, in)
		begin = append(begin, func() { _, _ = io.WriteString(in, "begin\n") })
		group.Go(func() {
			said := bufio.NewScanner(out)
			for said.Scan() {
				lines <- line{i, said.Text()}
			}
			if err := cmd.Wait(); err != nil {
				exit("a member of %s: %v", j.Kind, err)
			}
		})
	}
	patience := time.After(2 * time.Minute)
	ready, done := 0, make([]int64, processes)
	var began time.Time
	var took time.Duration
	for took == 0 {
		select {
		case l := <-lines:
			if l.text == "ready" {
				if ready++; ready == processes {
					for _, tell := range begin {
						tell()
					}
				}
				continue
			}
			if began.IsZero() {
				began = time.Now()
			}
			n, err := strconv.ParseInt(l.text, 10, 64)
			if err != nil {
				exit("%v", err)
			}
			done[l.member] = n
			total := int64(0)
			for _, n := range done {
				total += n
			}
			switch {
			case total == teamRecords:
				took = time.Since(began)
			case total > teamRecords:
				exit("%s: %d of %d records done", j.Kind, total, teamRecords)
			}
		case <-patience:
			exit("%s: %v of %d records done in two minutes", j.Kind, done, teamRecords)
		}
	}
	for _, in := range ins {
		_ = in.Close()
	}
	go func() {
		group.Wait()
		close(lines)
	}()
	for range lines { // drain the rest
		continue
	}
	return float64(took) / teamRecords
}

// contender is one way to process records: load creates them and returns the members' job.
type contender struct {
	name string
	load func(waits bool) job
	most float64 // target of ours / this; 0: none
}

// teamSizes are the rows of an engine.
func teamSizes() []struct {
	processes int
	waits     bool
} {
	return []struct {
		processes int
		waits     bool
	}{{1, false}, {2, false}, {4, false}, {1, true}, {4, true}}
}

// teamRow compares contenders, ours first.
func teamRow(layer, title string, processes int, waits bool, all ...contender) row {
	handler := "no-op handler"
	if waits {
		handler = "handler of 1 to 5 ms"
	}
	plural := "es"
	if processes == 1 {
		plural = ""
	}
	r := row{layer: layer, title: fmt.Sprintf("%s: %d records of %d keys, %s, workers in %d process%s", title, teamRecords, teamKeys, handler, processes, plural)}
	wholes[r.title] = func() []cell {
		times := make([][]float64, len(all))
		for round := range teamRounds {
			for k := range all {
				i := (k + round) % len(all)
				ns := team(all[i].load(waits), processes)
				times[i] = append(times[i], ns)
				fmt.Fprintf(os.Stderr, "\r\033[Kround %d, %s: %.0f records/s\n", round+1, all[i].name, 1e9/ns)
			}
		}
		var cells []cell
		for i, c := range all {
			ratios := make([]float64, teamRounds)
			for k := range ratios {
				ratios[k] = times[0][k] / times[i][k]
			}
			slices.Sort(ratios)
			cells = append(cells, cell{name: c.name, ns: summary(times[i]).Center, ratio: ratios[teamRounds/2], low: ratios[0], high: ratios[teamRounds-1], most: c.most})
		}
		return cells
	}
	return r
}

func teamKey(record int) string { return "key-" + strconv.Itoa(record%teamKeys) }

// teamPart is the partition of a key; all partitions have the same number of keys.
func teamPart(record int) int { return record % teamKeys % teamParts }

// consume processes what an Ownership assigns to a member.
func consume(ctx context.Context, j job, t *tally, group dispatch.Ownership) error {
	consumer, err := dispatch.NewConsumer(gated{group, j, t}, dispatch.Config{
		MaxInFlight: j.Workers, MaxBuffered: 8 * 1024, DeadLetter: dispatch.Discard,
		Handler: func(_ context.Context, job dispatch.Job) error {
			t.handle(j, job.Record.Offset)
			return nil
		},
		Observer: t,
	})
	if err != nil {
		return err
	}
	return consumer.Run(ctx)
}

// Observe implements dispatch.Observer.
func (t *tally) Observe(e dispatch.Event) {
	switch e.Kind {
	case dispatch.Succeeded:
		t.done.Add(1)
	case dispatch.LedgerError, dispatch.Fenced, dispatch.Foreign, dispatch.GaveUp, dispatch.FetchFailed, dispatch.TakeFailed:
		fmt.Fprintf(os.Stderr, "bench: %v of %s: %v\n", e.Kind, e.Domain, e.Err)
	}
}

// gated is a source that cannot be read before the start signal.
type gated struct {
	dispatch.Ownership
	j job
	t *tally
}

func (g gated) Hold(ctx context.Context, work func(context.Context, dispatch.Partition)) error {
	return g.Ownership.Hold(ctx, func(ctx context.Context, p dispatch.Partition) {
		p.Source = &gate{p.Source, g, false}
		work(ctx, p)
		g.t.held.Add(-1)
	})
}

type gate struct {
	dispatch.Source
	gated
	waits bool
}

func (g *gate) Fetch(ctx context.Context, from int64, limit int) ([]dispatch.Record, error) {
	if !g.waits {
		g.waits = true
		if g.t.held.Add(1) == int64(g.j.Parts) {
			select {
			case <-g.t.ready:
			default:
				close(g.t.ready)
			}
		}
	}
	select {
	case <-g.t.begin:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return g.Source.Fetch(ctx, from, limit)
}

func runName() string { return strings.ReplaceAll(time.Now().Format("150405.000000"), ".", "_") }
