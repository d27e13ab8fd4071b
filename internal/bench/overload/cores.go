//go:build linux

// The cores: who runs where, and what others took of the server's: other processes of this machine, and the machine that this
// one may be a guest of.

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// placement is who runs where.
type placement struct {
	server    []int
	generator int
	shared    bool // the generator's core is one of the server's
}

// place gives the server n of the cores, and the generator the next one, or, if there is none, the last.
func place(cores []int, n int) (placement, error) {
	if n > len(cores) {
		return placement{}, fmt.Errorf("%d cores may be used; the server needs %d", len(cores), n)
	}
	return placement{cores[:n], cores[min(n, len(cores)-1)], n == len(cores)}, nil
}

// cores locks the calling goroutine to its thread, and returns the cores that it may use.
func cores() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, err
	}
	var all []int
	for i := 0; len(all) < set.Count(); i++ {
		if set.IsSet(i) {
			all = append(all, i)
		}
	}
	runtime.LockOSThread()
	_ = os.WriteFile("/proc/self/autogroup", []byte("-20"), 0o644) // what a priority is worth beyond this session
	return all, nil
}

// pin puts the calling thread on these cores.
func pin(cores ...int) error {
	var set unix.CPUSet
	for _, c := range cores {
		set.Set(c)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pinning to cores %v: %w", cores, err)
	}
	return nil
}

// prefer gives the calling thread, and what it starts from now on, a priority: whatever else runs on this machine shall
// disturb as little as possible. It takes a privilege, and without it the numbers are only noisier.
func prefer(nice int) error {
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, nice); err != nil && err != unix.EACCES && err != unix.EPERM {
		return err
	}
	return nil
}

// lost is for how long, so far, a server could have computed and had to wait.
type lost struct {
	at       time.Time
	waited   time.Duration // of its threads, for a core
	withheld time.Duration // of its cores, by the host; in steps of 10 ms
}

// lostOf reads the kernel's accounts. A thread that has ended is forgotten; servers keep theirs.
func lostOf(cores []int, pid int) (lost, error) {
	l := lost{at: time.Now()}
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return l, err
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if slices.ContainsFunc(cores, func(c int) bool { return len(f) > 8 && f[0] == fmt.Sprintf("cpu%d", c) }) {
			ticks, _ := strconv.Atoi(f[8])
			l.withheld += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(threads) == 0 {
		return l, fmt.Errorf("the kernel does not say how long process %d waits for its cores: %w", pid, err)
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

// stolen is the share of the time of n cores, since before, in which the server could have computed and had to wait.
func (l lost) stolen(before lost, n int) float64 {
	time := float64(l.at.Sub(before.at)) * float64(n)
	return min(max(0, float64(l.waited-before.waited+l.withheld-before.withheld)/time), 1)
}
