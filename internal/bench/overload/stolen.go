//go:build linux

// What others took of the server's core: other processes of this machine, and the machine that this one may be a guest of.

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// lost is for how long, so far, a server could have computed and had to wait.
type lost struct {
	at       time.Time
	waited   time.Duration // of its threads, for the core
	withheld time.Duration // of the core, by the host; in steps of 10 ms
}

// lostOf reads the kernel's accounts. A thread that has ended is forgotten; servers keep theirs.
func lostOf(core, pid int) (lost, error) {
	l := lost{at: time.Now()}
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return l, err
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 8 && f[0] == fmt.Sprintf("cpu%d", core) {
			ticks, _ := strconv.Atoi(f[8])
			l.withheld = time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(threads) == 0 {
		return l, fmt.Errorf("the kernel does not say how long process %d waits for its core: %w", pid, err)
	}
	for _, path := range threads {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		if f := strings.Fields(string(b)); len(f) > 1 { // running, waiting, times
			ns, _ := strconv.ParseInt(f[1], 10, 64)
			l.waited += time.Duration(ns)
		}
	}
	return l, nil
}

// stolen is the share of the time since before in which the server could have computed and had to wait.
func (l lost) stolen(before lost) float64 {
	time := l.at.Sub(before.at)
	return min(max(0, float64(l.waited-before.waited+l.withheld-before.withheld)/float64(time)), 1)
}
