// SPDX-License-Identifier: Apache-2.0

// Alertslive tests the alert rules against a running service. It runs the storefront, or a worker, through phases, each with
// the fault that some rules are for, scrapes it every 5, 15 and 60 s as Prometheus would, and records every series that the
// rules read. The test of this package replays those recordings through the rules.
//
// Usage: go run ./internal/system/alertslive [PHASE...]
package main

import (
	"cmp"
	"context"
	"errors"
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "alertslive:", err)
		os.Exit(1)
	}
}

// run records the named phases in parallel; all of them if none is named.
func run(ctx context.Context, names []string) (err error) {
	chosen := slices.DeleteFunc(phases(), func(p phase) bool { return len(names) > 0 && !slices.Contains(names, p.name) })
	if len(chosen) < len(names) {
		return fmt.Errorf("the phases %q are not all known", names)
	}
	dir, err := os.MkdirTemp("", "alertslive-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	build := exec.CommandContext(ctx, "go", "build", "-o", dir, "./examples/storefront", "./examples/watched")
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the services: %w\n%s", err, text)
	}
	var running sync.WaitGroup
	var turn sync.Mutex // held by a phase that needs most of a processor
	failures := make([]error, len(chosen))
	for i, p := range chosen {
		running.Go(func() {
			if p.busy {
				turn.Lock()
				defer turn.Unlock()
			}
			targets, err := p.run(ctx, filepath.Join(dir, cmp.Or(p.program, "storefront")))
			if failures[i] = err; err == nil {
				comment := fmt.Sprintf("made by: go run ./internal/system/alertslive %s (make alerts-live); %s", p.name,
					time.Now().UTC().Format(time.DateOnly))
				failures[i] = write(recording(p.name), comment, targets)
			}
			fmt.Printf("%s  %s: error %v\n", time.Now().Format(time.TimeOnly), p.name, failures[i])
		})
	}
	running.Wait()
	return errors.Join(failures...)
}
