// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Processes: what runs on which core, how each ends, how much memory a server holds, and the processor time that it lost to other
// processes and to the host of a virtual machine.

package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is a running server, service, front or neighbour, with those that it needs.
type process struct {
	cmd    *exec.Cmd
	addr   string
	began  time.Time
	ended  chan struct{} // closed when it has ended
	end    []func()      // ways to end it, from the kindest; those of what it needs are after
	after  []func()
	change func(ctx context.Context, c *Cell) error // what happens to it during a run; nil: nothing
	seen   inside

	peak     atomic.Int64 // resident, in bytes
	killedAt atomic.Int64 // nanoseconds after it began; 0: it was not
}

// on is a command that has these cores, and this priority. Without the privilege for it the numbers are noisier.
func on(cores []int, nice int, command ...string) *exec.Cmd {
	list := strings.ReplaceAll(strings.Trim(fmt.Sprint(cores), "[]"), " ", ",")
	return exec.Command("taskset", append([]string{"-c", list, "nice", "-n", strconv.Itoa(nice)}, command...)...)
}

// launch starts a program, and calls said with what it prints until it has ended.
func launch(cmd *exec.Cmd, said func(*process, io.Reader)) (*process, error) {
	p := &process{cmd: cmd, began: time.Now(), ended: make(chan struct{})}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	for _, s := range []os.Signal{syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGKILL} { // gunicorn kills its workers at the second
		p.end = append(p.end, func() { _ = cmd.Process.Signal(s) })
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		said(p, out)
		if err := cmd.Wait(); err != nil {
			p.killedAt.CompareAndSwap(0, int64(time.Since(p.began))) // by the kernel, if nobody else did
		}
		close(p.ended)
	}()
	return p, nil
}

// stop ends the process, and then what it needs.
func (p *process) stop() {
	for _, end := range p.end {
		select {
		case <-p.ended:
			continue
		default:
		}
		p.killedAt.CompareAndSwap(0, -1) // what is ended now was not killed by its memory
		end()
		select {
		case <-p.ended:
		case <-time.After(3 * time.Second):
		}
	}
	for _, end := range p.after {
		end()
	}
}

// account is what the server said of itself, and what was seen of it; nil of a front.
func (p *process) account() *inside {
	if p.seen == (inside{}) && p.peak.Load() == 0 {
		return nil
	}
	p.seen.PeakMB = float64(p.peak.Load()) / mb
	p.seen.Killed = max(0, time.Duration(p.killedAt.Load()).Seconds())
	return &p.seen
}

// start starts what the cells of a group ask: a server of this program, or a front and its service.
func (l *lab) start(g *group, w way) (*process, error) {
	if g.work.service != nil {
		return l.mount(g, w)
	}
	a := serveArgs{Way: strings.TrimSuffix(w.name, before), Workload: g.work.name, Kind: g.kind, Spins: l.spins, Warm: g.warm(w)}
	var after []func()
	undo := func(err error) (*process, error) {
		for _, end := range after {
			end()
		}
		return nil, err
	}
	for range g.work.busy {
		n, err := child(on(l.cores[:1], -10, os.Args[0], "-neighbour"))
		if err != nil {
			return undo(err)
		}
		after = append(after, n.stop)
	}
	if g.grouped() {
		dir, err := makeGroup(g.work.kill)
		if err != nil {
			return undo(err)
		}
		a.Group, after = dir, append(after, func() { removeGroup(dir) })
	}
	args, err := json.Marshal(a)
	if err != nil {
		return undo(err)
	}
	cores := l.cores[:1]
	if g.work.kill > 0 && g.work.busy == 0 {
		cores = l.cores
	}
	cmd := on(cores, -10, cmp.Or(w.binary, os.Args[0]), "-serve", string(args))
	cmd.Env = append(append(os.Environ(), "GOMAXPROCS=1"), g.env()...)
	p, err := child(cmd)
	if err != nil {
		return undo(err)
	}
	p.after = after
	if g.work.shrinks > 0 {
		p.change = func(ctx context.Context, _ *Cell) error {
			return exec.CommandContext(ctx, "taskset", "-apc", strconv.Itoa(l.cores[0]), strconv.Itoa(p.cmd.Process.Pid)).Run()
		}
	}
	if g.work.kill > 0 {
		go p.watch(g)
	}
	return p, nil
}

// child starts this program, waits for the address that it prints, and lets it end when its standard input does: so it also ends with
// a lab that crashed.
func child(cmd *exec.Cmd) (*process, error) {
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	addr := make(chan string, 1)
	p, err := launch(cmd, func(p *process, out io.Reader) {
		lines := bufio.NewReader(out)
		line, _ := lines.ReadString('\n')
		addr <- strings.TrimSpace(line)
		_ = json.NewDecoder(lines).Decode(&p.seen) // nothing of one that is killed
	})
	if err != nil {
		return nil, err
	}
	p.end = []func(){func() { _ = stdin.Close() }, p.end[2]}
	if p.addr = <-addr; p.addr == "" {
		p.stop()
		return nil, fmt.Errorf("%v did not start", cmd.Args)
	}
	return p, nil
}

// watch reads how much memory the server holds, until it ends, and kills it when that is too much, unless the kernel does.
func (p *process) watch(g *group) {
	for {
		select {
		case <-p.ended:
			return
		case <-time.After(20 * time.Millisecond):
		}
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.cmd.Process.Pid))
		if f := strings.Fields(string(b)); len(f) > 1 {
			pages, _ := strconv.ParseInt(f[1], 10, 64)
			p.peak.Store(max(p.peak.Load(), pages*int64(os.Getpagesize())))
		}
		if p.peak.Load() > g.work.kill && !g.grouped() && p.killedAt.CompareAndSwap(0, int64(time.Since(p.began))) {
			_ = p.cmd.Process.Kill()
		}
	}
}

// makeGroup makes a cgroup (v1) with a limit of memory, in bytes, and returns its folder.
func makeGroup(limit int64) (string, error) {
	dir := fmt.Sprintf("/sys/fs/cgroup/memory/lab-%d", os.Getpid())
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

// neighbour computes without a pause, until its standard input ends.
func neighbour() {
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(0)
	}()
	fmt.Println("neighbour")
	for sink := uint64(0); ; {
		sink += spin(1_000_000)
		runtime.KeepAlive(sink)
	}
}

// place finds the cores.
func (l *lab) place() error {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return err
	}
	for i := 0; len(l.cores) < set.Count(); i++ {
		if set.IsSet(i) {
			l.cores = append(l.cores, i)
		}
	}
	_ = os.WriteFile("/proc/self/autogroup", []byte("-20"), 0o644) // makes the priority effective across sessions
	return nil
}

// lost is the accumulated time for which a server was runnable but not running, and that for which it ran.
type lost struct {
	at       time.Time
	ran      time.Duration
	waited   time.Duration // of its threads, for a core
	withheld time.Duration // of its core, by the host; in steps of 10 ms
}

// lostOf reads the kernel's accounts of a server on the server's core; nothing of one whose loss is not to be corrected. Ended threads are
// missing; the server's threads do not end.
func (l *lab) lostOf(p *process) (lost, error) {
	now := lost{at: time.Now()}
	if l.name != "overload" {
		return now, nil
	}
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return now, err
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 8 && f[0] == fmt.Sprintf("cpu%d", l.cores[0]) {
			ticks, _ := strconv.Atoi(f[8])
			now.withheld += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	pid := p.cmd.Process.Pid
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(threads) == 0 {
		return now, fmt.Errorf("the kernel does not say how long process %d waits for its core: %w", pid, err)
	}
	for _, path := range threads {
		b, _ := os.ReadFile(path)
		if f := strings.Fields(string(b)); len(f) > 1 { // running, waiting, count
			ran, _ := strconv.ParseInt(f[0], 10, 64)
			waited, _ := strconv.ParseInt(f[1], 10, 64)
			now.ran += time.Duration(ran)
			now.waited += time.Duration(waited)
		}
	}
	return now, nil
}

// stolen is the fraction of a core's time since before in which the server was runnable but not running.
func (l lost) stolen(before lost) float64 {
	time := float64(l.at.Sub(before.at))
	// something is always left to divide by
	return min(max(0, float64(l.waited-before.waited+l.withheld-before.withheld)/time), 0.99)
}
