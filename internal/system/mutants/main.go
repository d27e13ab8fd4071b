// SPDX-License-Identifier: Apache-2.0

// Mutants breaks a package in every small way that it knows, and shows which of the breaks its tests notice: conditions are negated,
// operators and numbers replaced, calls and assignments left out. All mutants of a package are in one test binary, which the
// environment tells which of them lives. A mutant that survives is equivalent, or a promise that no test keeps.
//
// Usage, at the root: go run ./internal/system/mutants [flags] PACKAGE...
//
// It prints the share that was noticed, the survivors with their places, and which numbers of docs/guarantees the failures named.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

func main() {
	sample := flag.Int("sample", 0, "run so many of a package's mutants, drawn at random; 0: all")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the draw") //nolint:gosec // any number will do
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	for _, dir := range flag.Args() {
		if err := breakPackage(ctx, filepath.Clean(dir), *sample, *seed); err != nil {
			fmt.Fprintln(os.Stderr, "mutants:", err)
			os.Exit(1) //nolint:gocritic // stop has nothing to do then
		}
	}
}

// breakPackage runs the tests of the package in dir against its mutants.
func breakPackage(ctx context.Context, dir string, sample int, seed uint64) error {
	work, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	t := tests{binary: filepath.Join(work, "tests"), dir: dir, patience: time.Hour}
	all, err := t.build(ctx, work)
	if err != nil {
		return err
	}
	began := time.Now()
	if out, err := t.run(ctx, 0); err != nil {
		return fmt.Errorf("with nothing broken: %w\n%s", err, out)
	}
	t.patience = 10*time.Since(began) + 10*time.Second
	if sample > 0 && sample < len(all) {
		random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // no secret
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		all = all[:sample]
		fmt.Printf("seed %d: ", seed)
	}
	alive, named := t.runAll(ctx, all)
	fmt.Printf("%s: %d of %d mutants noticed; named %s\n", dir, len(all)-len(alive), len(all), strings.Join(named, " "))
	slices.SortFunc(alive, func(a, b mutant) int { return a.number - b.number })
	for _, m := range alive {
		fmt.Println("  survives", m)
	}
	return ctx.Err()
}

// tests are those of the package in dir, with all of its mutants.
type tests struct {
	binary, dir string
	patience    time.Duration
}

var number = regexp.MustCompile(`\b([A-Z][1-9]\d?): `)

// runAll runs the tests against each mutant, as many at a time as there are processors, and returns those that no test noticed, and
// the numbers in the failures of the others.
func (t *tests) runAll(ctx context.Context, all []mutant) (alive []mutant, named []string) {
	var mu sync.Mutex
	numbers := map[string]bool{}
	queue := make(chan mutant)
	var runners sync.WaitGroup
	for range runtime.NumCPU() {
		runners.Go(func() {
			for m := range queue {
				out, err := t.run(ctx, m.number)
				mu.Lock()
				if err == nil {
					alive = append(alive, m)
				}
				for _, match := range number.FindAllSubmatch(out, -1) {
					numbers[string(match[1])] = true
				}
				mu.Unlock()
			}
		})
	}
	for _, m := range all {
		if ctx.Err() == nil {
			queue <- m
		}
	}
	close(queue)
	runners.Wait()
	return alive, slices.Sorted(maps.Keys(numbers))
}

// run runs the tests against one mutant; 0: none. A test that does not end has noticed it.
func (t *tests) run(ctx context.Context, mutant int) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, t.patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, t.binary, "-test.failfast")
	cmd.Dir, cmd.Env = t.dir, append(os.Environ(), "MUTANT="+strconv.Itoa(mutant), "RAPID_NOFAILFILE=1")
	return cmd.CombinedOutput()
}

// build compiles the tests with all mutants of the package. What does not compile is no mutant.
func (t *tests) build(ctx context.Context, work string) ([]mutant, error) {
	dir, err := filepath.Abs(t.dir)
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(t.dir, "*.go"))
	if err != nil {
		return nil, err
	}
	files = slices.DeleteFunc(files, func(file string) bool { return strings.HasSuffix(file, "_test.go") || filepath.Base(file) == "doc.go" })
	name, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Name}}", "./"+t.dir).Output()
	if err != nil {
		return nil, err
	}
	for bad := map[int]bool{}; ; {
		var all []mutant
		texts := map[string][]byte{"mutant_.go": fmt.Appendf(nil, activeMutant, strings.TrimSpace(string(name)))}
		for _, file := range files {
			text, found, err := mutate(file, len(all)+1, bad)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
			texts[filepath.Base(file)] = text
		}
		over := map[string]string{} // the package's files to those that are laid over them
		for name, text := range texts {
			over[filepath.Join(dir, name)] = filepath.Join(work, name)
			err = errors.Join(err, os.WriteFile(filepath.Join(work, name), text, 0o600))
		}
		overlay := filepath.Join(work, "overlay.json")
		text, failed := json.Marshal(map[string]any{"Replace": over})
		if err := errors.Join(err, failed, os.WriteFile(overlay, text, 0o600)); err != nil {
			return nil, err
		}
		out, err := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-gcflags=-e", "-overlay", overlay, "-o", t.binary,
			"./"+t.dir).CombinedOutput()
		if err == nil {
			return slices.DeleteFunc(all, func(m mutant) bool { return bad[m.number] }), nil
		}
		if !noteBad(out, texts, bad) {
			return nil, errors.New(string(out))
		}
	}
}

const activeMutant = `package %s

import (
	"os"
	"strconv"
)

var activeMutant, _ = strconv.Atoi(os.Getenv("MUTANT"))
`

var compilerPlace = regexp.MustCompile(`([\w.-]+\.go):(\d+)`)

// noteBad notes the mutants that the compiler complains of; false: it complains of none.
func noteBad(out []byte, texts map[string][]byte, bad map[int]bool) (some bool) {
	for _, at := range compilerPlace.FindAllSubmatch(out, -1) {
		line, _ := strconv.Atoi(string(at[2]))
		lines := bytes.SplitAfterN(texts[string(at[1])], []byte("\n"), line+1)
		before := bytes.Join(lines[:min(line, len(lines))], nil)
		if all := caseOf.FindAllSubmatch(before, -1); len(all) > 0 {
			n, _ := strconv.Atoi(string(all[len(all)-1][1]))
			some = some || !bad[n]
			bad[n] = true
		}
	}
	return some
}
