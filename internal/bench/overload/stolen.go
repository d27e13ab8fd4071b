//go:build linux

// What others took of the server's core: other processes of this machine, and the machine that this one may be a guest of.

package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// coreTime is how long a core has worked so far, for whom.
type coreTime struct {
	at    time.Time
	busy  float64 // seconds in which the core ran anything, or was withheld by the host
	child float64 // of them, for the server
}

// coreTimeOf reads the kernel's accounts, which have a resolution of 10 ms.
func coreTimeOf(core, pid int) (t coreTime, err error) {
	const tick = 0.01
	t.at = time.Now()
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return t, err
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 9 || f[0] != fmt.Sprintf("cpu%d", core) {
			continue
		}
		for i, text := range f[1:9] { // user nice system idle iowait irq softirq steal
			n, _ := strconv.ParseFloat(text, 64)
			if i != 3 && i != 4 {
				t.busy += n * tick
			}
		}
	}
	b, err = os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return t, err
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	if f := strings.Fields(rest); len(f) > 12 {
		for _, text := range f[11:13] { // utime stime
			n, _ := strconv.ParseFloat(text, 64)
			t.child += n * tick
		}
	}
	return t, nil
}

// stolen is the share of the time since before in which the core worked, but not for the server.
func (t coreTime) stolen(before coreTime) float64 {
	others := t.busy - before.busy - (t.child - before.child)
	return max(0, others/t.at.Sub(before.at).Seconds())
}
