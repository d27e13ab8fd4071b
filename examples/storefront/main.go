// Storefront reproduces two overload incidents with a real HTTP server and a real database. First a slow analytics query is
// deployed: to a shop whose routes share one connection pool, then to a shop with a bulkhead compartment and a pool for each
// route. Then a sale brings more requests than the processor can serve: without a warden, and with a warden in front of the
// server. -serve keeps the shop running, with its console, metrics, plan and mode.
//
// Read scenario.go (the numbers), shop.go (one pool, compartments, warden), demo.go (the four acts) and ops.go (operations).
//
// Exit codes: 0 the verdict holds, 1 the verdict does not hold or the run failed, 2 invalid arguments, 130 interrupted.
// (go run exits with 1 in all of these cases and prints the code.)
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills the process without cleanup
	os.Exit(run(ctx, os.Args[1:], incident(), sale(), os.Stdin, os.Stdout, os.Stderr))
}

// InvalidError reports an invalid flag or environment variable: its name, its value, and the allowed values.
type InvalidError struct{ Name, Value, Allowed string }

// Error implements error.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("%s is %s; allowed: %s", e.Name, e.Value, e.Allowed)
}

// run is main without the process: arguments in, exit code out.
func run(ctx context.Context, args []string, database, processor scenario, stdin io.Reader, stdout, stderr io.Writer) int {
	cfg := serving{token: os.Getenv(tokenVariable)}
	cfg.scenario = database
	flags := flag.NewFlagSet("storefront", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Uint64Var(&cfg.seed, "seed", 1, "`seed` of the random traffic")
	serve := flags.Bool("serve", false, "keep the shop running, with console, metrics, plan and mode")
	flags.StringVar(&cfg.way, "way", protected, "with -serve: `kind` of overload protection, "+divided+", "+protected+", or "+told+
		": one pool for all routes, which the warden asks, or "+defaults+": a warden as it comes, without a timeout")
	flags.StringVar(&cfg.listen, "listen", "127.0.0.1:8080", "with -serve: `address` of the shop")
	flags.StringVar(&cfg.ops, "ops", "127.0.0.1:6060", "with -serve: loopback `address` of console, metrics, plan and mode")
	flags.BoolVar(&cfg.traffic, "traffic", false, "with -serve: send the traffic of a normal day")
	flags.DurationVar(&cfg.scenario.render, "render", 0, "with -serve: CPU `time` of each products page")
	flags.IntVar(&cfg.scenario.partner, "partner", 0,
		"with -serve: `slots` that the reports of one partner, named by the header "+partnerHeader+", may take; 0: all")
	flags.Var(&cfg.fault, "fault", "with -serve: comma-separated `faults`: ROUTE=TIME (query duration), ROUTE=TIME/N (of every Nth), "+
		"ROUTE=hangs, ROUTE=streams or ROUTE=panics (its handlers), ROUTE=leaks (a connection at each query), "+
		"control=hangs (the warden gets no samples), memory=leaks, memory=cached (128 MiB at once), "+
		"database=locked (for writers), limiter=closed (while the process serves on), priority=critical (each route)")
	flags.DurationVar(&cfg.after, "fault-after", 0, "with -serve: `time` from start to the faults")
	untilEnd := flags.Bool("until-eof", false, "with -serve: also exit when standard input ends")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2 // flags has printed the error
	case flags.NArg() > 0:
		fmt.Fprintf(stderr, "storefront: unexpected argument %q: only flags are allowed, see -help\n", flags.Arg(0))
		return 2
	}
	var holds bool
	var err error
	if *serve {
		if *untilEnd { // a parent process holds the other end: this process ends with its parent, even if that crashes
			var cancel context.CancelFunc
			ctx, cancel = context.WithCancel(ctx)
			defer cancel()
			go func() { _, _ = io.Copy(io.Discard, stdin); cancel() }()
		}
		err = cfg.serve(ctx, stdout, stderr)
		holds = err == nil
	} else {
		holds, err = demo(ctx, database, processor, cfg.seed, stdout)
	}
	switch {
	case errors.As(err, new(*InvalidError)):
		fmt.Fprintln(stderr, "storefront:", err)
		return 2
	case ctx.Err() != nil && !*serve:
		fmt.Fprintln(stderr, "storefront: interrupted; the server has stopped and its files are removed")
		return 130
	case err != nil:
		fmt.Fprintln(stderr, "storefront:", err)
	}
	if !holds {
		return 1
	}
	return 0
}
