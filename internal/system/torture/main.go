// Torture runs the repository's state machines, histories, fuzzers and fault injectors for some minutes, and prints a summary. It
// fails unless lost, doubled, disordered, stuck, leaked and violated are all 0.
//
// It runs the existing tests with more iterations and parses their output. Output that cannot be parsed counts as a violation; tests
// that cannot run on this machine are listed.
//
// Usage: go run ./internal/system/torture [-t MINUTES] [-seed N] [-o PAGE]
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

func main() {
	minutes := flag.Float64("t", 3, "approximate run time in minutes; compiling is extra, and started runs finish")
	seed := flag.Uint64("seed", 0, "of all choices that have a seed; 0: a new one, which is printed")
	page := flag.String("o", "", "also write the table to this page")
	flag.Parse()
	for *seed == 0 {
		*seed = rand.Uint64() >> 32
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, time.Duration(*minutes*float64(time.Minute)), *seed, *page)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "torture:", err)
		os.Exit(1)
	}
}

// A job is a test of one package that runs repeatedly, with different seeds, for its share of the time.
type job struct {
	dir, run string
	share    float64
	// args of the test binary; %d is a seed, %s the time limit.
	args  []string
	once  bool // one run takes all of its time, or repetition finds nothing new
	reads []reading
	leaks bool // its process ends with goleak's check
	apart bool // its module is not in go.work
}

// jobs are all jobs; their shares add up to 1.
var jobs = []job{
	machine("./admission", "^TestPropertyA1A2A3A4A5A8A10$", true),
	machine("./lease", "^TestPropertyL1.*_Machine$", false),
	machine("./warden/limiter", "^TestPropertyQ1.*_Machine$", true),
	machine("./warden/bulkhead", "^TestPropertyB1.*_Machine$", true),
	{
		dir: "./lease/dispatch", run: "^TestPropertyD1.*_Machine$", share: 0.04, args: []string{"-rapid.checks=100", "-rapid.seed=%d"},
		reads: []reading{count("state machines: records of the dispatcher, over its lives", `(\d+) records`)}, leaks: true,
	},
	{
		dir: "./lease/leasetest", run: "^TestMemory$|^TestDurable", share: 0.1,
		reads: []reading{count("histories of the ledger, judged by porcupine", `(\d+) histories judged`)},
	},
	fuzz("./admission", "FuzzA1A2A3A4A5A8A10"),
	fuzz("./warden/limiter", "FuzzQ1Q2Q3Q4Q5Q6Q7Q8Q9Q10Q11Q12Q13Q14Q16"),
	fuzz("./warden/bulkhead", "FuzzB1B2B3B5B7B8B11"),
	fuzz("./lease", "FuzzStateDecode"),
	fuzz("./lease/durable", "FuzzRecordDecode"),
	{
		dir: "./lease/leasepg", run: "^TestTorture$", share: 0.1, once: true, args: []string{"-torture.time=%s", "-torture.seed=%d"},
		reads: faults("PostgreSQL"),
	},
	{
		dir: "./lease/leasenats", run: "^TestTorture$", share: 0.06, once: true, args: []string{"-torture.time=%s", "-torture.seed=%d"},
		reads: faults("JetStream"),
	},
	owning("./lease/leasepg", "PostgreSQL", 0.14, false),
	owning("./lease/leasenats", "JetStream", 0.14, false),
	owning("./lease/leasekafka", "Kafka", 0.12, true),
	{
		dir: "./lease/leasenats", run: "^TestLeaderLoss$", share: 0.04,
		reads: []reading{{what: "faults, JetStream: leader of 3 nodes lost", expr: `(a leader is gone)`, each: true}},
	},
}

func machine(dir, run string, leaks bool) job {
	return job{
		dir: dir, run: run, share: 0.04, args: []string{"-rapid.checks=1000", "-rapid.seed=%d"}, leaks: leaks,
		reads: []reading{count("state machines: steps in "+strings.TrimPrefix(dir, "./"), `(\d+) steps`)},
	}
}

func owning(dir, engine string, share float64, apart bool) job {
	return job{
		dir: dir, run: "^TestTortureOwners$", share: share, once: true, args: []string{"-torture.time=%s", "-torture.seed=%d"},
		reads: owners(engine), leaks: apart, apart: apart,
	}
}

func fuzz(dir, name string) job {
	return job{
		dir: dir, run: "^$", share: 0.02, once: true, args: []string{"-test.fuzz=^" + name + "$", "-test.fuzztime=%s"},
		reads: []reading{{what: "fuzz executions of " + name, expr: `execs: (\d+)`, last: true}},
	}
}

// run runs all jobs and prints the table.
func run(ctx context.Context, most time.Duration, seed uint64, page string) error {
	if _, err := os.Stat("go.work"); err != nil {
		return errors.New("run it from the repository's root")
	}
	dir, err := os.MkdirTemp("", "torture")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	fmt.Printf("seed %d (go run ./internal/system/torture -seed %d)\n", seed, seed)
	t := &table{}
	for i := range jobs {
		j := &jobs[i]
		binary := filepath.Join(dir, fmt.Sprintf("%d.test", i))
		build := exec.CommandContext(ctx, "go", "test", "-c", "-o", binary, ".")
		build.Dir = j.dir
		if j.apart {
			build.Env = append(os.Environ(), "GOWORK=off")
		}
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", j.dir, err, out)
		}
		j.play(ctx, t, binary, dir, time.Duration(j.share*float64(most)), seed)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	var b bytes.Buffer
	failed := t.print(io.MultiWriter(os.Stdout, &b))
	if page == "" {
		return failed
	}
	text := fmt.Sprintf(intro, runtime.Version(), runtime.NumCPU(), most, seed) + "```text\n" + b.String() + "```\n"
	return errors.Join(failed, os.WriteFile(page, []byte(text), 0o644)) //nolint:gosec // a page of the repository
}

const intro = `# Torture

What was tried, and that nothing was lost. ` + "`make torture`" + ` runs the state machines, the histories, the fuzzers and the fault
injectors for some minutes (` + "`TORTURE='-t 30'`" + `: for thirty) and fails unless lost, doubled, disordered, stuck, leaked and violated are all 0. A
number that cannot be read from a test's output is a violation, not a 0.

A short slice of it is part of ` + "`make test`" + `: the same tests, with 100 histories of each state machine, the fuzzers'
seeds, and one round of each kind of fault. What a fault is, and what is judged after it, says the package comment of
lease/leasetest/faults, and that of Torture in lease/leasetest/ownertest for members that share partitions out; all that has a seed is repeated by
the seed that is printed. Thirty minutes on two quiet processors are more than a thousand rounds of members that join, leave, are killed and frozen
over the three engines. Kafka is a fake one in the test's process unless KAFKA_BROKERS names others.

This run: %s, %d processors, %s besides compiling, seed %d.

`

// play runs one job until its time is over, at least once.
func (j *job) play(ctx context.Context, t *table, binary, dir string, most time.Duration, seed uint64) {
	began := time.Now()
	for ; ; seed++ {
		args := []string{"-test.v", "-test.count=1", "-test.run=" + j.run, "-test.timeout=30m", "-test.fuzzcachedir=" + dir}
		for _, a := range j.args {
			a = strings.ReplaceAll(a, "%d", fmt.Sprint(seed))
			args = append(args, strings.ReplaceAll(a, "%s", max(most, time.Second).Round(time.Second).String()))
		}
		cmd := exec.CommandContext(ctx, binary, args...)
		cmd.Dir = j.dir
		out, err := cmd.CombinedOutput()
		if ctx.Err() != nil {
			return
		}
		t.take(j, string(out), err, seed)
		if j.once || err != nil || time.Since(began) >= most {
			return
		}
	}
}
