// SPDX-License-Identifier: Apache-2.0

// Command programs runs programs that others have written, once bare and once behind the lines that README and the page of gRPC
// have a server add, drives both by the program's own clients, and prints how what they did has ended: what differs is ours.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"
)

func main() {
	served()
	only := flag.String("only", "", "run this program alone")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	differ, err := compare(ctx, *only)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if differ || err != nil {
		os.Exit(1)
	}
}

// compare prints a table of each program, or of one, and says whether one differs.
func compare(ctx context.Context, only string) (differ bool, err error) {
	for _, p := range programs() {
		if only != "" && p.name != only {
			continue
		}
		alone, err := p.run(ctx, bare)
		if err != nil {
			return differ, err
		}
		ours, err := p.run(ctx, protected)
		if err != nil {
			return differ, err
		}
		differ = table(p.name, alone, ours) || differ
	}
	return differ, nil
}

// table prints a program's rows, and says whether one differs.
func table(name string, alone, ours *tally) (differ bool) {
	fmt.Printf("\n| %s | bare | longest | ours | longest | |\n|---|---|---|---|---|---|\n", name)
	for _, what := range alone.rows() {
		verdict := ""
		if alone.row(what) != ours.row(what) {
			differ, verdict = true, "differs"
		}
		fmt.Printf("| %s | %s | %v | %s | %v | %s |\n", what, alone.row(what), alone.longest[what].Round(time.Millisecond),
			ours.row(what), ours.longest[what].Round(time.Millisecond), verdict)
	}
	return differ
}
