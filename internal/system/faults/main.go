// SPDX-License-Identifier: Apache-2.0

// Faults plays the blind fault game: does an outage name itself? Each game runs one or two pods of the storefront and two workers of the
// orders, with a Prometheus that loads docs/prometheus as it is. After some minutes of health, at a random moment, one pod, one
// worker, the clients or an operator goes wrong in one of the ways of the catalogue. An operator who knows nothing of it looks every
// ten seconds: the alerts that fire, pages before tickets and the older first, else First steps, lead through docs/runbook.md. The
// operator asks Prometheus each query as it is written, takes the branch of its answer, follows links, and says the words in
// bold to which that leads, with the labels of the query's first series. What two looks in a row say is the answer. It is right
// if the name is one of the fault's, and the labels are those of what is ill. What fires or is named in health is a false alarm.
//
// Usage: go run ./internal/system/faults [-short] [-health 60m] [-o FILE] [FAULT...]
//
// Results are kept in bin/faults.json. Without a name those faults of the catalogue are played that have none: after an interrupt the
// same command goes on. The exit code is 1 if a game could not be played, or with -short if a fault was missed.
//
// To add a fault, add a row to catalogue: -fault of a pod or a worker (ill, task), whose hooks are in examples/storefront/fault.go
// and examples/orders/fault.go, or a function of hooks.go that does what a client, an operator or a neighbour does (hook). named has
// the words of the runbook that are right, and want the labels. A row without a fault (calm) must page nobody. The test of this
// package checks that each name stands in the runbook.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/stopbank/stopbank/internal/system/page"
)

// games is how many are played at a time.
const games = 4

// Settings are those of all games.
type settings struct {
	warm     time.Duration // health before the fault, to which up to a third is added
	called   time.Duration // after the injection, until which a game that has its name waits for an alert
	kept     string        // the file of the results; "": none is kept
	runbook  map[string]*section
	binaries string // directory of the programs, and of the games' own directories
	commit   string
}

func main() {
	short := flag.Bool("short", false, "a minute of health; hung, freeze and dry-run if none is named; keep no result, and fail if one is missed")
	health := flag.Duration("health", 0, "play health alone for this `time`, with a rolling restart in the middle")
	out := flag.String("o", "", "`page` for a table of the results; \"\": none")
	flag.Parse()
	s, names := settings{warm: 5 * time.Minute, called: 6 * time.Minute, kept: "bin/faults.json"}, flag.Args()
	if *short {
		s, *out = settings{warm: time.Minute}, ""
		if len(names) == 0 {
			names = []string{"hung", "freeze", "dry-run"}
		}
	}
	chosen, err := choose(names)
	if *health > 0 {
		chosen = []fault{healthFor(*health)}
	}
	results := map[string]result{}
	if err == nil {
		results, err = s.run(chosen, len(names) > 0 || *health > 0)
	}
	if *out != "" && err == nil {
		err = page.Write(*out, report(results))
	}
	missed := show(os.Stdout, chosen, results)
	if err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
	}
	if err != nil || *short && missed > 0 {
		os.Exit(1)
	}
}

// choose returns the named faults; without a name the catalogue.
func choose(names []string) ([]fault, error) {
	if len(names) == 0 {
		return catalogue(), nil
	}
	all := append(catalogue(), heldout()...)
	chosen := slices.DeleteFunc(all, func(f fault) bool { return !slices.Contains(names, f.name) })
	if len(chosen) < len(names) {
		return nil, fmt.Errorf("the faults %q are not all known", names)
	}
	return chosen, nil
}

// run plays the games, again also those that have a result, and returns all results of the file. Those that must be alone are last.
func (s settings) run(chosen []fault, again bool) (results map[string]result, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if results, err = read(s.kept); err != nil {
		return nil, err
	}
	text, err := os.ReadFile("docs/runbook.md")
	if err != nil {
		return nil, err
	}
	if s.runbook, err = parse(string(text)); err != nil {
		return nil, err
	}
	if s.binaries, err = os.MkdirTemp("", "faults-"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(s.binaries)) }()
	build := exec.CommandContext(ctx, "go", "build", "-o", s.binaries, "./examples/storefront", "./examples/orders")
	if text, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the services: %w\n%s", err, text)
	}
	head, err := exec.CommandContext(ctx, "git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return nil, err
	}
	s.commit = strings.TrimSpace(string(head))
	next := pending(chosen, results, again)
	rand.Shuffle(len(next), func(i, j int) { next[i], next[j] = next[j], next[i] })
	fmt.Printf("%d games, %d at a time\n", len(next), games)
	var mu sync.Mutex // guards results and failed
	var failed error
	play := func(f fault) {
		if ctx.Err() != nil {
			return
		}
		r, err := s.play(ctx, f)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			results[f.name] = r
			err = write(s.kept, results)
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", f.name, err))
			fmt.Println(f.name, "could not be played:", err)
		}
	}
	var together sync.WaitGroup
	free := make(chan struct{}, games)
	for _, f := range next {
		if !f.alone {
			together.Go(func() {
				free <- struct{}{}
				play(f)
				<-free
			})
		}
	}
	together.Wait()
	for _, f := range next {
		if f.alone {
			play(f)
		}
	}
	return results, errors.Join(failed, ctx.Err())
}

// pending are the games that have to be played: those without a result or, again, all.
func pending(chosen []fault, results map[string]result, again bool) []fault {
	return slices.DeleteFunc(slices.Clone(chosen), func(f fault) bool {
		_, known := results[f.name]
		return known && !again
	})
}

// read reads the results of earlier games.
func read(file string) (map[string]result, error) {
	results := map[string]result{}
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return results, nil
	} else if err != nil {
		return nil, err
	}
	err = json.Unmarshal(b, &results)
	return results, err
}

func write(file string, results map[string]result) error {
	if file == "" {
		return nil
	}
	b, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(file+".next", b, 0o600), os.Rename(file+".next", file))
}
