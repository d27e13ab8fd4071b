//go:build linux

// The server: one variant in front of one workload, in a process of its own on a core of its own.

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// deadline is how long whoever asks waits for an answer.
const deadline = 250 * time.Millisecond

// The header in which a request says when it should have been sent and when it was, in nanoseconds of the wall clock:
// for counting alone. No variant looks at it.
const clockHeader = "Clock"

// serveArgs are what a child process is told.
type serveArgs struct {
	Variant, Workload string
	Rounds            float64 // of spin for a millisecond
	Counters          string  // the file to count in
	Trace             bool    // ours writes down what it measures and decides
}

// serve is the life of a child process. It ends when its standard input does.
func serve(a serveArgs) error {
	v, err := variantNamed(a.Variant)
	if err != nil {
		return err
	}
	w, err := workloadNamed(a.Workload)
	if err != nil {
		return err
	}
	count, err := mapCounters(a.Counters, false)
	if err != nil {
		return err
	}
	k := newWorker(w, a.Rounds)
	work := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if err := k.do(r.Context()); err != nil {
			http.Error(rw, "gave up", http.StatusGatewayTimeout)
			return
		}
		count.executed.Add(1)
		if due, _, ok := clocks(r); ok && time.Now().UnixNano() > due+int64(deadline) {
			count.wasted.Add(1)
		}
		_, _ = rw.Write([]byte("done"))
	})
	guarded, err := v.mount(work, w, a.Trace)
	if err != nil {
		return err
	}
	handler := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		count.entered.Add(1)
		if _, sent, ok := clocks(r); ok {
			count.accept[bucketOf(time.Duration(time.Now().UnixNano()-sent))].Add(1)
		}
		// Every variant is told how long there is, in the way that Go programs are told.
		ctx, cancel := context.WithTimeout(r.Context(), deadline)
		defer cancel()
		guarded.ServeHTTP(rw, r.WithContext(ctx))
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(0)
	}()
	return http.Serve(l, handler) //nolint:gosec // the only client is the lab
}

// clocks are when the request should have been sent and when it was.
func clocks(r *http.Request) (due, sent int64, ok bool) {
	d, s, found := strings.Cut(r.Header.Get(clockHeader), " ")
	if !found {
		return 0, 0, false
	}
	due, err1 := strconv.ParseInt(d, 10, 64)
	sent, err2 := strconv.ParseInt(s, 10, 64)
	return due, sent, err1 == nil && err2 == nil
}

// A child is a running server.
type child struct {
	addr  *net.TCPAddr
	count *counters
	cmd   *exec.Cmd
	file  string
}

// start runs a server on the given core. The calling goroutine must be locked to its thread, which is on the core
// home, and stays there: the child inherits the affinity that the thread has at that moment.
func start(a serveArgs, core, home int) (*child, error) {
	dir, err := os.MkdirTemp("", "overload")
	if err != nil {
		return nil, err
	}
	a.Counters = filepath.Join(dir, "counters")
	c := &child{file: dir}
	if c.count, err = mapCounters(a.Counters, true); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c.cmd = exec.Command(self, "-serve", a.Variant, "-workloads", a.Workload, "-rounds", fmt.Sprint(a.Rounds), "-counters", a.Counters, fmt.Sprintf("-trace=%t", a.Trace)) //nolint:noctx // stop ends it
	c.cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	c.cmd.Stderr = os.Stderr
	if _, err := c.cmd.StdinPipe(); err != nil { // closed when the generator ends, however it ends
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := pin(core); err != nil {
		return nil, err
	}
	err = c.cmd.Start()
	if err := errors.Join(err, pin(home)); err != nil {
		return nil, err
	}
	line := make([]byte, 64)
	n, err := out.Read(line)
	if err != nil {
		c.stop()
		return nil, fmt.Errorf("the server did not start: %w", err)
	}
	if c.addr, err = net.ResolveTCPAddr("tcp4", strings.TrimSpace(string(line[:n]))); err != nil {
		c.stop()
		return nil, err
	}
	return c, nil
}

func (c *child) stop() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
	_ = os.RemoveAll(c.file)
}

// pin puts the calling thread on one core.
func pin(core int) error {
	var set unix.CPUSet
	set.Set(core)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pinning to core %d: %w", core, err)
	}
	return nil
}

// cores locks the calling goroutine to its thread and returns the first two cores that it may use.
func cores() (server, generator int, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return 0, 0, err
	}
	if set.Count() < 2 {
		return 0, 0, fmt.Errorf("%d core may be used; allowed: 2 or more, one for the server and one for the generator", set.Count())
	}
	var two []int
	for i := 0; len(two) < 2; i++ {
		if set.IsSet(i) {
			two = append(two, i)
		}
	}
	runtime.LockOSThread()
	// Whatever else runs on this machine shall disturb as little as possible; children inherit it. It takes a privilege,
	// and without it the numbers are only noisier.
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, -20)
	_ = os.WriteFile("/proc/self/autogroup", []byte("-20"), 0o644) // what a priority is worth beyond this session
	return two[0], two[1], nil
}
