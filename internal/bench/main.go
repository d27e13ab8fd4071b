// SPDX-License-Identifier: Apache-2.0

// Command bench measures each layer beside its peers in one process, and prints ratios beside their targets.
//
// Absolute times of a small, noisy machine mean little; the ratio of two measurements taken in turn, many times, means more.
// Every row therefore interleaves its variants: in each round each variant is a testing benchmark of a few milliseconds, and the
// order rotates by one from round to round. The report has the median over the rounds, and for a ratio the median of the rounds'
// ratios with its 95 % interval. Rows in which Stopbank is slower stay in the table.
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"
)

func main() {
	if os.Getenv(natsVariable) != "" {
		serveNATS()
		return
	}
	if o := told(); o != nil {
		work(*o)
		return
	}
	only := flag.String("rows", "", "measure only the rows whose layer: title matches this regular expression")
	out := flag.String("o", "", "also write the lines into the table of this page, in the place of the same rows")
	flag.Parse()

	filter, err := regexp.Compile(*only)
	switch {
	case err != nil:
		exit("-rows: %v", err)
	case flag.NArg() > 0:
		exit("unexpected argument %q", flag.Arg(0))
	}
	testing.Init()
	must(0, flag.Set("test.benchtime", "10ms")) // of a variant in a round

	defer stopServers()
	rows := slices.DeleteFunc(slices.Concat(admissionRows(), leaseRows(), throughputRows(), wardenRows()),
		func(r row) bool { return !filter.MatchString(r.layer + ": " + r.title) })
	if len(rows) == 0 {
		exit("-rows %q matches no row", *only)
	}
	var done []result
	for i, r := range rows {
		fmt.Fprintf(os.Stderr, "\r\033[K%d/%d %s", i+1, len(rows), r.title)
		done = append(done, r.measure())
		rows[i] = row{} // and its instances
	}
	fmt.Fprint(os.Stderr, "\r\033[K")

	if !havePostgres() {
		fmt.Println("left out: the rows on PostgreSQL, which is not installed")
	}
	for _, r := range done {
		fmt.Println(r.line())
	}
	if *out != "" {
		must(0, os.WriteFile(*out, []byte(must(insert(string(must(os.ReadFile(*out))), done))), 0o644))
	}
}

// must returns v, or ends the program.
func must[T any](v T, err error) T {
	if err != nil {
		exit("%v", err)
	}
	return v
}

func exit(format string, args ...any) {
	stopServers()
	fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...)
	os.Exit(2)
}
