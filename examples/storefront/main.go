// Storefront runs one overload incident for real, twice: a slow analytics query in a shop whose routes share one pool
// of database connections, and in the same shop with a gate and a pool per route.
//
// Exit code: 0 the verdict holds, 1 it does not or the run failed, 2 wrong arguments, 130 interrupted (go run itself
// answers 1 to any of them and prints the code).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// ways are run in this order, under the same traffic.
var ways = []struct {
	short, name string
	open        openWay
}{
	{"shared pool", "one pool of connections shared by all routes", openShared},
	{"isolated", "a gate and a pool per route", openIsolated},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second ctrl-C does not wait for the clean-up
	os.Exit(run(ctx, os.Args[1:], incident(), os.Stdout, os.Stderr))
}

// run is the program but for the process around it.
func run(ctx context.Context, args []string, sc scenario, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("storefront", flag.ContinueOnError)
	flags.SetOutput(stderr)
	seed := flags.Uint64("seed", 1, "`number` that fixes the traffic")
	asJSON := flags.Bool("json", false, "print the result as JSON; progress goes to standard error")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2 // flags has said why
	case flags.NArg() > 0:
		fmt.Fprintf(stderr, "storefront: unexpected argument %q: it takes flags only, see -help\n", flags.Arg(0))
		return 2
	}
	progress := stdout
	if *asJSON {
		progress = stderr
	}

	printIntro(progress, sc, *seed)
	var results []result
	for i, w := range ways {
		printWay(progress, i+1, w.name)
		res, err := runWay(ctx, sc, *seed, w.open, func(m moment) { printMoment(progress, m) })
		if err != nil && !errors.Is(err, context.Canceled) {
			fmt.Fprintf(stderr, "storefront: %s: %v\n", w.short, err)
			return 1
		}
		if ctx.Err() != nil {
			fmt.Fprintln(stderr, "storefront: interrupted; the server is stopped and its files are removed")
			return 130
		}
		results = append(results, res)
	}

	findings, holds := judge(results[0], results[1], demoLimits)
	if *asJSON {
		if err := printJSON(stdout, sc, *seed, results, findings, holds); err != nil {
			fmt.Fprintln(stderr, "storefront:", err)
			return 1
		}
	} else {
		printTable(stdout, results)
		printVerdict(stdout, findings, holds)
	}
	if !holds {
		return 1
	}
	return 0
}

// runWay opens a shop that works in one way, sends it the whole incident and takes it down again, also when ctx ends
// early. It leaves nothing behind: no goroutine, no file.
func runWay(ctx context.Context, sc scenario, seed uint64, open openWay, tell func(moment)) (_ result, err error) {
	closing := func(end func() error) { err = errors.Join(err, end()) }
	st, err := openStore(ctx)
	if err != nil {
		return result{}, err
	}
	defer closing(st.close)
	w, err := open(ctx, st, sc)
	if err != nil {
		return result{}, err
	}
	defer closing(w.close)
	srv, err := serve(w)
	if err != nil {
		return result{}, err
	}
	defer closing(srv.close)
	defer st.wake()
	client := newClient()
	defer client.CloseIdleConnections()

	counts := newTally()
	all := plan(sc, seed)
	start := time.Now()
	said := start
	say := func() {
		said = time.Now()
		elapsed := said.Sub(start)
		tell(moment{elapsed, sc.at(elapsed - time.Second/2), counts.takeRecent(), w.inUse()})
	}
	done := make(chan struct{})
	var saying sync.WaitGroup
	saying.Go(func() {
		every := time.NewTicker(time.Second)
		defer every.Stop()
		for {
			select {
			case <-every.C:
				say()
			case <-done:
				return
			}
		}
	})
	shoppers := customers{srv.url, client, sc.patience, counts.record}
	shoppers.follow(ctx, start, all, func(p phase) { srv.deploy(sc.report[p]) })
	close(done)
	saying.Wait()
	if time.Since(said) > time.Second/2 { // the last second ended before its tick
		say()
	}
	return counts.result(), nil
}
