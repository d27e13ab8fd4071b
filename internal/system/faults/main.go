// SPDX-License-Identifier: Apache-2.0

// Faults plays the blind fault game: does an outage name itself? Each game runs one or two pods of the storefront and two workers of the
// orders, with a Prometheus that loads docs/prometheus as it is. After some minutes of health, at a random moment, one pod, one
// worker, the clients or an operator goes wrong in one of the ways of the catalogue. An operator who knows nothing of it looks every
// ten seconds: the alerts that fire, pages before tickets and the older first, else First steps, lead through docs/runbook.md. The
// operator asks Prometheus each query as it is written, takes the branch of its answer, follows links, and says the words in
// bold to which that leads, with the labels of the query's first series. What two looks in a row say is the answer. It is right
// if the name is one of the fault's, and the labels are those of what is ill. What fires or is named in health is a false alarm.
//
// Usage: go run ./internal/system/faults [-games N] [-short] [-health 60m] [-o FILE] [FAULT...]
//
// Results are kept in bin/faults.json, and a game that is in it is not played again: after an interrupt the same command goes on,
// and -again plays the named games again. The exit code is 1 if a game could not be played, or with -short if a fault was missed.
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
)

// Settings are those of all games.
type settings struct {
	warm     time.Duration // health before the fault, to which up to a third is added
	called   time.Duration // after the injection, until which a game that has its name waits for an alert
	runbook  map[string]*section
	binaries string // directory of the programs, and of the games' own directories
	commit   string
}

func main() {
	short := flag.Bool("short", false, "a minute of health; hung, freeze and dry-run if none is named; play again, keep no result, and fail if one is missed")
	warm := flag.Duration("warm", 5*time.Minute, "`time` of health before a fault, to which a random part, up to a third, is added")
	games := flag.Int("games", 4, "`number` of games at a time")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the first game; the others count from it")
	again := flag.Bool("again", false, "play games that have a result again")
	health := flag.Duration("health", 0, "play health alone for this `time`, with a rolling restart in the middle")
	file := flag.String("results", "bin/faults.json", "`file` of the results; \"\": none is kept")
	page := flag.String("o", "", "`file` for a page with the results; \"\": none")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	s := settings{warm: *warm, called: 6 * time.Minute}
	all := catalogue()
	if flag.NArg() > 0 {
		all = append(all, heldout()...)
	}
	chosen, err := choose(all, flag.Args())
	switch {
	case *health > 0:
		chosen = []fault{healthFor(*health)}
	case *short:
		s.warm, s.called, *file, *page = time.Minute, 0, "", ""
		if flag.NArg() == 0 {
			chosen, err = choose(catalogue(), []string{"hung", "freeze", "dry-run"})
		}
	}
	results := map[string]result{}
	if err == nil {
		results, err = s.run(ctx, chosen, *games, *seed, *file, *again)
	}
	stop()
	if *page != "" && err == nil {
		err = os.WriteFile(*page, []byte(report(results)), 0o600)
	}
	missed := show(os.Stdout, chosen, results)
	if err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
	}
	if err != nil || *short && missed > 0 {
		os.Exit(1)
	}
}

// choose returns the named faults, or all.
func choose(all []fault, names []string) ([]fault, error) {
	chosen := slices.DeleteFunc(slices.Clone(all), func(f fault) bool { return len(names) > 0 && !slices.Contains(names, f.name) })
	if len(chosen) < len(names) {
		return nil, fmt.Errorf("the faults %q are not all known", names)
	}
	return chosen, nil
}

// run plays the games that have no result yet, some at a time, and those that must be alone at the end. It returns all results of the
// file.
func (s settings) run(ctx context.Context, chosen []fault, games int, seed uint64, file string, again bool) (
	results map[string]result, err error,
) {
	if results, err = read(file); err != nil {
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
	together, alone := pending(chosen, results, again)
	random := rand.New(rand.NewPCG(seed, 0))
	random.Shuffle(len(together), func(i, j int) { together[i], together[j] = together[j], together[i] })
	seeds := map[string]uint64{}
	for _, f := range chosen {
		seeds[f.name] = random.Uint64()
	}
	fmt.Printf("%d games, %d at a time; -seed %d\n", len(together)+len(alone), games, seed)
	var mu sync.Mutex // guards results and failed
	var failed error
	playAll := func(faults []fault, at int) {
		var playing sync.WaitGroup
		free := make(chan struct{}, at)
		for _, f := range faults {
			playing.Go(func() {
				free <- struct{}{}
				defer func() { <-free }()
				if ctx.Err() != nil {
					return
				}
				r, err := s.play(ctx, f, seeds[f.name])
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					results[f.name] = r
					err = write(file, results)
				}
				if err != nil {
					failed = errors.Join(failed, fmt.Errorf("%s: %w", f.name, err))
					fmt.Println(f.name, "could not be played:", err)
				}
			})
		}
		playing.Wait()
	}
	playAll(together, games)
	playAll(alone, 1)
	return results, errors.Join(failed, ctx.Err())
}

// pending divides the games that have to be played into those that may be played together, and those that must be alone.
func pending(chosen []fault, results map[string]result, again bool) (together, alone []fault) {
	for _, f := range chosen {
		switch _, known := results[f.name]; {
		case known && !again:
		case f.alone:
			alone = append(alone, f)
		default:
			together = append(together, f)
		}
	}
	return together, alone
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
