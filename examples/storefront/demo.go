// The four acts of the demo. Each runs one scenario against one kind of shop.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// demo runs the four acts, prints their tables and the verdict, and reports whether it holds.
func demo(ctx context.Context, database, processor scenario, seed uint64, out io.Writer) (holds bool, err error) {
	fmt.Fprintf(out, "A shop has %d database connections. A release makes its analytics query slow. Real HTTP, real SQLite, seed %d. The demo is\n"+
		"20 times as fast as the incident: the slow query takes %v, a request waits %v for a connection, a client gives up after %v.\n",
		database.total(), seed, database.phases[1].hold[analytics], database.acquire, database.patience)
	acts := []struct {
		kind, title string
		scenario    scenario
		run         func(context.Context, scenario, string, uint64) (result, error)
	}{
		{shared, "one pool of connections, shared by all routes", database, runHere},
		{divided, "a compartment and a pool for each route", database, runHere},
		{divided, "a sale, three times what one processor can render (at real speed): compartments alone", processor, runThere},
		{defaults, "the same sale with a warden in front of the whole server, as warden.Config{} makes it", processor, runThere},
	}
	var results []result
	for i, act := range acts {
		fmt.Fprintf(out, "\n%d of %d: %s\n", i+1, len(acts), act.title)
		res, err := act.run(ctx, act.scenario, act.kind, seed)
		if err = errors.Join(ctx.Err(), err); err != nil {
			return false, fmt.Errorf("%s: %w", act.title, err)
		}
		res.print(out, act.scenario.phases)
		results = append(results, res)
	}
	fmt.Fprint(out, compared(processor.patience, results[2][1], results[3][1]))
	v := judge(results[0], results[1], results[2], results[3])
	fmt.Fprint(out, legend, v.text.String())
	if v.fails > 0 {
		fmt.Fprintln(out, "VERDICT: does not hold, see FAIL above.")
		return false, nil
	}
	fmt.Fprintln(out, "VERDICT: holds. With one shared pool, the slow analytics query makes checkout fail. With a compartment for each\n"+
		"route, only analytics fails. With a warden, checkout keeps working while the processor is overloaded, and nearly everybody\n"+
		"whom it cannot serve is told so.")
	return true, nil
}

// runHere runs a scenario against a shop in this process.
func runHere(ctx context.Context, sc scenario, kind string, seed uint64) (_ result, err error) {
	s, err := sc.open(kind, "127.0.0.1:0", nil, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	return sc.follow(ctx, s.url, time.Now(), sc.plan(seed), func(p phase) { s.deploy(fault{hold: p.hold}) }), nil
}

// runThere runs a scenario against a shop in a child process with one processor, this program with -serve: overloading it
// does not slow the load generator down.
func runThere(ctx context.Context, sc scenario, kind string, seed uint64) (result, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	child := exec.Command(self, "-serve", "-until-eof", "-way", kind, "-render", sc.render.String(), "-listen", "127.0.0.1:0",
		"-ops", "127.0.0.1:0") //nolint:noctx // it exits when its input ends
	child.Env = append(os.Environ(), "GOMAXPROCS=1", tokenVariable+"=")
	child.WaitDelay = 15 * time.Second
	var log bytes.Buffer
	child.Stderr = &log
	stdin, err := child.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := child.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := child.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(stdout)
	var res result
	for lines.Scan() {
		if url, found := strings.CutPrefix(lines.Text(), shopLine); found {
			res = sc.follow(ctx, url, time.Now(), sc.plan(seed), func(phase) {})
			_ = stdin.Close() // the child shuts down; if it has exited already, Wait returns the error
		}
	}
	if err := errors.Join(stdin.Close(), child.Wait()); res == nil || child.ProcessState.ExitCode() != 0 {
		return nil, fmt.Errorf("the shop's process: %s: %s: %w", child.ProcessState, log.String(), err)
	}
	return res, nil
}
