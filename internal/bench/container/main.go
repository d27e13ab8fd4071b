// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command container runs servers in too small a container: requests that hold more memory than there is, and neighbours on the
// same processor. Each run is a process of its own, with a warden's defaults, a constant limit, or none.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// lab has the flags.
type lab struct {
	length         time.Duration
	rounds, others int
	modes          []string
	seed           uint64
	traces         string
	resume         bool
	cores          []int
}

func main() {
	server := flag.String("serve", "", "be a server (the lab starts itself so)")
	busy := flag.Bool("neighbour", false, "be a neighbour (the lab starts itself so)")
	threads := flag.Int("threads", 0, "measure samples beside so many threads (the lab starts itself so)")
	only := flag.String("only", "", "the cells whose name matches this regular expression, such as memory/flat/20/4x$, neighbour or cost")
	seconds := flag.Float64("seconds", 12, "of a run, 4 to 120")
	modes := flag.String("modes", "ours,bare,constants", "the ways of limiting, separated by commas")
	out := flag.String("o", "", "root of a checkout, whose container.json keeps the runs, and whose page is made of it; empty: only print")
	render := flag.Bool("render", false, "measure nothing, write the page again")
	list := flag.Bool("list", false, "print the cells' names")
	procs := flag.Int("procs", 2, "GOMAXPROCS of a server without neighbours, 1 to 64")
	var l lab
	flag.IntVar(&l.rounds, "rounds", 3, "of each cell, 1 to 100")
	flag.IntVar(&l.others, "others", 1, "rounds in which bare servers and constants run too, 0 to 100")
	flag.Uint64Var(&l.seed, "seed", 1, "of the first round's arrivals; each round has the next")
	flag.StringVar(&l.traces, "traces", "", "a folder for the readings of each server, as CSV; empty: none")
	flag.BoolVar(&l.resume, "resume", false, "leave out the runs that the checkout has at this commit")
	flag.Parse()

	switch {
	case *server != "":
		exit(serve(*server))
	case *busy:
		neighbour()
	case *threads > 0:
		exit(sampleBeside(*threads))
	}
	l.length, l.modes = time.Duration(*seconds*float64(time.Second)), strings.Split(*modes, ",")
	filter, err := regexp.Compile(*only)
	switch {
	case err != nil:
		exit(fmt.Errorf("-only: %w", err))
	case l.length < 4*time.Second || l.length > 2*time.Minute:
		exit(fmt.Errorf("-seconds is %g; allowed: 4 to 120", *seconds))
	case l.rounds < 1 || l.rounds > 100 || l.others < 0 || l.others > 100:
		exit(fmt.Errorf("-rounds is %d, -others %d; allowed: 1 to 100, 0 to 100", l.rounds, l.others))
	case *procs < 1 || *procs > 64:
		exit(fmt.Errorf("-procs is %d; allowed: 1 to 64", *procs))
	case flag.NArg() > 0:
		exit(fmt.Errorf("unexpected argument %q", flag.Arg(0)))
	}
	for _, m := range l.modes {
		if m != "ours" && m != "bare" && m != "constants" {
			exit(fmt.Errorf("-modes has %q; allowed: ours, bare, constants", m))
		}
	}
	e, err := open(*out)
	if err != nil {
		exit(err)
	}
	if *render {
		exit(e.write(*out))
	}
	var chosen []cell
	for _, c := range cells(*procs, calibrate()) {
		if filter.MatchString(c.name) {
			chosen = append(chosen, c)
		}
	}
	costs := filter.MatchString("cost")
	if len(chosen) == 0 && !costs {
		exit(fmt.Errorf("-only %q matches no cell", *only))
	}
	if *list {
		for _, c := range chosen {
			fmt.Printf("%s: %s\n", c.name, c.about)
		}
		exit(nil)
	}
	runtime.LockOSThread() // it is pinned, and children inherit that
	if l.cores, err = coresOf(); err != nil {
		exit(err)
	}
	// The neighbours and the server share a group of the scheduler, so others disturb them less and they one another as before.
	_ = os.WriteFile("/proc/self/autogroup", []byte("-10"), 0o644)
	if l.traces != "" {
		if err := os.MkdirAll(l.traces, 0o755); err != nil {
			exit(err)
		}
	}
	exit(l.measure(chosen, costs, e, *out))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "container: %v\n", err)
		os.Exit(2)
	}
	os.Exit(0)
}

// measure runs the cells round by round, and the report is written after each run.
func (l *lab) measure(chosen []cell, costs bool, e *evidence, out string) error {
	for round := range l.rounds {
		for i := range chosen {
			c := &chosen[i]
			for _, mode := range c.modes(l.modes, round, l.others) {
				if l.resume && e.has(c.name, mode, round) {
					continue
				}
				r, err := l.run(c, mode, round)
				if err != nil {
					return fmt.Errorf("%s %s: %w", c.name, mode, err)
				}
				e.put(r)
				fmt.Println(r)
				if err := e.write(out); err != nil {
					return err
				}
			}
		}
	}
	if costs {
		if err := l.measureCosts(e); err != nil {
			return err
		}
	}
	fmt.Print("\n", e.document())
	return e.write(out)
}

// run starts a server, sends it the cell's load, and returns what came of it.
func (l *lab) run(c *cell, mode string, round int) (run, error) {
	r := run{
		Cell: c.name, Mode: mode, Round: round, Seed: l.seed + uint64(round), Seconds: (l.length - c.warm).Seconds(), Commit: commit(),
	}
	group := ""
	if c.group {
		var err error
		if group, err = makeGroup(c.kill); err != nil {
			r.Note = "no cgroup could be made: " + err.Error()
			return r, nil
		}
		defer removeGroup(group)
	}
	args := serveArgs{Work: c.work, Mode: mode, Group: group}
	if l.traces != "" {
		args.Trace = filepath.Join(l.traces, fmt.Sprintf("%s-%s-%d.csv", strings.ReplaceAll(c.name, "/", "-"), mode, round))
	}
	core, own := -1, 0
	if c.neighbour > 0 {
		core, own = l.cores[len(l.cores)-1], l.cores[0]
	}
	var neighbours []*child
	defer func() {
		for _, n := range neighbours {
			n.stop()
		}
	}()
	for range c.neighbour {
		n, err := start(core, own, []string{"GOMAXPROCS=1"}, "-neighbour")
		if err != nil {
			return r, err
		}
		neighbours = append(neighbours, n)
	}
	text, err := json.Marshal(args)
	if err != nil {
		return r, err
	}
	s, err := start(core, own, c.env, "-serve", string(text))
	if err != nil {
		return r, err
	}
	defer s.stop()
	kill := c.kill
	if c.group {
		kill = 1 << 40 // the kernel does it
	}
	go s.watch(kill)

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		<-s.ended
		cancel()
	}()
	polled := make(chan report)
	go func() { polled <- l.poll(ctx, s, c) }()
	r.Clients = drive(ctx, s.url+"/work", c.rate, c.patience, c.warm, l.length, r.Seed)
	r.Killed = s.killed()
	if r.Killed == 0 {
		cpu := processorTime(s.cmd.Process.Pid)
		r.CPU = cpu.Seconds() / time.Since(s.began).Seconds()
	}
	cancel()
	r.Server = <-polled
	r.PeakMB = float64(s.peak.Load()) / mb
	r.Good = float64(r.Clients.Good) / r.Seconds
	return r, nil
}

// poll keeps the last report of a server, which may be killed, and lets it begin again after the warm-up of a run with
// neighbours.
func (l *lab) poll(ctx context.Context, s *child, c *cell) (last report) {
	begun := c.neighbour == 0 // what a start lowers counts elsewhere
	for {
		select {
		case <-ctx.Done():
			var now report
			if s.ask("/stats", &now) == nil {
				last = now
			}
			return last
		case <-time.After(500 * time.Millisecond):
		}
		if !begun && time.Since(s.began) > c.warm {
			begun = s.ask("/begin", nil) == nil
			continue
		}
		var now report
		if err := s.ask("/stats", &now); err == nil {
			last = now
		}
	}
}

// processorTime returns what a process has used.
func processorTime(pid int) time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	text := string(b)
	f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	var user, system int64
	if len(f) > 12 {
		_, err1 := fmt.Sscan(f[11], &user)
		_, err2 := fmt.Sscan(f[12], &system)
		if errors.Join(err1, err2) != nil {
			return 0
		}
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}
