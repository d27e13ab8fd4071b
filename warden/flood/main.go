// SPDX-License-Identifier: Apache-2.0

// Flood sends a service more requests than it can answer, and shows who was answered, how soon the others heard no, and how the
// service came back. Requests begin at the times at which clients would send them, whether or not earlier ones were answered
// (an open loop), and every time counts from then, so that a slow service does not look better for slowing its load down.
//
//	go run github.com/stopbank/stopbank/warden/flood@v0.1.0 -load 2,4 http://127.0.0.1:8080/
//
// It measures the service's capacity first, unless -capacity says it. For each load it sends a base load (-base, half the
// capacity) for a while, then the load, then the base load again. The bounds are a rate of 20,000/s, 10,000 requests in flight,
// and 15 minutes for all loads together. It floods loopback only, unless it is told -beyond-loopback and the target answers
// with the header Flood-Agreed: the requests per second that it agrees to.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "flood:", err)
		os.Exit(1) //nolint:gocritic,forbidigo // it is a command, and nothing is left to stop
	}
}

// run is the command: the table goes to out, progress to progress.
func run(ctx context.Context, args []string, out, progress io.Writer) error {
	p, file, err := parse(args, progress)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	t, err := aim(ctx, p)
	if err != nil {
		return err
	}
	defer t.close()
	report, all, err := p.execute(ctx, t, progress)
	if err != nil {
		return err
	}
	if p.requests != "" {
		if err := writeRequests(p.requests, all); err != nil {
			return err
		}
	}
	report.Command = "flood " + strings.Join(args, " ")
	if file != "" {
		text, err := json.MarshalIndent(report, "", "  ")
		if err != nil {
			return err
		}
		if file == "-" {
			_, err = fmt.Fprintf(out, "%s\n", text)
			return err
		}
		if err := os.WriteFile(file, append(text, '\n'), 0o600); err != nil {
			return err
		}
	}
	_, err = io.WriteString(out, report.markdown())
	return err
}

// parse reads the arguments.
func parse(args []string, progress io.Writer) (p *plan, file string, err error) {
	p = &plan{}
	f := flag.NewFlagSet("flood", flag.ContinueOnError)
	f.SetOutput(progress)
	f.Usage = func() {
		fmt.Fprintln(progress, "Usage: flood [flags] URL\n\nflags:")
		f.PrintDefaults()
	}
	f.Func("load", "loads, as multiples of the capacity: `1,2,4` (default 2)", func(text string) error {
		for part := range strings.SplitSeq(text, ",") {
			x, err := strconv.ParseFloat(part, 64)
			if err != nil {
				return errors.New("allowed: numbers, separated by commas")
			}
			p.loads = append(p.loads, x)
		}
		return nil
	})
	f.Func("route", "a `route`, more than once: path=/buy,share=0.2,priority=critical,patience=2s,deadline=1s,method=POST,body=100,name=buy;\n"+
		"share is of all requests, patience is when the client leaves, deadline is what it tells the service (Warden-Timeout)\n"+
		"(default: the URL's path, with a patience of 2s)", p.addRoute)
	f.Float64Var(&p.capacity, "capacity", 0, "requests per `second` that the service can answer; 0: measure it")
	f.Float64Var(&p.base, "base", 0.5, "the `load` before and after each load")
	f.DurationVar(&p.before, "before", 3*time.Second, "`time` at the base load before each load; 0: from cold")
	f.DurationVar(&p.length, "for", 20*time.Second, "`time` at each load")
	f.DurationVar(&p.after, "after", 10*time.Second, "`time` at the base load after it, in which the service recovers")
	f.BoolVar(&p.http2, "http2", false, "HTTP/2 (without TLS: with prior knowledge)")
	f.BoolVar(&p.even, "even", false, "requests at even distances, each moved by up to half of one, instead of at random")
	f.BoolVar(&p.beyond, "beyond-loopback", false, "flood a target that is not on this machine, if it agrees: header Flood-Agreed")
	f.Uint64Var(&p.seed, "seed", 1, "of the arrivals: equal seeds give equal arrivals")
	f.StringVar(&file, "json", "", "write all results into this `file` too; -: on standard output, instead of the table")
	f.StringVar(&p.requests, "requests", "", "write each request into this `file` too, as CSV")
	if err := f.Parse(args); err != nil {
		return nil, "", err
	}
	if f.NArg() != 1 {
		return nil, "", &LimitError{"URL", strings.Join(f.Args(), " "), "one URL, after the flags"}
	}
	err = p.check(f.Arg(0))
	return p, file, err
}
