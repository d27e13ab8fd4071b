// SPDX-License-Identifier: Apache-2.0

// A recording: the series that Prometheus stored of a phase, as text that a test can read.
package main

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
)

// A target is one replica as seen by one scrape job.
type target struct {
	every  string // scrape interval of the job
	times  []int  // of the scrapes, in seconds since the start of the phase
	series map[string][]string
}

// recording is the file of a phase.
func recording(phase string) string { return "docs/prometheus/recorded/" + phase + ".txt.gz" }

// write writes a recording. Each target begins with a line "@ INTERVAL SECOND…" with its scrape times as differences; a line
// per series follows, with its name, labels and the value of each scrape. _: missing in this scrape; VALUExN: N times VALUE.
func write(path, comment string, targets []target) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	z, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(z)
	fmt.Fprintln(out, "# "+comment)
	for _, t := range targets {
		fmt.Fprint(out, "@ ", t.every)
		for i, at := range t.times {
			if i > 0 {
				at -= t.times[i-1]
			}
			fmt.Fprint(out, " ", at)
		}
		fmt.Fprintln(out)
		for _, name := range slices.Sorted(maps.Keys(t.series)) {
			fmt.Fprintln(out, name+" "+strings.Join(runs(t.series[name]), " "))
		}
	}
	return errors.Join(out.Flush(), z.Close())
}

// read reads the output of write.
func read(path string) (targets []target, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(z)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) < 2:
			return nil, fmt.Errorf("%s:%d: too short", path, n)
		case fields[0] == "#":
		case fields[0] == "@":
			t := target{every: fields[1], series: map[string][]string{}}
			at := 0
			for _, field := range fields[2:] {
				after, err := strconv.Atoi(field)
				if err != nil {
					return nil, fmt.Errorf("%s:%d: %w", path, n, err)
				}
				at += after
				t.times = append(t.times, at)
			}
			targets = append(targets, t)
		case len(targets) == 0:
			return nil, fmt.Errorf("%s:%d: a series before its target", path, n)
		default:
			t := targets[len(targets)-1]
			labels := strings.LastIndex(lines.Text(), "} ") + 1
			name := lines.Text()[:labels]
			for field := range strings.FieldsSeq(lines.Text()[labels:]) {
				value, times, repeated := strings.Cut(field, "x")
				count := 1
				if repeated {
					if count, err = strconv.Atoi(times); err != nil {
						return nil, fmt.Errorf("%s:%d: %w", path, n, err)
					}
				}
				t.series[name] = append(t.series[name], slices.Repeat([]string{value}, count)...)
			}
			if len(t.series[name]) != len(t.times) {
				return nil, fmt.Errorf("%s:%d: %d values for %d scrapes", path, n, len(t.series[name]), len(t.times))
			}
		}
	}
	return targets, lines.Err()
}

// labeled is a series with the labels that Prometheus adds to what it scrapes.
func labeled(name string, instance int) string {
	own := strings.Replace(strings.TrimSuffix(name, "}")+",", "{,", "{", 1)
	return fmt.Sprintf("%sjob=\"storefront\",instance=\"%d\"}", own, instance)
}

// runs shortens repeated values.
func runs(values []string) (short []string) {
	for i := 0; i < len(values); {
		n := 1
		for i+n < len(values) && values[i+n] == values[i] {
			n++
		}
		if n > 1 {
			short = append(short, fmt.Sprintf("%sx%d", values[i], n))
		} else {
			short = append(short, values[i])
		}
		i += n
	}
	return short
}
