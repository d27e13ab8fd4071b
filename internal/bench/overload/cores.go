// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Processors: which core runs what, and the processor time that the server lost to other processes and to the host of a virtual
// machine.

package main

import (
	"errors"
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

// placement assigns cores to server and generator.
type placement struct {
	server    []int
	generator int
}

// place gives the server n cores, and the generator the next one or, if there is none, the last.
func place(cores []int, n int) (placement, error) {
	if n > len(cores) {
		return placement{}, fmt.Errorf("%d cores may be used; the server needs %d", len(cores), n)
	}
	return placement{cores[:n], cores[min(n, len(cores)-1)]}, nil
}

// cores locks the calling goroutine to its thread and returns the cores that it may use.
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
	_ = os.WriteFile("/proc/self/autogroup", []byte("-20"), 0o644) // makes the priority effective across sessions
	return all, nil
}

// pin restricts the calling thread to these cores.
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

// prefer sets the priority of the calling thread and of processes that it starts, so that other processes disturb the measurement
// less. Without the privilege for it the numbers are noisier.
func prefer(nice int) error {
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, nice); err != nil && err != unix.EACCES && err != unix.EPERM {
		return err
	}
	return nil
}

// settle restricts all threads of this process to a core, at the generator's priority.
func settle(core int) error {
	var set unix.CPUSet
	set.Set(core)
	threads, err := os.ReadDir("/proc/self/task")
	for _, t := range threads {
		id, _ := strconv.Atoi(t.Name())
		if failed := unix.SchedSetaffinity(id, &set); failed != nil && failed != unix.ESRCH {
			err = errors.Join(err, fmt.Errorf("pinning thread %d to core %d: %w", id, core, failed))
		}
		_ = unix.Setpriority(unix.PRIO_PROCESS, id, -20) // without the privilege the numbers are noisier
	}
	return err
}

// lost is the accumulated time for which a server was runnable but not running, and that for which it ran.
type lost struct {
	at       time.Time
	ran      time.Duration
	waited   time.Duration // of its threads, for a core
	withheld time.Duration // of its cores, by the host; in steps of 10 ms
}

// lostOf reads the kernel's accounts. Ended threads are missing; the server's threads do not end.
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
		if f := strings.Fields(string(b)); len(f) > 1 { // running, waiting, count
			ran, _ := strconv.ParseInt(f[0], 10, 64)
			waited, _ := strconv.ParseInt(f[1], 10, 64)
			l.ran += time.Duration(ran)
			l.waited += time.Duration(waited)
		}
	}
	return l, nil
}

// stolen is the fraction of n cores' time since before in which the server was runnable but not running.
func (l lost) stolen(before lost, n int) float64 {
	time := float64(l.at.Sub(before.at)) * float64(n)
	// something is always left to divide by
	return min(max(0, float64(l.waited-before.waited+l.withheld-before.withheld)/time), 0.99)
}
