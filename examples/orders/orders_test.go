package main

// The whole program on a small scale, with real processes and SIGKILL; and an audit that can fail.

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stopbank/stopbank/admission"
	"github.com/stopbank/stopbank/internal/pgtest"
	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
)

// TestMain runs this binary as a replica of the parent or as a process of TestProcessesKilled.
func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		main()
		return
	}
	if path := os.Getenv(killedVariable); path != "" {
		if err := killedChild(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	os.Exit(m.Run())
}

// All engines run; PostgreSQL is skipped if it is not installed, unless STOPBANK_POSTGRES=required.
func TestReplicasKilledAndFrozen(t *testing.T) {
	for engine := range engines {
		t.Run(engine, func(t *testing.T) {
			o := options{engine: engine, orders: 1200, customers: 120, workers: 8, replicas: 3, partitions: 8, session: time.Second,
				dir: t.TempDir(), run: "test"}
			err := parent(o)
			if errors.Is(err, pgtest.ErrNone) && !pgtest.Required() {
				t.Skip(err)
			} else if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A replica that exits before it has a partition is an error.
func TestReplicaDiesAtStart(t *testing.T) {
	f := &fleet{o: options{engine: "nats", replicas: 3, partitions: 4, workers: 1, orders: 1, customers: 1, session: time.Second,
		servers: "nats://127.0.0.1:1"}}
	defer f.end()
	if err := f.start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var exit *exec.ExitError
	if err := f.awaitPartitions(ctx); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("awaitPartitions: %v", err)
	}
}

func TestOptionsThatCannotWork(t *testing.T) {
	for want, o := range map[string]options{
		"-replicas is 2; allowed: 3 or more":                       {engine: "nats", replicas: 2},
		`-engine is "redis"; allowed: ["kafka" "nats" "postgres"]`: {engine: "redis", replicas: 3},
		"-partitions is 3; allowed: more than -replicas, 3":        {engine: "nats", replicas: 3, partitions: 3},
	} {
		if err := parent(o); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestAuditFinds(t *testing.T) {
	o := options{orders: 6, customers: 2} // customer 0: 1, 3, 5; customer 1: 2, 4, 6
	good := func() map[string]account {
		accounts := map[string]account{}
		for c := range 2 {
			var a account
			for i := range 3 {
				a.Done = append(a.Done, effect{Order: int64(2*i + c + 1), Token: lease.Token(10 * (i + 1)), Replica: i, Back: i == frozen})
			}
			accounts[customer(c)] = a
		}
		return accounts
	}
	if n, back, findings := examine(o, good()); n != 6 || back != 2 || len(findings) != 0 {
		t.Errorf("%d orders, %d after a return, %v", n, back, findings)
	}
	accounts := good()
	for _, a := range accounts {
		a.Done[frozen].Back = false
	}
	if _, back, findings := examine(o, accounts); freezes && (back != 0 || len(findings) != 1) {
		t.Errorf("%d orders after a return, %v", back, findings)
	}
	for want, spoil := range map[string]func(done []effect) []effect{
		"order 5 is missing":        func(done []effect) []effect { return done[:2] },
		"order 5 is unexpected":     func(done []effect) []effect { return append(done, done[2]) },
		"has order 3 instead":       func(done []effect) []effect { done[0], done[1] = done[1], done[0]; return done },
		"has order 1 instead":       func(done []effect) []effect { done[1].Order = 1; return done },
		"under token 10 after 20":   func(done []effect) []effect { done[2].Token = 10; return done },
		"under token 20 after 20":   func(done []effect) []effect { done[2].Token = 20; return done },
		"customer-0000: order 1 is": func([]effect) []effect { return nil },
	} {
		accounts := good()
		a := accounts[customer(0)]
		a.Done = spoil(slices.Clone(a.Done))
		accounts[customer(0)] = a
		_, _, findings := examine(o, accounts)
		if !strings.Contains(strings.Join(findings, "\n"), want) {
			t.Errorf("want %q, found %v", want, findings)
		}
	}
}

// A gate and a limiter limit the concurrency of a dispatcher.
func TestAdapters(t *testing.T) {
	gate, err := admission.New(admission.Config{Limit: 2})
	if err != nil {
		t.Fatal(err)
	}
	two, err := limiter.New(limiter.Config{MaxQueue: 10, Initial: decision.ControlDecision{Seq: 1, TargetConcurrency: 2}})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]func(context.Context, func() error) error{"gate": gated(gate),
		"limiter": limited(two, limiter.Task{})} {
		ledger, err := lease.NewMemory(lease.Config{MaxRetries: lease.DefaultRetries})
		if err != nil {
			t.Fatal(err)
		}
		log := new(dispatch.Log)
		for i := range 60 {
			log.Append(fmt.Sprint(i%12), nil)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		var inside, most, done atomic.Int64
		d, err := dispatch.New(dispatch.Partition{Ledger: ledger, Source: log}, dispatch.Config{
			Concurrency: c, DeadLetter: dispatch.Discard,
			Handler: func(context.Context, dispatch.Job) error {
				now := inside.Add(1)
				defer inside.Add(-1)
				for was := most.Load(); now > was && !most.CompareAndSwap(was, now); was = most.Load() {
				}
				if done.Add(1) == 60 {
					cancel()
				}
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Run(ctx); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
		if n := d.Stats().Succeeded; n != 60 || most.Load() > 2 {
			t.Errorf("%s: %d succeeded, %d at once", name, n, most.Load())
		}
	}
}
