//go:build linux

// Command overload sends real HTTP over loopback, more than a server can answer, to each variant in turn, and prints what
// users get. A server has one core to itself, the generator another.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/zeromicro/go-zero/core/logx"
)

func main() {
	var a serveArgs
	flag.StringVar(&a.Variant, "serve", "", "be the server of this variant (the lab starts itself so)")
	flag.Float64Var(&a.Rounds, "rounds", 0, "of a server: rounds of work in a millisecond")
	flag.StringVar(&a.Counters, "counters", "", "of a server: the file to count in")
	trace := flag.Bool("trace", false, "the warden prints every sample and decision to standard error")
	quick := flag.Bool("quick", false, "fewer workloads and loads, shorter cells; without the variants that need long to engage")
	names := flag.String("workloads", "", "only these, separated by commas")
	which := flag.String("variants", "", "only these, separated by commas")
	loads := flag.String("loads", "", "only these, in capacities, separated by commas; 0 or step: the step")
	length := flag.Duration("length", 0, "of a cell after its warm-up, 1s to 1m; 0: 6s, or 3s with -quick")
	warm := flag.Duration("warm", 0, "warm-up of a cell, up to 1m; 0: 3s, or 2s with -quick")
	seed := flag.Uint64("seed", 1, "of the arrivals")
	out := flag.String("o", "", "folder for overload.md, its plots and overload.json; empty: only print")
	merge := flag.Bool("merge", false, "keep the cells of overload.json that this run does not measure again")
	render := flag.Bool("render", false, "measure nothing, write report and plots again from overload.json")
	flag.Parse()
	logx.Disable() // go-zero's package stat logs in every process that it is linked into

	if a.Variant != "" {
		a.Workload, a.Trace = *names, *trace
		exit(serve(a))
	}
	l := &lab{plan: plan{warm: 3 * time.Second, slowWarm: 20 * time.Second, length: 6 * time.Second, step: 3 * time.Second, probe: 2 * time.Second, seed: *seed, trace: *trace}}
	s := selection{variants: *which, workloads: *names, loads: *loads}
	if *quick {
		l.warm, l.length, l.step, l.probe = 2*time.Second, 3*time.Second, 2*time.Second, 1500*time.Millisecond
		s.quick()
	}
	if *length != 0 {
		l.length = *length
	}
	if *warm != 0 {
		l.warm, l.slowWarm = *warm, *warm
	}
	switch {
	case l.length < time.Second || l.length > time.Minute:
		exit(fmt.Errorf("-length is %v; allowed: 1s to 1m", l.length))
	case l.warm < 0 || l.warm > time.Minute:
		exit(fmt.Errorf("-warm is %v; allowed: 0 to 1m", l.warm))
	case flag.NArg() > 0:
		exit(fmt.Errorf("unexpected argument %q", flag.Arg(0)))
	}
	if *render {
		r := report{Go: runtime.Version(), Peers: versions()}
		exit(errors.Join(r.merge(*out), r.write(*out)))
	}
	cells, err := s.cells()
	if err != nil {
		exit(err)
	}
	exit(measure(l, cells, *out, *merge))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "overload: %v\n", err)
		os.Exit(2)
	}
	os.Exit(0)
}

// selection is which cells are to be measured, as flags say it.
type selection struct{ variants, workloads, loads string }

// quick fills in what the flags leave open.
func (s *selection) quick() {
	if s.variants == "" {
		var fast []string
		for _, v := range variants() {
			if !v.slow && v.name != "static" {
				fast = append(fast, v.name)
			}
		}
		s.variants = strings.Join(fast, ",")
	}
	if s.workloads == "" {
		s.workloads = "cpu4,downstream"
	}
	if s.loads == "" {
		s.loads = "0.7,4"
	}
}

// group is the cells of one workload.
type group struct {
	workload workload
	variants []variant
	loads    []float64
}

func (s *selection) cells() ([]group, error) {
	vs, ws, loads := variants(), workloads(), []float64{0.7, 1, 1.5, 2, 4, 8, 0}
	if s.variants != "" {
		vs = nil
		for name := range strings.SplitSeq(s.variants, ",") {
			v, err := variantNamed(name)
			if err != nil {
				return nil, err
			}
			vs = append(vs, v)
		}
	}
	if s.workloads != "" {
		ws = nil
		for name := range strings.SplitSeq(s.workloads, ",") {
			w, err := workloadNamed(name)
			if err != nil {
				return nil, err
			}
			ws = append(ws, w)
		}
	}
	if s.loads != "" {
		loads = nil
		for text := range strings.SplitSeq(s.loads, ",") {
			x, err := strconv.ParseFloat(text, 64)
			if text == "step" {
				x, err = 0, nil
			}
			if err != nil || !(x == 0 || x >= 0.1 && x <= 20) {
				return nil, fmt.Errorf("-loads has %q; allowed: 0.1 to 20, or step", text)
			}
			loads = append(loads, x)
		}
	}
	var groups []group
	for _, w := range ws {
		groups = append(groups, group{w, vs, loads})
	}
	return groups, nil
}

// measure runs the cells and reports them.
func measure(l *lab, groups []group, out string, merge bool) error {
	var err error
	if l.serverCore, l.generatorCore, err = cores(); err != nil {
		return err
	}
	if err := pin(l.serverCore); err != nil {
		return err
	}
	l.rounds = calibrate()
	if err := pin(l.generatorCore); err != nil {
		return err
	}
	debug.SetGCPercent(-1) // collected between cells
	r := report{Go: runtime.Version(), Commands: []string{"overload " + strings.Join(os.Args[1:], " ")}, Peers: versions()}
	fmt.Println(header)
	for _, g := range groups {
		can, err := l.measure(g.workload)
		if err != nil {
			return err
		}
		for _, load := range g.loads {
			for _, v := range g.variants {
				c, err := l.run(v, g.workload, load, can)
				if c.Doubt != "" && err == nil { // once more, and the less disturbed one counts
					var again Cell
					if again, err = l.run(v, g.workload, load, can); again.Late+100*again.Stolen < c.Late+100*c.Stolen {
						c = again
					}
				}
				if err != nil {
					return fmt.Errorf("%s, %s, %s: %w", v.name, g.workload.name, c.Load, err)
				}
				fmt.Println(&c)
				r.Cells = append(r.Cells, c)
			}
		}
	}
	if out == "" {
		return nil
	}
	if merge {
		if err := r.merge(out); err != nil {
			return err
		}
	}
	return r.write(out)
}

const header = "workload   load  variant        capacity goodput ceiling success critical    p50    p99  p99crit  reject  accept wasted  late stolen"

// String is the line that is printed while measuring.
func (c *Cell) String() string {
	line := fmt.Sprintf("%-10s %-5s %-14s %8.0f %7.3f %7.3f %7.4f %8.4f %6.1f %6.1f %8.1f %7.2f %7.2f %6.3f %5.2f %6.3f",
		c.Workload, c.Load, c.Variant, c.Capacity, c.Goodput, c.Ceiling, c.Success, c.Critical, c.P50, c.P99, c.P99Crit, c.Reject, c.Accept, c.Wasted, c.Late, c.Stolen)
	if len(c.Halves) > 0 {
		line += fmt.Sprintf("  first %.2f least %.2f recovery %.2f  %.2f", c.First, c.Least, c.Recovery, c.Halves)
	}
	if c.Unsent > 0 {
		line += fmt.Sprintf("  unsent %d", c.Unsent)
	}
	if c.Doubt != "" {
		line += "  " + c.Doubt
	}
	return line
}
