// SPDX-License-Identifier: Apache-2.0

//go:build linux

// What a sample costs a process with many threads.

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stopbank/stopbank/warden/monitor"
)

// cost is that of samples every 100 ms, which read some sources only once a second.
type cost struct {
	Threads                int
	Median, P90, Worst     float64 // microseconds of the thread's processor time
	WorstWall              float64 // microseconds
	Allocations, MostAtOne float64 // a sample, on average and at most
	Samples                int
}

// measureCosts asks a process for each number of threads.
func (l *lab) measureCosts(e *evidence) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	e.Costs = nil
	for _, n := range []int{20, 200, 2000} {
		cmd := exec.Command(self, "-threads", fmt.Sprint(n)) //nolint:noctx // it ends after some seconds
		cmd.Stderr = os.Stderr
		b, err := cmd.Output()
		var c cost
		if err := errors.Join(err, json.Unmarshal(b, &c)); err != nil {
			return err
		}
		e.Costs = append(e.Costs, c)
		fmt.Printf("%+v\n", c)
	}
	return nil
}

// sampleBeside prints what samples cost beside so many threads that block in the kernel.
func sampleBeside(threads int) error {
	var pipe [2]int
	if err := unix.Pipe(pipe[:]); err != nil {
		return err
	}
	for range threads {
		go func() {
			runtime.LockOSThread()
			_, _ = unix.Read(pipe[0], make([]byte, 1))
		}()
	}
	for wait := time.Now(); time.Since(wait) < 20*time.Second; time.Sleep(10 * time.Millisecond) {
		if all, err := os.ReadDir("/proc/self/task"); err == nil && len(all) >= threads {
			break
		}
	}
	s, err := monitor.New()
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	c := cost{Threads: threads, Samples: 100}
	var took []float64
	var before, after runtime.MemStats
	for i := range c.Samples + 1 {
		time.Sleep(100 * time.Millisecond)
		runtime.ReadMemStats(&before)
		began, used := time.Now(), threadTime()
		s.Sample()
		spent, wall := threadTime()-used, time.Since(began)
		runtime.ReadMemStats(&after)
		if i == 0 { // it opens what the others read
			continue
		}
		allocations := float64(after.Mallocs - before.Mallocs)
		took = append(took, float64(spent)/1e3)
		c.WorstWall = max(c.WorstWall, float64(wall)/1e3)
		c.Allocations += allocations / float64(c.Samples)
		c.MostAtOne = max(c.MostAtOne, allocations)
	}
	slices.Sort(took)
	c.Median, c.P90, c.Worst = took[len(took)/2], took[len(took)*9/10], took[len(took)-1]
	return json.NewEncoder(os.Stdout).Encode(c)
}

// threadTime returns the processor time of the calling thread.
func threadTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
