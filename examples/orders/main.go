// Orders is a pipeline that is killed twice while it works, and then shows that nothing was lost, doubled or turned around.
//
// Order events of many customers lie in a JetStream stream. A worker process takes them through lease/dispatch: its ledger, its
// position and the effects of its handlers live in JetStream too. Handlers fail and panic. The first worker is killed with
// SIGKILL half way, the second sends itself SIGKILL in the middle of a handler, behind its effect and before anybody knows of it; the third
// finishes. An audit then reads the effects: every order once, in order for each customer, under rising tokens. Exit code 1 says
// that it is not so.
//
// The server runs inside the process and keeps its files in -dir. With NATS_URL set a real one is used; what was made
// there is removed after an audit that went well.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"time"
)

// options are the flags. A worker gets those of its parent.
type options struct {
	orders, customers, workers int
	dir, run                   string
	worker                     bool
	crashAfter                 int
}

func main() {
	var o options
	flag.IntVar(&o.orders, "orders", 10_000, "order events")
	flag.IntVar(&o.customers, "customers", 1_000, "customers")
	flag.IntVar(&o.workers, "workers", 32, "handlers at once")
	flag.StringVar(&o.dir, "dir", "", "directory for the embedded server; empty: a temporary one, removed after an audit that went well")
	flag.StringVar(&o.run, "run", fmt.Sprintf("%08x", rand.Uint32()), "name of this run in the server")
	flag.BoolVar(&o.worker, "worker", false, "be the worker")
	flag.IntVar(&o.crashAfter, "crash-after", 0, "the worker sends itself SIGKILL in the handler of its nth effect; 0: it does not")
	flag.Parse()
	do := parent
	if o.worker {
		do = work
	}
	if err := do(o); err != nil {
		fmt.Fprintln(os.Stderr, "orders:", err)
		os.Exit(1)
	}
}

// parent fills the stream, lives through three workers, and audits.
func parent(o options) (failed error) {
	ctx := context.Background()
	if o.dir == "" {
		dir, err := os.MkdirTemp("", "orders-")
		if err != nil {
			return err
		}
		o.dir = dir
		defer func() {
			if failed == nil {
				_ = os.RemoveAll(dir)
			}
		}()
	}
	began := time.Now()
	if err := withServer(o, func(s *services) error { return s.fill(ctx, o) }); err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	fmt.Printf("%d orders of %d customers published in %v\n", o.orders, o.customers, time.Since(began).Round(time.Millisecond))

	o.worker = true
	for i, life := range []struct {
		how              string
		killAt, crashAft int
		killed           bool
	}{
		{"killed by its parent half way", o.orders / 2, 0, true},
		{"kills itself inside a handler", 0, o.orders / 4, true},
		{"left alone", 0, 0, false},
	} {
		began := time.Now()
		done, killed, err := live(o, life.killAt, life.crashAft)
		if err != nil {
			return fmt.Errorf("worker %d: %w", i+1, err)
		}
		fmt.Printf("worker %d (%s): last heard of at %d orders, killed: %v, %v\n", i+1, life.how, done, killed, time.Since(began).Round(time.Millisecond))
		if killed != life.killed {
			return fmt.Errorf("worker %d: killed %v, planned %v", i+1, killed, life.killed)
		}
	}
	return withServer(o, func(s *services) error {
		if err := s.audit(ctx, o); err != nil {
			return err
		}
		return s.remove(ctx)
	})
}

// live runs one worker until it ends, or kills it when it has done that many orders.
func live(o options, killAt, crashAfter int) (done int, killed bool, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, false, err
	}
	cmd := exec.Command(self, "-worker", "-orders", fmt.Sprint(o.orders), "-customers", fmt.Sprint(o.customers), "-workers", fmt.Sprint(o.workers),
		"-dir", o.dir, "-run", o.run, "-crash-after", fmt.Sprint(crashAfter))
	cmd.Env = append(os.Environ(), workerEnv+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, false, err
	}
	if err := cmd.Start(); err != nil {
		return 0, false, err
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if n := 0; strings.HasPrefix(lines.Text(), progress) {
			_, _ = fmt.Sscanf(lines.Text(), progress+"%d", &n)
			if done = n; killAt > 0 && done >= killAt && !killed {
				killed = true
				_ = cmd.Process.Kill() // SIGKILL: it gets no chance to do anything
			}
			continue
		}
		fmt.Println("  ", lines.Text())
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == -1 { // ended by a signal
		return done, true, nil
	}
	return done, false, err
}

const (
	// progress begins the lines that tell a parent how far its worker is.
	progress = "done: "
	// workerEnv makes a worker of a test binary.
	workerEnv = "ORDERS_WORKER"
)
