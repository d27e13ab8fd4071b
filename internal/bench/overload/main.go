//go:build linux

// Command overload sends real HTTP over loopback, more than a server can answer, to each variant in turn, and prints what
// users get. A server has one core to itself, or two, the generator another.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
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
	flag.BoolVar(&s.headline, "headline", false, "what other flags leave open is so chosen that it takes ten minutes")
	flag.StringVar(&s.workloads, "workloads", "", "only these, separated by commas")
	flag.StringVar(&s.variants, "variants", "", "only these, separated by commas")
	flag.StringVar(&s.loads, "loads", "", "only these, in capacities, separated by commas")
	flag.StringVar(&s.knows, "knows", "", "only these, separated by commas, of "+strings.Join(allKnows(), ", "))
	length := flag.Float64("seconds", 0, "of a cell after its warm-up, 1 to 120; 0: 5, or 3 with -headline, and more where calls are long")
	warm := flag.Float64("warm", 2, "seconds of warm-up of a cell, 0 to 60; calls that nothing bounds have none")
	retries := flag.Int("retries", 1, "how often a cell that was disturbed is measured again; the least disturbed counts")
	seed := flag.Uint64("seed", 1, "of the arrivals")
	out := flag.String("o", "", "root of a checkout, whose overload.json keeps the cells, and whose pages are made of it; empty: only print")
	render := flag.Bool("render", false, "measure nothing, write the pages again")
	flag.Parse()
	logx.Disable() // go-zero's package stat logs in every process that it is linked into

	if *server != "" {
		exit(serve(*server))
	}
	l := &lab{plan: plan{
		warm: time.Duration(*warm * float64(time.Second)), slowWarm: 20 * time.Second,
		length: time.Duration(*length * float64(time.Second)), usual: 5 * time.Second, probe: 2 * time.Second, seed: *seed,
	}}
	if s.headline {
		l.usual, l.probe = 3*time.Second, 1500*time.Millisecond
	}
	switch {
	case l.length != 0 && (l.length < time.Second || l.length > 2*time.Minute):
		exit(fmt.Errorf("-seconds is %g; allowed: 1 to 120", *length))
	case l.warm < 0 || l.warm > time.Minute:
		exit(fmt.Errorf("-warm is %g; allowed: 0 to 60", *warm))
	case *retries < 0 || *retries > 10:
		exit(fmt.Errorf("-retries is %d; allowed: 0 to 10", *retries))
	case flag.NArg() > 0:
		exit(fmt.Errorf("unexpected argument %q", flag.Arg(0)))
	}
	groups, err := s.groups()
	if err != nil {
		exit(err)
	}
	r, err := open(*out)
	if err != nil {
		exit(err)
	}
	if !*render {
		r.Go, r.Peers = runtime.Version(), versions()
		exit(measure(l, groups, *retries, r, *out))
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

// selection is which cells are to be measured, as flags say it.
type selection struct {
	workloads, variants, loads, knows string
	headline                          bool
}

// group is the cells of one workload and one kind of clients.
type group struct {
	workload workload
	knows    string
	loads    []float64
	variants []variant
}

// groups are the cells that are to be measured. Flags choose what they name. Of the rest, clients of calls that nothing bounds are
// untold, HTTP/2 is for cpu4 alone, and -headline leaves the most telling ones.
func (s selection) groups() ([]group, error) {
	knows := allKnows()
	if s.headline {
		s.workloads = cmp.Or(s.workloads, "cpu4,cpu4y,app,downstream,mixed,costs,wait500ms,wait2s")
		s.variants = cmp.Or(s.variants, "warden,failsafe,failsafe-prio")
		knows = []string{untold, told}
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
			g := group{workload: w, knows: k, loads: w.loads, variants: vs}
			switch {
			case loads != nil:
				g.loads = loads
			case s.headline && w.unbound():
				g.loads = w.loads[:2]
			case s.headline:
				g.loads = []float64{2, 4}
			}
			groups = append(groups, g)
		}
	}
	return groups, errors.Join(err1, err2, err3, err4)
}

// asks is whether a variant is to be measured in a group at a load. One that is told the right number needs one, and one that
// engages late, and only when the processor is busy, is given the time for two loads of those who work it.
func (g *group) asks(v variant, load float64) bool {
	return (!v.right || g.workload.right > 0) && (!v.slow || g.knows == untold && g.workload.computes() && (load == 0.7 || load == 4))
}

// chosen are the named of all, separated by commas; all if nothing is named.
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

// measure runs the cells, and saves the report after each.
func measure(l *lab, groups []group, retries int, r *report, out string) (err error) {
	if l.cores, err = cores(); err != nil {
		return err
	}
	if err := errors.Join(prefer(-20), pin(l.cores[0])); err != nil {
		return err
	}
	l.rounds = calibrate()
	debug.SetGCPercent(-1) // collected between cells
	fmt.Println(header)
	measured := map[[2]string]able{} // by workload and wire
	for _, g := range groups {
		wire := g.knows
		if wire == told {
			wire = untold
		}
		can, ok := measured[[2]string{g.workload.name, wire}]
		if !ok {
			if can, err = l.measure(g.workload, wire); err != nil {
				return err
			}
			measured[[2]string{g.workload.name, wire}] = can
		}
		for _, load := range g.loads {
			for _, v := range g.variants {
				if !g.asks(v, load) {
					continue
				}
				c, err := l.run(v, g.workload, load, g.knows, can)
				for i := 0; i < retries && err == nil && c.Doubt != ""; i++ {
					var again Cell
					if again, err = l.run(v, g.workload, load, g.knows, can); again.Late+100*again.Stolen < c.Late+100*c.Stolen {
						c = again
					}
				}
				if err != nil {
					return fmt.Errorf("%s, %s, %s, %s: %w", g.workload.name, g.workload.loadName(load), g.knows, v.name, err)
				}
				fmt.Println(&c)
				r.put(c)
				if out != "" {
					if err := r.write(out); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

const header = "workload   load   knows  variant        capacity goodput ceiling success critical  queue    p50    p99 p99crit  queue reject wasted  late stolen"

// String is the line that is printed while measuring.
func (c *Cell) String() string {
	w, _ := workloadNamed(c.Workload)
	queue := tally{}
	if c.Queue != nil {
		queue = *c.Queue
	}
	line := fmt.Sprintf("%-10s %-6s %-6s %-14s %8.0f %7.3f %7.3f %7.4f %8.4f %6.4f %6.0f %6.0f %7.1f %6.1f %6.1f %6.3f %5.2f %6.3f",
		c.Workload, w.loadName(c.Load), c.Knows, c.Variant, c.Capacity, c.Goodput, c.Ceiling, c.Success, c.Critical, queue.Critical,
		c.P50, c.P99, c.P99Crit, queue.P99Crit, c.Reject, c.Wasted, c.Late, c.Stolen)
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
