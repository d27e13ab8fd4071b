// SPDX-License-Identifier: Apache-2.0

//go:build linux

// A child process, and who watches it: its memory is read every 20 ms, and it is killed when that is too much.

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// child is a running server, or a neighbour.
type child struct {
	cmd   *exec.Cmd
	stdin io.Closer // closing it ends the child, so a child also ends with a lab that crashed
	url   string
	ended chan struct{} // closed when it has ended

	began    time.Time
	peak     atomic.Int64 // resident, in bytes
	killedAt atomic.Int64 // nanoseconds after began; 0: it was not
}

// start runs this program with these arguments, on one core or, with -1, on all of the lab's. It waits for the address that a
// server prints. The calling goroutine must be locked to its thread.
func start(core, own int, env []string, args ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.Command(self, args...), ended: make(chan struct{})} //nolint:noctx // stop ends it
	c.cmd.Env = append(os.Environ(), env...)
	c.cmd.Stderr = os.Stderr
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if core >= 0 { // a child inherits the affinity that this thread has now
		if err := pin(core); err != nil {
			return nil, err
		}
	}
	c.began = time.Now()
	err = c.cmd.Start()
	if core >= 0 {
		err = errors.Join(err, pin(own))
	}
	if err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		_ = c.stdin.Close()
		return nil, errors.Join(fmt.Errorf("a child did not start: %w", err), c.cmd.Wait())
	}
	c.url = "http://" + strings.TrimSpace(line)
	go func() {
		if err := c.cmd.Wait(); err != nil {
			c.killedAt.CompareAndSwap(0, int64(time.Since(c.began))) // by the kernel, then
		}
		close(c.ended)
	}()
	return c, nil
}

// watch reads how much memory the child holds, until it ends, and kills it at so many bytes.
func (c *child) watch(most int64) {
	for {
		select {
		case <-c.ended:
			return
		case <-time.After(20 * time.Millisecond):
		}
		rss, err := residentOf(c.cmd.Process.Pid)
		if err != nil {
			continue
		}
		c.peak.Store(max(c.peak.Load(), rss))
		if rss > most {
			c.killedAt.CompareAndSwap(0, int64(time.Since(c.began)))
			_ = c.cmd.Process.Kill()
		}
	}
}

// stop ends the child.
func (c *child) stop() {
	_ = c.stdin.Close()
	select {
	case <-c.ended:
	case <-time.After(3 * time.Second): // what is killed now was not killed by its memory
		c.killedAt.CompareAndSwap(0, -1)
		_ = c.cmd.Process.Kill()
		<-c.ended
	}
}

// killed returns when the child was killed, in seconds after its start; 0: it was not.
func (c *child) killed() float64 { return max(0, time.Duration(c.killedAt.Load()).Seconds()) }

// ask returns what the server reports.
func (c *child) ask(path string, into any) error {
	client := http.Client{Timeout: 2 * time.Second}
	resp, err := client.Get(c.url + path) //nolint:noctx // it has a timeout
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if into == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// residentOf returns the bytes of memory that a process holds.
func residentOf(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	f := strings.Fields(string(b))
	if len(f) < 2 {
		return 0, fmt.Errorf("statm of process %d is %q", pid, b)
	}
	pages, err := strconv.ParseInt(f[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}

// pin restricts the calling thread to a core.
func pin(core int) error {
	var set unix.CPUSet
	set.Set(core)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pinning to core %d: %w", core, err)
	}
	return nil
}

// coresOf returns the cores that this process may use.
func coresOf() (all []int, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, err
	}
	for i := 0; len(all) < set.Count(); i++ {
		if set.IsSet(i) {
			all = append(all, i)
		}
	}
	return all, nil
}

// makeGroup makes a cgroup (v1) with a limit of memory, in bytes, and returns its folder. The error says why there is none.
func makeGroup(limit int64) (string, error) {
	dir := fmt.Sprintf("/sys/fs/cgroup/memory/container-%d", os.Getpid())
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	err := os.WriteFile(filepath.Join(dir, "memory.limit_in_bytes"), []byte(strconv.FormatInt(limit, 10)), 0)
	if err != nil {
		return "", errors.Join(err, os.Remove(dir))
	}
	return dir, nil
}

// removeGroup waits for the kernel to let go of the group's last process.
func removeGroup(dir string) {
	for range 50 {
		if os.Remove(dir) == nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// neighbour is a process that computes without a pause, until its standard input or two minutes end.
func neighbour() {
	go func() {
		time.Sleep(2 * time.Minute)
		os.Exit(0)
	}()
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(0)
	}()
	fmt.Println("neighbour")
	for {
		spun.Store(spin(1_000_000))
	}
}
