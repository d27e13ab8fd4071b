// SPDX-License-Identifier: Apache-2.0

// The runs of random worlds: many, and one alone.

package sim

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/internal/system/page"
)

var (
	worlds   = flag.Int("worlds", 0, "how many worlds TestWorlds runs, from seed 0; 0: it does not run")
	fresh    = flag.Int("fresh", 0, "how many more, from a seed that nobody has chosen")
	from     = flag.Uint64("from", 0, "the first seed instead of 0")
	lawNames = flag.String("laws", "ours", "laws to run, separated by commas")
	write    = flag.String("write", "", "directory of the pages: write their tables there; all rows are in bin")
	seed     = flag.Int64("seed", -1, "the world that TestWorld replays")
	several  = flag.Bool("mixed", false, "the world that TestWorld replays is one of several kinds of work")
)

func inBubble(t *testing.T) Runner {
	return func(f func() error) (err error) {
		synctest.Test(t, func(*testing.T) { err = f() })
		return err
	}
}

func try(t *testing.T, w *World, g Guard, trace bool) *Result {
	t.Helper()
	r, err := Run(w, inBubble(t), g, trace)
	must(t, err)
	return r
}

// each does something with each of n numbers, on all processors.
func each(n int, do func(i int) error) error {
	failed, places := make([]error, n), make(chan struct{}, runtime.GOMAXPROCS(0))
	var all sync.WaitGroup
	for i := range n {
		places <- struct{}{}
		all.Go(func() {
			failed[i] = do(i)
			<-places
		})
	}
	all.Wait()
	return errors.Join(failed...)
}

// trials tries laws in n worlds that draw draws.
func trials(t *testing.T, draw func(uint64) *World, from uint64, n int, names []string) []*Trial {
	t.Helper()
	trials := make([]*Trial, n)
	must(t, each(n, func(i int) (err error) {
		if trials[i], err = Compare(draw(from+uint64(i)), inBubble(t)); err != nil {
			return err
		}
		return trials[i].Try(inBubble(t), false, names...)
	}))
	return trials
}

// TestWorlds tries laws in random worlds: go test ./internal/sim -run Worlds -v -worlds 400 -laws ours,mine
//
// It fails where one of ours is short of what is held, unless it writes the page.
func TestWorlds(t *testing.T) { tryWorlds(t, Draw, "worlds", rows) }

// TestMixedWorlds tries them in worlds of several kinds of work.
func TestMixedWorlds(t *testing.T) { tryWorlds(t, Mixed, "mixed", mixedRows) }

// TestHeavyWorlds tries them in worlds whose tasks hold memory.
func TestHeavyWorlds(t *testing.T) { tryWorlds(t, Heavy, "heavy", heavyRows) }

func tryWorlds(t *testing.T, draw func(uint64) *World, name string, rows []row) {
	if *worlds+*fresh == 0 {
		t.Skip("takes minutes: make sim SIM=worlds")
	}
	names := strings.Split(*lawNames, ",")
	all := trials(t, draw, *from, *worlds, names)
	if *fresh > 0 {
		first := uint64(time.Now().UnixNano()) % 1e9
		t.Logf("fresh worlds from -from %d", first)
		all = append(all, trials(t, draw, first, *fresh, names)...)
	}
	var table, details strings.Builder
	Print(&table, rows, all, names)
	Details(&details, all, names)
	fmt.Println(table.String())
	if rewrite(t, name, table.String(), details.String()); *write != "" {
		return // a page says what is, of worlds of its own: make sim SIM=worlds judges
	}
	for i, name := range names {
		if name == "ours" {
			for _, short := range append(Short(rows, all[:*worlds], i, 0), Short(rows, all[*worlds:], i, 3)...) {
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
		r.Timeline(os.Stdout, 60)
	}
	fmt.Printf("\noracle: %s\n\nno limit: %s\n\nfailsafe-go: %s\n", tried.Line(tried.Oracle), tried.Line(tried.Open),
		tried.Line(tried.Failsafe))
}

// rewrite puts a table into a page, if asked to, and what the page has no room for into a file below bin.
func rewrite(t *testing.T, name, table, details string) {
	t.Helper()
	must(t, os.MkdirAll("../../bin", 0o755))
	must(t, os.WriteFile("../../bin/"+name+".txt", []byte(table+"\n"+details), 0o644))
	if *write != "" {
		must(t, page.Write(filepath.Join(*write, name+".md"), table))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
