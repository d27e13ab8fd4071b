// The runs: a short slice with its limits for every day, and all of them for the page.

package sim

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var (
	write = flag.String("write", "", "directory of simulation.md: run all scenarios, write table and plots there")
	only  = flag.String("only", "", "print the runs and the trace of the scenarios that this regular expression matches")
)

func run(t *testing.T, sc Scenario, static int) (r *Result) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var err error
		if r, err = Run(sc, static); err != nil {
			t.Fatal(err)
		}
	})
	return r
}

func pair(t *testing.T, sc Scenario) Pair {
	t.Helper()
	var oracle []*Result
	for _, static := range sc.Static {
		oracle = append(oracle, run(t, sc, static))
	}
	return Pair{run(t, sc, 0), best(oracle)}
}

func TestSlice(t *testing.T) {
	for _, sc := range []Scenario{bound(2, 4*ms, 0.7), bound(2, 4*ms, 4), bound(8, 4*ms, 2), mixed(2, 2), downstream(2, 10, 0.7), downstream(2, 10, 2)} {
		p := pair(t, sc)
		if misses := p.Misses(); len(misses) > 0 {
			t.Errorf("%s misses %v\n%s", sc.title(), misses, Table([]Pair{p}))
		}
		if sc.Load(0) < 0.8 && p.Ours.Overall() < 0.999 {
			t.Errorf("%s: %.4f of all answers in time", sc.title(), p.Ours.Overall())
		}
	}
}

// The model must be right before anything can be said about the law: without a limit, processors under twice their
// load answer nobody in time, and the sensor says so; and the processors do as much work as they can.
func TestModel(t *testing.T) {
	sc := bound(2, 4*ms, 2)
	sc.Deadline = 100 * ms
	open := run(t, sc, 1<<20)
	if open.Goodput() > 0.05 {
		t.Errorf("without a limit: goodput %.3f", open.Goodput())
	}
	if jam := open.Trace[100]; jam.Runnable < 20 || jam.Utilization < 0.99 || jam.Lag < 0.1 {
		t.Errorf("a jam looks like %+v", jam)
	}
	easy := run(t, bound(2, 4*ms, 0.5), 1<<20)
	if easy.Overall() < 0.9999 || easy.Latency(0.5) > 8*ms {
		t.Errorf("half the load: %.4f in time, median %v", easy.Overall(), easy.Latency(0.5))
	}
	var busy float64
	for _, p := range easy.Trace[:101] {
		busy += p.Utilization / 100 // the first one has no sample
	}
	if busy < 0.45 || busy > 0.55 {
		t.Errorf("half the load: %.2f busy", busy)
	}
	jam := run(t, downstream(2, 10, 2), 1<<20)
	if jam.Goodput() > 0.05 {
		t.Errorf("a dependency without a limit: goodput %.3f", jam.Goodput())
	}
}

func TestCapacityIsWhatTheModelCanDo(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for _, sc := range Scenarios() {
		var cpu, io float64
		for range 20_000 {
			work := sc.Work(0, rng)
			cpu, io = cpu+(work.CPU+arrival).Seconds()/20_000, io+work.IO.Seconds()/20_000
		}
		can := float64(sc.Cores) / cpu
		if sc.Servers > 0 {
			can = min(can, float64(sc.Servers)/io)
		}
		if said := sc.Capacity(0); said > 1.05*can || said < 0.9*can && sc.Servers > 0 {
			t.Errorf("%s: capacity %.0f/s, the model can do %.0f/s", sc.title(), said, can)
		}
	}
}

func TestSplice(t *testing.T) {
	page, err := Splice("a\n<!-- table -->\nold\n<!-- end of table -->\nb\n", "new\n")
	if err != nil || page != "a\n<!-- table -->\nnew\n<!-- end of table -->\nb\n" {
		t.Fatal(page, err)
	}
	if _, err := Splice("a", "b"); err == nil {
		t.Fatal("no mark, no error")
	}
}

// plots are the scenarios that docs/evidence/simulation.md shows.
var plots = map[string]string{
	"step 0.6× 5× 0.6×, CPU 4ms":                   "step",
	"10 servers, 5 times slower 20-40s, 2×, 250ms": "slow",
	"CPU 4ms / I/O 100ms in turn, 2×":              "turn",
	"10 servers of 40ms, 4×":                       "downstream",
}

// TestSim is `make sim`.
func TestSim(t *testing.T) {
	if *write == "" && *only == "" {
		t.Skip("runs in `make sim`; TestSlice is the slice of it for every day")
	}
	var pairs []Pair
	for _, sc := range Scenarios() {
		if !regexp.MustCompile(*only).MatchString(sc.title()) {
			continue
		}
		began := time.Now()
		p := pair(t, sc)
		pairs = append(pairs, p)
		lines := strings.Split(Table([]Pair{p}), "\n")
		fmt.Println(lines[2], time.Since(began).Round(ms))
		if *only != "" {
			for _, point := range p.Ours.Trace {
				fmt.Printf("%+v\n", point)
			}
		}
		if name, ok := plots[sc.Name]; ok && *write != "" {
			must(t, os.WriteFile(filepath.Join(*write, "sim-"+name+".svg"), []byte(SVG(p.Ours, p.Oracle)), 0o644))
		}
	}
	if *write != "" && *only == "" {
		file := filepath.Join(*write, "simulation.md")
		page, err := os.ReadFile(file)
		must(t, err)
		text, err := Splice(string(page), Table(pairs))
		must(t, err)
		must(t, os.WriteFile(file, []byte(text), 0o644))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestNamesOfLinesDoNotOverlap: the names beside a plot keep their order and their distance, and none is below the axis.
func TestNamesOfLinesDoNotOverlap(t *testing.T) {
	heights := []float64{100, 30, 99, 140}
	apart(heights, 14, 130)
	for i, a := range heights {
		for j, b := range heights {
			if i != j && math.Abs(a-b) < 14 || a > 130 {
				t.Errorf("%v: %g and %g", heights, a, b)
			}
		}
	}
}
