// Alertslive tests the alert rules against a running service. It runs the storefront through phases, each with the fault that some
// rules are for, lets a local Prometheus scrape it every 5, 15 and 60 s, and records every series that the rules read. The test of
// this package replays those recordings through the rules.
//
// Usage: go run ./internal/system/alertslive [-o DIRECTORY] [PHASE...]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

func main() {
	out := flag.String("o", "docs/prometheus/recorded", "the `directory` of the recordings")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *out, flag.Args())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "alertslive:", err)
		os.Exit(1)
	}
}

// run records the named phases in parallel; all of them if none is named.
func run(ctx context.Context, out string, names []string) (err error) {
	var chosen []phase
	for _, p := range phases() {
		if len(names) == 0 || slices.Contains(names, p.name) {
			chosen = append(chosen, p)
		}
	}
	if len(chosen) < max(1, len(names)) {
		return fmt.Errorf("the phases %q are not all known", names)
	}
	dir, err := os.MkdirTemp("", "alertslive-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	binary := filepath.Join(dir, "storefront")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, "./examples/storefront").CombinedOutput(); err != nil {
		return fmt.Errorf("building the storefront: %w\n%s", err, out)
	}
	prom, err := startPrometheus(ctx, dir)
	if err != nil {
		return err
	}
	defer prom.stop()
	var running sync.WaitGroup
	var turn sync.Mutex
	failures := make([]error, len(chosen))
	for i, p := range chosen {
		running.Go(func() {
			if p.busy {
				turn.Lock()
				defer turn.Unlock()
			}
			began := time.Now()
			if failures[i] = p.run(ctx, binary, dir); failures[i] == nil {
				failures[i] = prom.record(ctx, p.name, began, time.Now(), out)
			}
			fmt.Printf("%s  %s: %v, error %v\n", time.Now().Format(time.TimeOnly), p.name, time.Since(began).Round(time.Second), failures[i])
		})
	}
	running.Wait()
	return errors.Join(failures...)
}
