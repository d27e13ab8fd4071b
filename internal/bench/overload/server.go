// SPDX-License-Identifier: Apache-2.0

//go:build linux

// The server: one variant in front of one workload, in a process of its own on cores of its own.

package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// What a server knows about its clients' patience.
const (
	untold = "untold" // it sees them leave
	told   = "told"   // it sees them leave, and the context has a deadline
	post   = "post"   // it sees them leave only after reading the request's body, which the work does
	h2     = "h2"     // untold, over HTTP/2
	// With -noes: untold, and in no hurry.
	stay = "stay" // 2 s
	long = "long" // 30 s
	jobs = "jobs" // a minute, and the tasks are marked patient
)

func usualKnows() []string { return []string{untold, told, post, h2} }
func noesKnows() []string  { return []string{stay, long, jobs} }
func allKnows() []string   { return append(usualKnows(), noesKnows()...) }

// before returns a workload with the patience of such clients.
func before(knows string, w workload) workload {
	switch knows {
	case stay:
		w.patience = 2 * time.Second
	case long:
		w.patience = 30 * time.Second
	case jobs:
		w.patience = time.Minute
	}
	return w
}

// serveArgs configure a child process.
type serveArgs struct {
	Variant, Workload, Knows string
	Rounds                   float64 // of spin per millisecond
}

// serve is the life of a child process. It ends with its standard input and prints how many executions there were.
func serve(args string) error {
	var a serveArgs
	if err := json.Unmarshal([]byte(args), &a); err != nil {
		return err
	}
	v, err := variantNamed(a.Variant)
	if err != nil {
		return err
	}
	w, err := workloadNamed(a.Workload)
	if err != nil {
		return err
	}
	k, err := newWorker(w, a.Rounds)
	if err != nil {
		return err
	}
	defer k.close()
	var count atomic.Int64
	handler, err := newHandler(v, k, a, &count)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	s := &http.Server{Handler: handler, Protocols: new(http.Protocols),
		ErrorLog: log.New(io.Discard, "", 0)} //nolint:gosec // the only client is the lab
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = s.Serve(l) }()
	_, _ = os.Stdin.Read(make([]byte, 1))
	fmt.Println(count.Load())
	return nil
}

// newHandler returns the work behind a variant. count counts executions.
func newHandler(v variant, k *worker, a serveArgs, count *atomic.Int64) (http.Handler, error) {
	work := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		answer, err := k.do(r.Context(), isHeavy(r))
		if err != nil {
			http.Error(rw, "gave up", http.StatusGatewayTimeout)
			return
		}
		count.Add(1)
		rw.Header().Set("Content-Length", strconv.Itoa(len(answer)))
		_, _ = rw.Write(answer)
	})
	k.patient = a.Knows == jobs
	guarded, err := v.mount(work, k)
	if err != nil || a.Knows != told {
		return guarded, err
	}
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), k.patience)
		defer cancel()
		guarded.ServeHTTP(rw, r.WithContext(ctx))
	}), nil
}

// A child is a running server.
type child struct {
	addr  *net.TCPAddr
	cmd   *exec.Cmd
	stdin io.Closer // closing it ends the server, so the server also ends with a crashed generator
	out   *bufio.Reader
}

// start runs a server of this binary, or another, on its cores. The calling goroutine must be locked to its thread on the
// generator's core and returns to that core: the child inherits the affinity that the thread has at the start.
func start(binary string, a serveArgs, at placement) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.Command(cmp.Or(binary, self), "-serve", string(args))} //nolint:noctx // stop ends it
	c.cmd.Env = append(os.Environ(), fmt.Sprintf("GOMAXPROCS=%d", len(at.server)))
	c.cmd.Stderr = os.Stderr
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewReader(out)
	if err := errors.Join(pin(at.server...), prefer(-10)); err != nil {
		return nil, err
	}
	err = c.cmd.Start()
	if err := errors.Join(err, pin(at.generator), prefer(-20)); err != nil {
		return nil, err
	}
	line, err := c.out.ReadString('\n')
	if err == nil {
		c.addr, err = net.ResolveTCPAddr("tcp4", strings.TrimSpace(line))
	}
	if err != nil {
		_, _ = c.stop()
		return nil, fmt.Errorf("the server did not start: %w", err)
	}
	return c, nil
}

// stop ends the server and returns its executions.
func (c *child) stop() (executed int, err error) {
	_ = c.stdin.Close()
	end := time.AfterFunc(20*time.Second, func() { _ = c.cmd.Process.Kill() })
	defer end.Stop()
	line, err := c.out.ReadString('\n')
	if err == nil {
		_, err = fmt.Sscan(line, &executed)
	}
	return executed, errors.Join(err, c.cmd.Wait())
}
