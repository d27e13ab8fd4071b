// Storefront reproduces two overload incidents with a real HTTP server and a real database. First, a slow analytics query
// is deployed: to a shop whose routes share one connection pool, then to a shop with a bulkhead compartment and a pool for
// each route. Second, traffic exceeds the CPU: without a warden, then with a warden in front of the server. -serve keeps
// the shop running, with its console; -matrix overloads each compartment in turn.
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
	os.Exit(run(ctx, os.Args[1:], demo{incident(), overload()}, os.Stdin, os.Stdout, os.Stderr))
}

// A demo has one scenario for the database and one for the processor.
type demo struct{ incident, overload scenario }

// run is main without the process: arguments in, exit code out.
func run(ctx context.Context, args []string, d demo, stdin io.Reader, stdout, stderr io.Writer) int {
	cfg := serving{token: os.Getenv(tokenVariable)}
	cfg.database = os.Getenv(databaseVariable)
	flags := flag.NewFlagSet("storefront", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Uint64Var(&cfg.seed, "seed", 1, "`seed` of the random traffic")
	asJSON := flags.Bool("json", false, "print the result as JSON; progress goes to standard error")
	asMatrix := flags.Bool("matrix", false, "overload each compartment alone, then all together, and check the others")
	serve := flags.Bool("serve", false, "keep the shop running, with console, metrics and plan")
	flags.StringVar(&cfg.way, "way", protected, "with -serve: `kind` of overload protection, "+divided+" or "+protected)
	flags.StringVar(&cfg.address, "listen", "127.0.0.1:8080", "with -serve: `address` of the shop")
	flags.StringVar(&cfg.ops, "ops", "127.0.0.1:6060", "with -serve: loopback `address` of console, metrics and plan")
	flags.BoolVar(&cfg.traffic, "traffic", false, "with -serve: send the traffic of the incident in a loop")
	flags.DurationVar(&cfg.render, "render", 0, "with -serve: CPU `time` of each products page")
	flags.Var(&cfg.fault, "fault",
		"with -serve: comma-separated `faults`: ROUTE=TIME (query duration), control=hangs (the warden gets no samples)")
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
	if cfg.database != "" {
		d.incident, d.overload = d.incident.halved(), d.overload.halved()
	}
	cfg.scenario = d.incident
	if !*serve {
		cfg.address = "" // any port: several demos may run at once
	}
	progress := stdout
	if *asJSON {
		progress = stderr
	}

	var report story
	var err error
	switch {
	case *serve:
		if *untilEnd {
			var cancel context.CancelFunc
			ctx, cancel = untilEOF(ctx, stdin)
			defer cancel()
		}
		err = cfg.serve(ctx, stdout, stderr)
	case *asMatrix:
		report, err = matrix(ctx, cfg.shopConfig, cfg.seed, progress)
	default:
		report, err = d.run(ctx, cfg.shopConfig, cfg.seed, progress)
	}
	switch invalid := (*InvalidError)(nil); {
	case errors.As(err, &invalid):
		fmt.Fprintln(stderr, "storefront:", err)
		return 2
	case err != nil && !errors.Is(err, context.Canceled):
		fmt.Fprintln(stderr, "storefront:", err)
		return 1
	case *serve:
		return 0
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "storefront: interrupted; the server has stopped and its files are removed")
		return 130
	case *asJSON:
		if err := printJSON(stdout, d.incident.scale, cfg.seed, report.results, report.findings); err != nil {
			fmt.Fprintln(stderr, "storefront:", err)
			return 1
		}
	default:
		report.print(stdout)
	}
	if !report.findings.hold() {
		return 1
	}
	return 0
}
