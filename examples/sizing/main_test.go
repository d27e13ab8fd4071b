package main

// docs/production.md has the numbers that this program computes, and a bulkhead accepts them.

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/control"
)

func Example() {
	main()
	// Output:
	// | checkout | 200 | 0.1 | 20 | 30 | 0 | 45 | 0.5 | 150 |
	// | products | 400 | 0.05 | 20 | 30 | 15 | 40 | 0.2 | 120 |
	// | analytics | 2 | 2 | 4 | 4 | 4 | 10 | 2 | 4 |
	// | admin | 5 | 0.2 | 1 | 3 | 0 | 5 | 1 | 15 |
	// | 1 | 3 | 1.10 |
	// | 2 | 9 | 1.21 |
	// | 3 | 27 | 1.33 |
}

func TestPageHasTheseNumbers(t *testing.T) {
	page, err := os.ReadFile("../../docs/production.md")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	set, err := bulkhead.New(config(&out))
	if err != nil {
		t.Fatal(err)
	}
	retries(&out)
	plan := set.Plan()
	guaranteed, most := 0, 0
	for _, share := range plan.Compartments {
		guaranteed += share.Guaranteed
		most += share.Max
	}
	fmt.Fprintf(&out, "| all | | | | %d | | %d | | |\n", guaranteed, most)
	for row := range strings.Lines(out.String()) {
		if !strings.Contains(string(page), "\n"+row) {
			t.Errorf("docs/production.md has no row %s", row)
		}
	}
	for _, sentence := range []string{
		fmt.Sprintf("`Total` is %d", plan.Total),
		fmt.Sprintf("%d slots are guaranteed to no part", plan.Total-guaranteed),
	} {
		if !strings.Contains(string(page), sentence) {
			t.Errorf("docs/production.md does not say: %s", sentence)
		}
	}
}

// TestLittlesLaw: the slots of each part serve its rate, and the last call in a full queue waits no longer than MaxWait.
func TestLittlesLaw(t *testing.T) {
	cfg := config(io.Discard)
	for i, p := range shop() {
		c := cfg.Compartments[i]
		if served := float64(c.Guaranteed) / p.seconds; served < p.rate {
			t.Errorf("%s: the slots serve %g calls/s of %g", p.name, served, p.rate)
		}
		if wait := float64(c.MaxQueue) * p.seconds / float64(c.Guaranteed); wait > c.MaxWait.Seconds()+p.seconds/float64(c.Guaranteed) {
			t.Errorf("%s: the last call in a full queue waits %g s; MaxWait is %v", p.name, wait, c.MaxWait)
		}
	}
}

// TestObserveFirst: compartments without guarantees act as one shared pool, which can be divided while it is in use.
func TestObserveFirst(t *testing.T) {
	cfg := config(io.Discard)
	planned := make([]bulkhead.Share, len(cfg.Compartments))
	for i := range cfg.Compartments {
		c := &cfg.Compartments[i]
		planned[i] = bulkhead.Share{Name: c.Name, Guaranteed: c.Guaranteed, Lendable: c.Lendable, Max: c.Max}
		c.Guaranteed, c.Lendable, c.Max, c.MaxQueue = 0, 0, cfg.Total, 1000
	}
	set, err := bulkhead.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var held []bulkhead.Permit
	for range cfg.Total {
		_, permit, err := set.Compartment("analytics").Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, permit)
	}
	plan := set.Plan()
	plan.Compartments = planned
	if _, err := set.Resize(plan); err != nil {
		t.Fatal(err)
	}
	for _, p := range held {
		p.Release(nil)
	}
	if c := set.Compartment("checkout").Snapshot(); c.EffectiveGuaranteed != planned[0].Guaranteed {
		t.Errorf("%+v", c)
	}
}

// TestObserveWarden: with a high Min no task queues, and only queued tasks are ever shed.
func TestObserveWarden(t *testing.T) {
	w, err := warden.New(warden.Config{Control: control.Config{Min: 10000}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = w.Run(ctx) })
	defer running.Wait()
	defer cancel()
	var held []warden.Permit
	for range 5000 {
		_, p, err := w.Acquire(t.Context(), warden.Task{Priority: warden.Background})
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, p)
	}
	for _, p := range held {
		p.Release()
	}
}
