// Command bench measures each layer beside its peers in one process, and prints ratios beside their targets.
//
// Absolute times of a small, noisy machine mean little; the ratio of two measurements taken in turn, many times, means more. Every
// row therefore interleaves its variants: in each round each variant runs for a few milliseconds, and the order rotates by one from
// round to round. The report has the median over the rounds, and for a ratio the median of the rounds' ratios with its 95 %
// interval. Rows in which Stopbank is slower stay in the table.
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"time"
)

func main() {
	if spec := os.Getenv(memberVariable); spec != "" {
		member(spec)
	}
	rounds := flag.Int("rounds", 41, "rounds per row, at least 5")
	slice := flag.Duration("slice", 10*time.Millisecond, "how long a variant runs in a round, from 1ms to 1s")
	only := flag.String("rows", "", "measure only the rows whose title matches this regular expression")
	out := flag.String("o", "", "also write the tables to this Markdown file")
	flag.Parse()

	filter, err := regexp.Compile(*only)
	switch {
	case err != nil:
		exit("-rows: %v", err)
	case *rounds < 5:
		exit("-rounds is %d; allowed: 5 or more", *rounds)
	case *slice < time.Millisecond || *slice > time.Second:
		exit("-slice is %v; allowed: 1ms to 1s", *slice)
	case flag.NArg() > 0:
		exit("unexpected argument %q", flag.Arg(0))
	}

	defer endPostgres()
	defer endNATS()
	rows := slices.DeleteFunc(allRows(), func(r row) bool { return !filter.MatchString(r.title) })
	if len(rows) == 0 {
		exit("-rows %q matches no row", *only)
	}
	var done []result
	for i, r := range rows {
		fmt.Fprintf(os.Stderr, "\r\033[K%d/%d %s", i+1, len(rows), r.title)
		done = append(done, measure(r, *rounds, *slice))
	}
	fmt.Fprint(os.Stderr, "\r\033[K")

	text := document(done, *rounds, *slice)
	fmt.Print(text)
	if *out != "" {
		if err := os.WriteFile(*out, []byte(text), 0o644); err != nil {
			exit("%v", err)
		}
	}
}

// allRows returns the rows of every layer, in the order of the report.
func allRows() []row {
	return slices.Concat(admissionRows(), leaseRows(), leasenatsRows(), leasepgRows(), dispatchRows(),
		throughputPostgresRows(), throughputJetstreamRows(), throughputKafkaRows(), wardenRows(), bulkheadRows(), wardenhttpRows())
}

func exit(format string, args ...any) {
	endPostgres()
	endNATS()
	fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...)
	os.Exit(2)
}
