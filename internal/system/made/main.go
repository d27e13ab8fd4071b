// SPDX-License-Identifier: Apache-2.0

// Made runs the command that writes a page of evidence, and notes below the page's last heading when, from which commit and where
// that was.
//
// Usage, at the root: go run ./internal/system/made PAGE 'WHAT A READER TYPES' COMMAND [ARGUMENT...]
//
// A page has one row for each command; a command that runs again replaces its own. Nothing is noted of one that has not written the
// page. One that fails may have: a page shows the targets that are missed, too. The exit code is the command's.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

const (
	heading = "\n## Runs\n"
	table   = heading + `
| date | commit | with | minutes | load before | command |
|---|---|---|--:|--:|---|
`
)

func main() {
	if len(os.Args) < 4 {
		exit(errors.New("usage: made PAGE 'WHAT A READER TYPES' COMMAND [ARGUMENT...]"))
	}
	page, typed := os.Args[1], os.Args[2]
	before, written := read(page)
	r := run{date: time.Now().UTC().Format("2006-01-02"), commit: commit(), with: machine(), load: load(), command: typed}
	began := time.Now()
	cmd := exec.Command(os.Args[3], os.Args[4:]...) //nolint:noctx // it ends by itself, or by the terminal's signal
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	failed := cmd.Run()
	r.minutes = time.Since(began).Minutes()
	after, since := read(page)
	if since != written {
		failed = errors.Join(failed, os.WriteFile(page, []byte(note(before, after, r)), 0o644)) //nolint:gosec // it is public
	}
	exit(failed)
}

// read returns the page, and when it was written.
func read(page string) (text string, written time.Time) {
	b, err := os.ReadFile(page)
	if err != nil {
		exit(err)
	}
	info, err := os.Stat(page)
	if err != nil {
		exit(err)
	}
	return string(b), info.ModTime()
}

// run is one row.
type run struct {
	date, commit, with, load, command string
	minutes                           float64
}

func (r run) String() string {
	return fmt.Sprintf("| %s | %s | %s | %.0f | %s %s", r.date, r.commit, r.with, max(r.minutes, 1), r.load, r.typed())
}

// typed is the column of the command, by which a row is known.
func (r run) typed() string {
	return "| `" + strings.ReplaceAll(r.command, "|", `\|`) + "` |"
}

// note returns the page as it is after the run, with the rows that it had before and the run's.
func note(before, after string, r run) string {
	_, rows, _ := strings.Cut(before, table)
	all := strings.FieldsFunc(rows, func(c rune) bool { return c == '\n' })
	all = slices.DeleteFunc(all, func(row string) bool { return strings.HasSuffix(row, r.typed()) })
	if !strings.Contains(r.command, "-render") { // which measures nothing
		all = append(all, r.String())
	}
	text, _, _ := strings.Cut(after, heading)
	return strings.TrimRight(text, "\n") + "\n" + table + strings.Join(all, "\n") + "\n"
}

// commit returns the commit that is checked out, with a plus if what is measured differs from it.
func commit() string {
	head, err := exec.Command("git", "rev-parse", "--short=8", "HEAD").Output() //nolint:noctx // it ends at once
	if err != nil {
		return "unknown"
	}
	changed, _ := exec.Command("git", "status", "--porcelain", "--", ":!docs").Output() //nolint:noctx // it ends at once
	if len(changed) > 0 {
		return strings.TrimSpace(string(head)) + "+"
	}
	return strings.TrimSpace(string(head))
}

// machine returns what it runs with, and on how many processors of which kind.
func machine() string {
	kind := "of an unknown kind"
	info, _ := os.ReadFile("/proc/cpuinfo") // elsewhere it stays unknown
	for line := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			kind = strings.TrimSpace(value)
		}
	}
	return fmt.Sprintf("%s %s/%s, %d processors, %s", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), kind)
}

// load returns the load average of the last minute.
func load() string {
	text, _ := os.ReadFile("/proc/loadavg") // elsewhere it is unknown
	first, _, ok := strings.Cut(string(text), " ")
	if !ok {
		return "unknown"
	}
	return first
}

// exit ends the program as the command did.
func exit(err error) {
	ended := (*exec.ExitError)(nil)
	switch {
	case errors.As(err, &ended):
		os.Exit(max(ended.ExitCode(), 1))
	case err != nil:
		fmt.Fprintln(os.Stderr, "made:", err)
		os.Exit(2)
	}
}
