// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command overload sends real HTTP over loopback, more than a server can answer, to each variant in turn, and prints the clients'
// results. The server has one or two cores to itself, the generator another one.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zeromicro/go-zero/core/logx"
)

func main() {
	server := flag.String("serve", "", "be a server (the lab starts itself so)")
	var s selection
	flag.BoolVar(&s.headline, "headline", false, "what other flags leave open is what README's table shows: an hour")
	flag.BoolVar(&s.noes, "noes", false, "what other flags leave open is the table of noes: who is told no, how soon, and who leaves without an answer; ten minutes")
	flag.StringVar(&s.workloads, "workloads", "", "only these, separated by commas")
	flag.StringVar(&s.variants, "variants", "", "only these, separated by commas")
	flag.StringVar(&s.loads, "loads", "", "only these, in capacities, separated by commas")
	flag.StringVar(&s.knows, "knows", "", "only these, separated by commas, of "+strings.Join(allKnows(), ", "))
	length := flag.Float64("seconds", 0, "of a cell after its warm-up, 1 to 120; 0: 5, or 6 with -headline or -pair, or 3 with -noes, and more where calls are long")
	rounds := flag.Int("rounds", 0, "of each cell, 1 to 100, each with all variants in an order that alternates; 0: 1, or 5 with -headline")
	flag.BoolVar(&s.all, "all", false, "peers that the first round of a cell leaves without a chance run in the others too")
	pair := flag.String("pair", "", "compare two variants by `A,B`, each a variant, or variant@binary with a build of this program at another commit; prints B - A, keeps nothing")
	pairs := flag.Int("pairs", 10, "of runs of a cell, 2 to 100, with -pair")
	warm := flag.Float64("warm", 2, "seconds of warm-up of a cell, 0 to 60; calls that nothing bounds have none")
	retries := flag.Int("retries", 1, "how often a cell that was disturbed is measured again; the least disturbed counts")
	seed := flag.Uint64("seed", 1, "of the arrivals")
	out := flag.String("o", "", "root of a checkout, whose overload.json keeps the cells, and whose pages are made of it; empty: only print")
	render := flag.Bool("render", false, "measure nothing, write the pages again")
	flag.Parse()
	logx.Disable() // go-zero's package stat logs in every process that links it

	if *server != "" {
		exit(serve(*server))
	}
	l := &lab{root: "../..", plan: plan{
		warm: time.Duration(*warm * float64(time.Second)), slowWarm: 25 * time.Second,
		length: time.Duration(*length * float64(time.Second)), usual: 5 * time.Second, probe: 2 * time.Second, seed: *seed,
	}}
	switch {
	case s.noes: // with the tail ten seconds of load, of which the first five do not count
		l.usual, l.warm = 3*time.Second, max(l.warm, 5*time.Second)
	case s.headline || *pair != "":
		l.usual = 6 * time.Second
	}
	if *rounds == 0 {
		*rounds = 1
		if s.headline {
			*rounds = 5
		}
	}
	switch {
	case l.length != 0 && (l.length < time.Second || l.length > 2*time.Minute):
		exit(fmt.Errorf("-seconds is %g; allowed: 1 to 120", *length))
	case l.warm < 0 || l.warm > time.Minute:
		exit(fmt.Errorf("-warm is %g; allowed: 0 to 60", *warm))
	case *retries < 0 || *retries > 10:
		exit(fmt.Errorf("-retries is %d; allowed: 0 to 10", *retries))
	case *rounds < 1 || *rounds > 100:
		exit(fmt.Errorf("-rounds is %d; allowed: 1 to 100", *rounds))
	case *pairs < 2 || *pairs > 100:
		exit(fmt.Errorf("-pairs is %d; allowed: 2 to 100", *pairs))
	case flag.NArg() > 0:
		exit(fmt.Errorf("unexpected argument %q", flag.Arg(0)))
	}
	if *pair != "" && s.knows == "" && !s.noes {
		s.knows = untold
	}
	groups, err := s.groups()
	if err != nil {
		exit(err)
	}
	if *pair != "" {
		sides, err := sidesNamed(*pair)
		if err != nil {
			exit(err)
		}
		exit(compare(l, groups, sides, *pairs, os.Stdout))
	}
	r, err := open(*out)
	if err != nil {
		exit(err)
	}
	if !*render {
		r.Go, r.Peers = runtime.Version(), versions()
		exit(measure(l, groups, *rounds, *retries, r, *out))
	}
	exit(r.write(*out))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "overload: %v\n", err)
		os.Exit(2)
	}
	os.Exit(0)
}

// selection has the flags that select cells.
type selection struct {
	workloads, variants, loads, knows string
	headline, noes, all               bool
}

// group is the cells of one workload and one kind of clients.
type group struct {
	workload workload
	knows    string
	loads    []float64
	variants []variant
	all      bool // variants in all rounds
}

// groups returns the selected cells. Without a flag, clients of unbound workloads are untold only, HTTP/2 runs with cpu4 only,
// and
// -headline selects those of README's table, -noes those of the table of noes.
func (s selection) groups() ([]group, error) {
	knows := usualKnows()
	if s.headline || s.noes {
		s.workloads = cmp.Or(s.workloads, "cpu4,cpu4y,costs,app,mixed,downstream")
	}
	switch {
	case s.noes:
		s.variants, knows = cmp.Or(s.variants, "warden"), noesKnows()
	case s.headline:
		s.variants, knows = cmp.Or(s.variants, "warden,failsafe,failsafe-prio,gradient2,go-zero,aegis"), []string{untold}
	}
	ws, err1 := chosen(s.workloads, workloads(), workloadNamed)
	vs, err2 := chosen(s.variants, variants(), variantNamed)
	ks, err3 := chosen(s.knows, knows, knowsNamed)
	loads, err4 := chosen(s.loads, nil, loadNamed)
	var groups []group
	for _, w := range ws {
		for _, k := range ks {
			if s.knows == "" && (k == h2 && w.name != "cpu4" || k != untold && w.unbound()) {
				continue
			}
			g := group{workload: before(k, w), knows: k, loads: w.loads, variants: vs, all: s.all}
			switch {
			case loads != nil:
				g.loads = loads
			case s.headline && w.unbound():
				g.loads = w.loads[:2]
			case s.headline, s.noes:
				g.loads = []float64{2, 4}
			}
			groups = append(groups, g)
		}
	}
	return groups, errors.Join(err1, err2, err3, err4)
}

// asks reports whether to measure a variant in a group. A variant that needs the right number, or a pool, is skipped where there
// is none; one that engages late, and only with busy processors, where none is busy.
func (g *group) asks(v variant) bool {
	return (!v.right || g.workload.right > 0) && (!v.pool || g.workload.pooled()) &&
		(!v.slow || g.knows == untold && g.workload.computes())
}

// A peer whose first round of a cell reached less than hopeless, or less than the best peer's by behind, has no other.
const hopeless, behind = 0.1, 0.1

// turn returns the variants of a round of one load in their order, which alternates. runs has the earlier rounds by variant.
func (g *group) turn(round int, runs map[string][]Cell) (all []variant) {
	least := 0.0
	for _, v := range g.variants {
		if v.peer && round > 0 && len(runs[v.name]) > 0 && !g.all {
			least = max(least, hopeless, runs[v.name][0].Goodput-behind)
		}
	}
	for _, v := range g.variants {
		if g.asks(v) && (least == 0 || !v.peer || runs[v.name][0].Goodput >= least) {
			all = append(all, v)
		}
	}
	if round%2 == 1 {
		slices.Reverse(all)
	}
	return all
}

// chosen returns the named elements of all, separated by commas; all of them if names is empty.
func chosen[T any](names string, all []T, named func(string) (T, error)) ([]T, error) {
	if names == "" {
		return all, nil
	}
	var some []T
	for name := range strings.SplitSeq(names, ",") {
		one, err := named(name)
		if err != nil {
			return nil, err
		}
		some = append(some, one)
	}
	return some, nil
}

func knowsNamed(name string) (string, error) {
	if !slices.Contains(allKnows(), name) {
		return "", fmt.Errorf("-knows has %q; allowed: %s", name, strings.Join(allKnows(), ", "))
	}
	return name, nil
}

func loadNamed(text string) (float64, error) {
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || !(x >= 0.01 && x <= 20) {
		return 0, fmt.Errorf("-loads has %q; allowed: 0.01 to 20", text)
	}
	return x, nil
}

// prepare builds flood, and takes the calling goroutine's thread for starting it. close undoes it.
func (l *lab) prepare() (err error) {
	if l.dir, err = os.MkdirTemp("", "overload"); err != nil {
		return err
	}
	l.flood = filepath.Join(l.dir, "flood")
	if err := buildFlood(l.root, l.flood); err != nil {
		return err
	}
	if l.cores, err = cores(); err != nil {
		return err
	}
	if err := errors.Join(prefer(-20), pin(l.cores[0])); err != nil {
		return err
	}
	l.rounds = calibrate()
	return nil
}

func (l *lab) close() { _ = os.RemoveAll(l.dir) }

// measure runs the cells, and saves the report after each run. A round measures the capacity, and then each variant at each load;
// the rounds of one workload follow each other.
func measure(l *lab, groups []group, rounds, retries int, r *report, out string) error {
	defer l.close()
	if err := l.prepare(); err != nil {
		return err
	}
	debug.SetGCPercent(-1) // garbage is collected between cells
	fmt.Println(header)
	for _, g := range groups {
		runs := map[float64]map[string][]Cell{}
		for _, load := range g.loads {
			runs[load] = map[string][]Cell{}
		}
		for round := range rounds {
			can, err := l.measure(g.workload, g.knows)
			if err != nil {
				return err
			}
			for _, load := range g.loads {
				for _, v := range g.turn(round, runs[load]) {
					run := func() (Cell, error) { return l.run(side{variant: v}, g.workload, load, g.knows, can, round) }
					c, err := run()
					for i := 0; i < retries && err == nil && c.Doubt != ""; i++ {
						var again Cell
						if again, err = run(); again.Late+100*again.Stolen < c.Late+100*c.Stolen {
							c = again
						}
					}
					if err != nil {
						return fmt.Errorf("%s, %s, %s, %s: %w", g.workload.name, g.workload.loadName(load), g.knows, v.name, err)
					}
					fmt.Println(&c)
					runs[load][v.name] = append(runs[load][v.name], c)
					r.put(median(runs[load][v.name]))
					if out != "" {
						if err := r.write(out); err != nil {
							return err
						}
					}
				}
			}
		}
	}
	return nil
}

const header = "workload   load   knows  variant        capacity goodput ceiling success critical  queue    p50    p99 p99crit  queue reject wasted  late stolen"

// String is the line that is printed during a measurement.
func (c *Cell) String() string {
	w, _ := workloadNamed(c.Workload)
	queue := tally{}
	if c.Queue != nil {
		queue = *c.Queue
	}
	line := fmt.Sprintf("%-10s %-6s %-6s %-14s %8.0f %7.3f %7.3f %7.4f %8.4f %6.4f %6.0f %6.0f %7.1f %6.1f %6.1f %6.3f %5.2f %6.3f",
		c.Workload, w.loadName(c.Load), c.Knows, c.Variant, c.Capacity, c.Goodput, c.Ceiling, c.Success, c.Critical, queue.Critical,
		c.P50, c.P99, c.P99Crit, queue.P99Crit, c.Reject, c.Wasted, c.Late, c.Stolen)
	if slices.Contains(noesKnows(), c.Knows) {
		line += fmt.Sprintf("  left %.4f, told no %.3f, p99 %.0f", c.Left, c.Refused, c.Reject99)
	}
	if c.Unsent > 0 {
		line += fmt.Sprintf("  unsent %d", c.Unsent)
	}
	if c.Doubt != "" {
		line += "  " + c.Doubt
	}
	if w.unbound() {
		line += fmt.Sprintf("  by seconds %.2f", c.Seconds)
	}
	return line
}
