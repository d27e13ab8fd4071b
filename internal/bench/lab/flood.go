// SPDX-License-Identifier: Apache-2.0

//go:build linux

// The load: flood, a process of its own, sends an open loop of requests, and measures what a server can do.

package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// request is one request of a run, with its intended time and its outcome. Times are nanoseconds since the start of the run.
type request struct {
	due, sent, done int64 // sent 0: it was not, or its connection broke
	status          int   // 0: no response before the client left
	critical, heavy bool
	broken, counted bool
}

// overdue is the time at which the client of a request leaves.
func (r *request) overdue(patience time.Duration) int64 { return r.due + int64(patience) }

// criticalShare is the fraction of critical requests.
const criticalShare = 0.2

// clients are those of one cell.
type clients struct {
	flood func(args ...string) *exec.Cmd
	addr  string // whom it asks
	of    *group
}

// phases of a run: those of length count.
type phases struct{ warm, length, tail time.Duration }

// open sends requests at random times (exponential gaps), or at even distances: one in five critical, and of some workloads one in ten
// heavy. Equal seeds give equal arrivals. warmed is called after the warm-up.
func (c *clients) open(rate float64, p phases, seed uint64, warmed func() error) ([]request, error) {
	file, err := os.CreateTemp("", "requests")
	if err != nil {
		return nil, err
	}
	defer func() { _ = errors.Join(file.Close(), os.Remove(file.Name())) }()
	cmd := c.flood(append(c.args(), "-requests", file.Name(), "-capacity", fmt.Sprint(rate), "-load", "1", "-before", "0s",
		"-for", (p.warm + p.length + p.tail).String(), "-after", "0s", "-seed", fmt.Sprint(seed), "http://"+c.addr)...)
	var progress bytes.Buffer
	cmd.Stderr = &progress
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	time.Sleep(p.warm)
	err = warmed()
	if failed := cmd.Wait(); failed != nil {
		return nil, fmt.Errorf("flood: %w: %s", failed, &progress)
	}
	if err != nil {
		return nil, err
	}
	all, err := parse(file)
	for i := range all {
		all[i].counted = all[i].due >= int64(p.warm) && all[i].due < int64(p.warm+p.length)
	}
	return all, err
}

// args describe the clients to flood.
func (c *clients) args() (all []string) {
	if c.of.work.even {
		all = append(all, "-even")
	}
	heavies := map[string]float64{"light": 1}
	if c.of.work.heavy > 0 {
		heavies = map[string]float64{"light": 1 - heavyShare, "heavy": heavyShare}
	}
	priorities := map[string]float64{"normal": 1 - criticalShare, "critical": criticalShare}
	for _, priority := range []string{"normal", "critical"} {
		for _, name := range slices.Sorted(maps.Keys(heavies)) {
			route := fmt.Sprintf("name=%s,priority=%s,path=%s,share=%.4f,patience=%v", name, priority,
				path(priority == "critical", name == "heavy"), heavies[name]*priorities[priority], c.of.patience())
			all = append(all, "-route", route)
		}
	}
	return all
}

// path is that of a kind of request.
func path(critical, heavy bool) string {
	return map[bool]string{false: "/search", true: "/checkout"}[critical] + map[bool]string{true: "/heavy"}[heavy]
}

// columns are those of flood's file of requests.
const columns = "load,phase,route,priority,due_ms,sent_ms,done_ms,status,ended"

// parse reads that file.
func parse(file io.Reader) (all []request, err error) {
	lines, err := csv.NewReader(file).ReadAll()
	if err != nil || len(lines) == 0 || strings.Join(lines[0], ",") != columns {
		return nil, fmt.Errorf("flood's requests have %d lines, and not the columns %s: %w", len(lines), columns, err)
	}
	for _, f := range lines[1:] {
		at := func(text string) int64 {
			value, bad := strconv.ParseFloat(text, 64)
			err = errors.Join(err, bad)
			return int64(value * float64(time.Millisecond))
		}
		status, bad := strconv.Atoi(f[7])
		r := request{due: at(f[4]), sent: at(f[5]), done: at(f[6]), status: status, critical: f[3] == "critical", heavy: f[2] == "heavy",
			broken: f[8] == "broken"}
		if r.broken || f[8] == "not sent" {
			r.sent, r.done = 0, 0
		}
		if err := errors.Join(err, bad); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// capacity is the rate that flood's closed loop measures, by clients who wait for their answers.
func (c *clients) capacity() (perSecond float64, err error) {
	cmd := c.flood(append(c.args(), "-json", "-", "-load", "0.1", "-before", "0s", "-for", "1s", "-after", "0s", "http://"+c.addr)...)
	var progress bytes.Buffer
	cmd.Stderr = &progress
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("flood: %w: %s", err, &progress)
	}
	var measured struct{ Capacity float64 }
	return measured.Capacity, json.Unmarshal(out, &measured)
}
