// Storefront runs an overload incident for real, three ways. A slow analytics query ships to a shop whose routes share one
// pool of database connections, and to the same shop with a compartment and a pool per route; then the processor of that
// shop is overloaded, without and with a warden in front of it. With -serve the shop stays open, with its console; with
// -matrix each compartment is overloaded in turn.
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
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second ctrl-C does not wait for the clean-up
	os.Exit(run(ctx, os.Args[1:], demo{incident(), overload()}, os.Stdin, os.Stdout, os.Stderr))
}

// A demo is what is told: one scenario for the database, one for the processor.
type demo struct{ incident, overload scenario }

// run is the program but for the process around it.
func run(ctx context.Context, args []string, d demo, stdin io.Reader, stdout, stderr io.Writer) int {
	cfg := serving{token: os.Getenv(tokenVariable)}
	cfg.database = os.Getenv(databaseVariable)
	flags := flag.NewFlagSet("storefront", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Uint64Var(&cfg.seed, "seed", 1, "`number` that fixes the traffic")
	asJSON := flags.Bool("json", false, "print the result as JSON; progress goes to standard error")
	asMatrix := flags.Bool("matrix", false, "overload each compartment alone, then all together, and judge the others")
	serve := flags.Bool("serve", false, "keep the shop open, with its console, metrics and plan; the flags below are for this")
	flags.StringVar(&cfg.way, "way", protected, "how the shop works: "+divided+" or "+protected)
	flags.StringVar(&cfg.address, "listen", "127.0.0.1:8080", "`address` of the shop")
	flags.StringVar(&cfg.ops, "ops", "127.0.0.1:6060", "`address` of console, metrics and plan, on loopback")
	flags.BoolVar(&cfg.traffic, "traffic", false, "send the customers of the incident, again and again")
	flags.DurationVar(&cfg.render, "render", 0, "`time` of a processor that a page of products takes")
	flags.Var(&cfg.fault, "fault", "`what` goes wrong: a list of ROUTE=TIME (its queries take so long) and control=hangs")
	flags.DurationVar(&cfg.after, "fault-after", 0, "`time` until then")
	untilEnd := flags.Bool("until-eof", false, "close when standard input ends, too")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2 // flags has said why
	case flags.NArg() > 0:
		fmt.Fprintf(stderr, "storefront: unexpected argument %q: it takes flags only, see -help\n", flags.Arg(0))
		return 2
	}
	if cfg.database != "" {
		d.incident, d.overload = d.incident.halved(), d.overload.halved()
	}
	cfg.scenario = d.incident
	if !*serve {
		cfg.address = "" // any port: a demo must not meet another
	}
	progress := stdout
	if *asJSON {
		progress = stderr
	}

	var told story
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
		told, err = matrix(ctx, cfg.shopConfig, cfg.seed, progress)
	default:
		told, err = d.tell(ctx, cfg.shopConfig, cfg.seed, progress)
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
		fmt.Fprintln(stderr, "storefront: interrupted; the server is stopped and its files are removed")
		return 130
	case *asJSON:
		if err := printJSON(stdout, d.incident.scale, cfg.seed, told.results, told.findings); err != nil {
			fmt.Fprintln(stderr, "storefront:", err)
			return 1
		}
	default:
		told.print(stdout)
	}
	if !told.findings.hold() {
		return 1
	}
	return 0
}
