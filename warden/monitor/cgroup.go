// SPDX-License-Identifier: Apache-2.0

// The process's cgroup: its processor quota, throttled time and memory limit, read once a second.

package monitor

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"time"
)

// cgroupEvery is the time between two reads of the cgroup, which costs more than the rest of a sample.
const cgroupEvery = time.Second

// noMemory and more bytes are no limit.
const noMemory = 1 << 60

// A cgroup is the process's cgroup with all its visible ancestors: a quota or limit at any level applies. The zero cgroup has
// no quota, no memory limit, and an unknown throttled time.
type cgroup struct {
	quota     float64 // the tightest quota, in processors; +Inf for none
	throttled Reading
	memory    uint64 // the tightest limit, in bytes; 0 for none

	root       string   // "/", except in tests
	membership *os.File // /proc/self/cgroup; nil: no cgroups on this system
	member     string   // its content when levels were opened
	levels     []level
	limits     []*os.File // of memory, one a level
	at         time.Time  // of the last refresh
	procs      int        // as of then
	buf        [8 << 10]byte
}

// A level keeps its files open, because a process that has run out of file descriptors still needs measuring. A nil file does
// not exist here.
type level struct {
	v2            bool
	quota, period *os.File      // cpu.max (v2), cpu.cfs_quota_us and cpu.cfs_period_us (v1)
	stat          *os.File      // cpu.stat
	throttled     time.Duration // as of the last refresh
	known         bool          // whether it was known then
}

// open finds the cgroup in the file system at root.
func (c *cgroup) open(root string) {
	c.root = root
	c.membership, _ = os.Open(filepath.Join(root, "proc", "self", "cgroup"))
}

// refresh reads the cgroup again if the last read is old enough. The kernel counts throttled time for every processor on
// which the group has something to run: at most GOMAXPROCS, procs.
func (c *cgroup) refresh(at time.Time, procs int) {
	elapsed := at.Sub(c.at)
	if !c.at.IsZero() && elapsed >= 0 && elapsed < cgroupEvery {
		return
	}
	c.quota, c.throttled, c.memory = math.Inf(1), Reading{}, 0
	// The total processor time; a change of procs is assumed half way.
	capacity := float64(elapsed) * float64(procs+c.procs) / 2
	c.follow()
	for i := range c.levels {
		l := &c.levels[i]
		c.quota = min(c.quota, l.readQuota(c.buf[:]))
		now, known := l.readThrottled(c.buf[:])
		// A counter that fell has restarted. Levels are throttled at the same time, so the longest counts, not the sum.
		if spent := now - l.throttled; known && l.known && spent >= 0 && elapsed > 0 {
			c.throttled.OK = true
			c.throttled.Value = max(c.throttled.Value, min(1, float64(spent)/capacity))
		}
		l.throttled, l.known = now, known
	}
	for _, f := range c.limits {
		// Where there is no limit, v2 says "max", and v1 the largest number of pages.
		if n, ok := number(contents(f, c.buf[:])); ok && n > 0 && n < noMemory && (c.memory == 0 || n < c.memory) {
			c.memory = n
		}
	}
	c.at, c.procs = at, procs
}

// follow opens the levels of the process's current cgroup, if it has changed.
func (c *cgroup) follow() {
	member := contents(c.membership, c.buf[:])
	if string(member) == c.member {
		return
	}
	c.member = string(member)
	for i := range c.levels {
		c.levels[i].close()
	}
	for _, f := range c.limits {
		_ = f.Close() // as in level.close
	}
	c.levels, c.limits = c.levels[:0], c.limits[:0]
	mounts, err := os.ReadFile(filepath.Join(c.root, "proc", "self", "mountinfo"))
	if err != nil {
		return
	}
	file := func(dir, name string) *os.File {
		f, _ := os.Open(filepath.Join(c.root, dir, name))
		return f
	}
	dirs, v2 := locate("cpu", c.member, string(mounts))
	for _, dir := range dirs {
		l := level{v2: v2, stat: file(dir, "cpu.stat")}
		if v2 {
			l.quota = file(dir, "cpu.max")
		} else {
			l.quota, l.period = file(dir, "cpu.cfs_quota_us"), file(dir, "cpu.cfs_period_us")
		}
		c.levels = append(c.levels, l)
	}
	name := "memory.limit_in_bytes"
	if dirs, v2 = locate("memory", c.member, string(mounts)); v2 {
		name = "memory.max"
	}
	for _, dir := range dirs {
		c.limits = append(c.limits, file(dir, name))
	}
}

func (l *level) close() {
	for _, f := range []*os.File{l.quota, l.period, l.stat} {
		_ = f.Close() // of nil too; there is nothing to do about an error, and nothing was written
	}
}

// readQuota returns the level's own quota in processors, +Inf if it has none or none is readable.
func (l *level) readQuota(buf []byte) float64 {
	text := contents(l.quota, buf)
	if l.v2 {
		quota, period, _ := bytes.Cut(text, []byte(" "))
		return share(quota, period)
	}
	n := len(text)
	return share(text, contents(l.period, buf[n:]))
}

// share returns quota / period, both positive numbers of microseconds, and +Inf otherwise: "max" and -1 mean no quota.
func share(quota, period []byte) float64 {
	q, ok := number(quota)
	p, known := number(period)
	if !ok || !known || q == 0 || p == 0 {
		return math.Inf(1)
	}
	return float64(q) / float64(p)
}

// readThrottled returns how long the level's quota has kept processors from running.
func (l *level) readThrottled(buf []byte) (time.Duration, bool) {
	text := contents(l.stat, buf)
	if l.v2 {
		return counter(text, "throttled_usec ", time.Microsecond)
	}
	return counter(text, "throttled_time ", time.Nanosecond)
}

// counter returns the number of units that follows key at the start of a line.
func counter(text []byte, key string, unit time.Duration) (time.Duration, bool) {
	for len(text) > 0 {
		var line []byte
		line, text, _ = bytes.Cut(text, []byte("\n"))
		if len(line) > len(key) && string(line[:len(key)]) == key {
			n, ok := number(line[len(key):])
			if !ok || n > uint64(math.MaxInt64/unit) {
				break
			}
			return time.Duration(n) * unit, true
		}
	}
	return 0, false
}

// number parses a decimal number with surrounding space. A missing number is normal ("max", -1) and must not allocate, as the
// error of strconv would.
func number(text []byte) (n uint64, ok bool) {
	text = bytes.TrimSpace(text)
	for _, digit := range text {
		d := uint64(digit - '0')
		if d > 9 || n > (math.MaxUint64-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return n, len(text) > 0
}

// contents returns the content of f, in buf; nothing if f is nil, unreadable or longer.
func contents(f *os.File, buf []byte) []byte {
	n, err := f.ReadAt(buf, 0) // of nil too
	if !errors.Is(err, io.EOF) {
		return nil
	}
	return buf[:n]
}
