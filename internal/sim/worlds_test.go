// SPDX-License-Identifier: Apache-2.0

// The runs of random worlds: many, and one alone.

package sim

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var (
	worlds   = flag.Int("worlds", 0, "how many worlds TestWorlds runs, from seed 0; 0: it does not run")
	fresh    = flag.Int("fresh", 0, "how many more, from a seed that nobody has chosen")
	from     = flag.Uint64("from", 0, "the first seed instead of 0")
	lawNames = flag.String("laws", "ours", "laws to run, separated by commas; a number is a constant target")
	refs     = flag.String("refs", "", "file for the runs that laws are compared with: read if it is there, and written; delete it when limiter or worlds change")
	write    = flag.String("write", "", "directory of simulation.md, worlds.md and fleet.md: write tables and plots there")
	seed     = flag.Int64("seed", -1, "the world that TestWorld replays")
	several  = flag.Bool("mixed", false, "the world that TestWorld replays is one of several kinds of work")
	lines    = flag.Int("lines", 60, "how many lines the time line of TestWorld has at most")
)

// inBubble runs something in a bubble.
func inBubble(t *testing.T) Runner {
	return func(f func() error) (err error) {
		synctest.Test(t, func(*testing.T) { err = f() })
		return err
	}
}

// try runs a world.
func try(t *testing.T, w *World, g Guard, trace bool) *Result {
	t.Helper()
	r, err := Run(w, inBubble(t), g, trace)
	must(t, err)
	return r
}

// each does something with each of n numbers, on all processors.
func each(n int, do func(i int) error) error {
	var next atomic.Int64
	var workers sync.WaitGroup
	failed := make(chan error, runtime.GOMAXPROCS(0))
	for range cap(failed) {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := do(i); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	workers.Wait()
	close(failed)
	return <-failed
}

// trials tries laws in n worlds that draw draws.
func trials(t *testing.T, draw func(uint64) *World, from uint64, n int, names []string) []*Trial {
	t.Helper()
	known := map[uint64]*Trial{}
	if b, err := os.ReadFile(*refs); err == nil {
		must(t, json.Unmarshal(b, &known))
	} else if !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	trials := make([]*Trial, n)
	must(t, each(n, func(i int) (err error) {
		s := from + uint64(i)
		if trials[i] = known[s]; trials[i] == nil {
			if trials[i], err = Compare(draw(s), inBubble(t)); err != nil {
				return err
			}
		}
		return trials[i].Try(inBubble(t), false, names...)
	}))
	if *refs != "" {
		for _, tried := range trials {
			known[tried.World.Seed] = tried
		}
		b, err := json.Marshal(known)
		must(t, err)
		must(t, os.WriteFile(*refs, b, 0o644))
	}
	return trials
}

// TestWorlds tries laws in random worlds: go test ./internal/sim -run Worlds -v -worlds 400 -laws ours,mine
//
// It fails where one of ours is short of what is held, unless it writes the page.
func TestWorlds(t *testing.T) { tryWorlds(t, Draw, "worlds.md", rows) }

// TestMixedWorlds tries them in worlds of several kinds of work.
func TestMixedWorlds(t *testing.T) { tryWorlds(t, Mixed, "mixed.md", mixedRows) }

func tryWorlds(t *testing.T, draw func(uint64) *World, page string, rows []row) {
	if *worlds+*fresh == 0 {
		t.Skip("takes minutes: make worlds")
	}
	names := strings.Split(*lawNames, ",")
	began := time.Now()
	all := trials(t, draw, *from, *worlds, names)
	if *fresh > 0 {
		first := uint64(began.UnixNano()) % 1e9
		t.Logf("fresh worlds from -from %d", first)
		all = append(all, trials(t, draw, first, *fresh, names)...)
	}
	took := fmt.Sprintf("\n%d worlds took %v on %d processors.\n", len(all), time.Since(began).Round(time.Second),
		runtime.GOMAXPROCS(0))
	var table strings.Builder
	Print(&table, rows, all, names)
	fmt.Println(table.String() + took)
	if rewrite(t, page, table.String()+took); *write != "" {
		return // a page says what is, of worlds of its own: make worlds judges
	}
	for i, name := range names {
		if name == "ours" {
			for _, short := range Short(rows, all, i) {
				t.Error(short)
			}
		}
	}
}

// TestWorld replays one world: go test ./internal/sim -run TestWorld$ -v -seed 246 -laws ours,mine
func TestWorld(t *testing.T) {
	if *seed < 0 {
		t.Skip("replays a world: -seed says which")
	}
	names := strings.Split(*lawNames, ",")
	draw := Draw
	if *several {
		draw = Mixed
	}
	tried, err := Compare(draw(uint64(*seed)), inBubble(t))
	must(t, err)
	must(t, tried.Try(inBubble(t), true, names...))
	for _, r := range tried.Laws {
		fmt.Printf("\n%s: %s\n", r.Guard, tried.Line(r))
		r.Timeline(os.Stdout, *lines)
	}
	fmt.Printf("\noracle: %s\n\nno limit: %s\n\nfailsafe-go: %s\n", tried.Line(tried.Oracle), tried.Line(tried.Open),
		tried.Line(tried.Failsafe))
}

// rewrite puts tables into a page, if asked to.
func rewrite(t *testing.T, page, tables string) {
	t.Helper()
	if *write == "" {
		return
	}
	file := filepath.Join(*write, page)
	old, err := os.ReadFile(file)
	must(t, err)
	text, err := Splice(string(old), tables)
	must(t, err)
	must(t, os.WriteFile(file, []byte(text), 0o644))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
