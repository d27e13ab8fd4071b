// SPDX-License-Identifier: Apache-2.0

//go:build linux

// A run: a capacity, and then each way of limiting in a process of its own, flooded.

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"time"
)

// group is the cells of one workload and one kind of clients or containers.
type group struct {
	work  workload
	kind  string
	loads []float64 // of the capacity
	ways  []way
}

// lab has the data that all cells of a run share.
type lab struct {
	experiment
	only      *regexp.Regexp
	rounds    int
	root, dir string // of the checkout; temporary
	generator string // the programs
	caddy     string
	cores     []int   // a server has the first, or all; flood the second, if there is one
	spins     float64 // per millisecond
	before    string  // the build that ours is compared with
}

// prepare builds the programs, and finds the cores for them. close undoes it.
func (l *lab) prepare() (err error) {
	if l.root, err = filepath.Abs(l.root); err != nil {
		return err
	}
	if l.dir, err = os.MkdirTemp("", "lab"); err != nil {
		return err
	}
	if l.generator, err = l.build("warden/flood"); err != nil {
		return err
	}
	if l.name == "caddy" {
		if l.caddy, err = l.build("warden/wardencaddy/caddy"); err != nil {
			return err
		}
	}
	if err := l.place(); err != nil {
		return err
	}
	l.spins = calibrate()
	debug.SetGCPercent(-1) // garbage is collected between cells
	return nil
}

// flood is a command of the generator.
func (l *lab) flood(args ...string) *exec.Cmd {
	return on(l.cores[min(1, len(l.cores)-1):][:1], -20, append([]string{l.generator}, args...)...)
}

func (l *lab) close() { _ = os.RemoveAll(l.dir) }

// build builds a command of the checkout.
func (l *lab) build(folder string) (binary string, err error) {
	binary = filepath.Join(l.dir, filepath.Base(folder)+".bin")
	cmd := exec.Command("go", "build", "-o", binary, ".")
	cmd.Dir, cmd.Env, cmd.Stderr = filepath.Join(l.root, folder), append(os.Environ(), "GOWORK=off"), os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("building %s: %w", folder, err)
	}
	return binary, nil
}

// A peer whose first round of a cell reached less than hopeless, or less than the best peer's by behind, has no other.
const hopeless, behind = 0.1, 0.1

// before ends the name of a way of another build.
const before = "-before"

// turn returns the ways of a round of one load that are asked for, in their order, which alternates. runs has the earlier rounds by way.
func (g *group) turn(only *regexp.Regexp, load float64, round int, runs map[string][]Cell) (all []way) {
	least := hopeless
	for _, w := range g.ways {
		if first := runs[w.name]; w.peer && len(first) > 0 {
			least = max(least, first[0].Goodput-behind)
		}
	}
	for _, w := range g.ways {
		first := runs[w.name]
		idle := w.slow && (g.kind != untold || !g.work.computes()) // it engages with a busy processor only
		over := round > 0 && (w.once || w.peer && len(first) > 0 && first[0].Goodput < least)
		if !idle && !over && only.MatchString(cellName(g.work.name, load, g.kind, w.name)) {
			all = append(all, w)
		}
	}
	if round%2 == 1 {
		slices.Reverse(all)
	}
	return all
}

// measure runs the cells, and saves the report after each run. A round measures the capacity, and then each way at each load; the
// rounds of one group follow each other. A cell that was disturbed is measured once more, and the less disturbed run counts.
func (l *lab) measure(groups []group, r *report, out string) error {
	fmt.Println(header)
	for _, g := range groups {
		runs := map[float64]map[string][]Cell{}
		for _, load := range g.loads {
			runs[load] = map[string][]Cell{}
		}
		for round := range l.rounds {
			can, err := l.capacity(&g)
			if err != nil {
				return fmt.Errorf("%s, the capacity: %w", g.work.name, err)
			}
			for _, load := range g.loads {
				for _, w := range g.turn(l.only, load, round, runs[load]) {
					c, err := l.cell(&g, w, load, can, round)
					if err == nil && c.Doubt != "" {
						var again Cell
						if again, err = l.cell(&g, w, load, can, round); again.Late+100*again.Stolen < c.Late+100*c.Stolen {
							c = again
						}
					}
					if err != nil {
						return fmt.Errorf("%s: %w", cellName(g.work.name, load, g.kind, w.name), err)
					}
					fmt.Println(&c)
					runs[load][w.name] = append(runs[load][w.name], c)
					r.put(median(runs[load][w.name]))
					if err := c.keep(out); err != nil {
						return err
					}
					if err := r.write(out); err != nil {
						return err
					}
				}
			}
		}
		for _, load := range g.loads {
			fmt.Print(differences(runs[load]["warden"], runs[load]["warden"+before]))
		}
	}
	return nil
}

// able is the rate of responses of a server, in requests per second.
type able struct {
	capacity float64 // with work, saturated but without overload; 0: unknown
	refusing float64 // rejecting all of them, if its processor does nothing else; 0: unknown
}

// capacity measures that of a group's server without a limit: roughly by flood's closed loop, and then by the rate at which it answers
// a third more than that to clients with patience, corrected for the processor time that it lost meanwhile.
func (l *lab) capacity(g *group) (a able, err error) {
	if g.work.rate > 0 {
		return able{capacity: g.work.rate}, nil
	}
	patient := *g
	patient.work.patience, patient.kind = time.Minute, untold
	s, err := l.start(&patient, way{name: "none"})
	if err != nil {
		return a, err
	}
	a.capacity, err = (&clients{l.flood, s.addr, &patient}).capacity()
	if s.stop(); err != nil || g.work.service != nil {
		return a, err
	}
	answered, length, _, stolen, err := l.saturated(&patient, way{name: "none"}, 1.3*a.capacity)
	if err != nil {
		return a, err
	}
	if a.capacity = answered / length.Seconds(); g.work.computes() {
		a.capacity /= 1 - min(stolen, 0.5) // with less left, a guess of the whole would offer anything
		refused, _, spent, _, failed := l.saturated(&patient, way{name: refuseAll}, 2000)
		a.refusing, err = refused/spent.Seconds(), failed
	}
	return a, err
}

// saturated floods a server for some seconds, and returns how many it answered in the time until the last answer, the processor time
// that it spent, and the share of its core that others took meanwhile.
func (l *lab) saturated(g *group, w way, rate float64) (answered float64, length, spent time.Duration, stolen float64, err error) {
	s, err := l.start(g, w)
	if err != nil {
		return 0, 0, 0, 0, err
	}
	defer s.stop()
	var begun lost
	p := phases{warm: 300 * time.Millisecond, length: 2 * time.Second}
	all, err := (&clients{l.flood, s.addr, g}).open(rate, p, 1, func() (err error) {
		begun, err = l.lostOf(s)
		return err
	})
	after, failed := l.lostOf(s)
	for i := range all {
		if since := time.Duration(all[i].done) - p.warm; since > 0 && all[i].status != 0 {
			answered++
			length = max(length, since)
		}
	}
	if answered == 0 && err == nil {
		err = errors.New("the server answered nothing")
	}
	return answered, length, after.ran - begun.ran, after.stolen(begun), errors.Join(err, failed)
}

// ceiling is the goodput that remains when all excess requests are rejected, each at its cost.
func (a able) ceiling(load float64) float64 {
	if a.refusing == 0 || load <= 1 {
		return 1
	}
	answer, refusal := 1/a.capacity, 1/a.refusing
	return max(0, (1-load*a.capacity*refusal)/(1-refusal/answer))
}

// longestTail bounds the load that follows the requests that count, so that the last of these meet the same.
const longestTail = 2 * time.Second

// cell measures one. Equal rounds have the same requests.
func (l *lab) cell(g *group, w way, load float64, a able, round int) (Cell, error) {
	c := Cell{Lab: l.name, Workload: g.work.name, Load: load, Kind: g.kind, Way: w.name, Capacity: a.capacity, Ceiling: a.ceiling(load)}
	if l.name == "container" { // where the goodput is in requests per second
		c.Capacity = 0
	}
	p := phases{g.warm(w), max(l.length, g.work.length), min(g.patience(), longestTail)}
	if g.work.unbound() { // no bottleneck to share
		p.tail = 0
	}
	h := fnv.New64()
	_, _ = fmt.Fprint(h, g.work.name, load)
	runtime.GC() // not during a measurement

	s, err := l.start(g, w)
	if err != nil {
		return c, err
	}
	var begun, after lost
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	changed := make(chan error, 1)
	go func() {
		select {
		case <-time.After(cmp.Or(g.work.shrinks, p.warm+p.length/2)):
			if s.change != nil {
				changed <- s.change(ctx, &c)
			}
		case <-ctx.Done():
		}
		close(changed)
	}()
	rate := load * cmp.Or(a.capacity, 1)
	all, err := (&clients{l.flood, s.addr, g}).open(rate, p, uint64(1+round)^h.Sum64(), func() (err error) {
		begun, err = l.lostOf(s)
		return err
	})
	if err == nil {
		after, err = l.lostOf(s)
	}
	cancel()
	err = errors.Join(err, <-changed)
	s.stop()
	if err != nil {
		return c, err
	}
	c.Stolen, c.Inside = after.stolen(begun), s.account()
	c.judge(all, g, p.length)
	return c, nil
}

// warm is how long a cell's requests do not count: the limiter and the runtime are to have seen work, and aegis and go-zero, which follow
// a slow average of the processor's use, much of it. A service behind a proxy is flooded from cold.
func (g *group) warm(w way) time.Duration {
	switch {
	case g.work.service != nil, g.work.unbound():
		return 0
	case g.work.warm > 0:
		return g.work.warm
	case w.slow:
		return 25 * time.Second
	case g.kind == stay:
		return 5 * time.Second
	}
	return 2 * time.Second
}
