package main

// The whole program on a small scale, with real processes and SIGKILL; and an audit that can fail.

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stopbank/stopbank/admission"
	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
)

// TestMain runs this binary as a replica of the parent.
func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		main()
		return
	}
	flag.Parse()
	os.Exit(m.Run())
}

func TestReplicasKilledAndFrozen(t *testing.T) {
	o := options{orders: 1200, customers: 120, workers: 8, replicas: 3, partitions: 8, session: time.Second, dir: t.TempDir(), run: "test"}
	if err := parent(o); err != nil {
		t.Fatal(err)
	}
}

// A replica that exits before it has a partition is an error.
func TestReplicaDiesAtStart(t *testing.T) {
	f := &fleet{o: options{replicas: 3, partitions: 4, workers: 1, orders: 1, customers: 1, session: time.Second,
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
		"-replicas is 2; allowed: 3 or more":                {replicas: 2},
		"-partitions is 3; allowed: more than -replicas, 3": {replicas: 3, partitions: 3},
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

// A gate and a limiter decide whether a handler may run: when they are closed, it is not called.
func TestAdapters(t *testing.T) {
	gate, err := admission.New(admission.Config{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	one, err := limiter.New(limiter.Config{Initial: decision.ControlDecision{Seq: 1, TargetConcurrency: 1}})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		do    func(context.Context, func() error) error
		close func()
	}{"gate": {gated(gate), gate.Close}, "limiter": {limited(one, limiter.Task{}), one.Close}} {
		calls, failed := 0, errors.New("of the handler")
		run := func() error { calls++; return failed }
		if err := c.do(t.Context(), run); !errors.Is(err, failed) || calls != 1 {
			t.Errorf("%s: %v after %d calls", name, err, calls)
		}
		c.close()
		if err := c.do(t.Context(), run); err == nil || errors.Is(err, failed) || calls != 1 {
			t.Errorf("%s, closed: %v after %d calls", name, err, calls)
		}
	}
}
