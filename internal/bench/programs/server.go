// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"
)

// A program serves in a process of its own, as it would without us, so that its clients do not share its scheduler.
type program struct {
	name string
	// serve listens on addr, keeps its files in dir, and returns only if it fails.
	serve func(addr, dir string, by shield) error
	// drive plays the program's clients, each with what it may take. It does not return before all have ended.
	drive func(ctx context.Context, addr string, t *tally) error
}

func programs() []program {
	return []program{etcdProgram(), pocketbaseProgram(), registryProgram(), tusdProgram(), centrifugoProgram()}
}

// serves is the variable that makes a process one of these servers: its name, address, folder, and bare or protected.
const serves = "STOPBANK_PROGRAM"

// served serves if this process is a server, and then never returns.
func served() {
	told := strings.Split(os.Getenv(serves), "\n")
	for _, p := range programs() {
		if len(told) != 4 || p.name != told[0] {
			continue
		}
		go func() { // it dies with the process that started it
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(0)
		}()
		var by shield
		var err error
		if told[3] == protected {
			by, err = protect()
		}
		if err == nil {
			err = p.serve(told[1], told[2], by)
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const bare, protected = "bare", "protected"

// run starts a program, bare or protected, and has its clients use it.
func (p program) run(ctx context.Context, how string) (t *tally, err error) {
	dir, err := os.MkdirTemp("", "stopbank-"+p.name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	var said bytes.Buffer
	server := exec.CommandContext(ctx, self)
	server.Env = append(os.Environ(), serves+"="+strings.Join([]string{p.name, addr, dir, how}, "\n"))
	server.Stderr = &said
	alive, err := server.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := server.Start(); err != nil {
		return nil, err
	}
	if err = reachable(ctx, addr); err == nil {
		t = newTally()
		err = p.drive(ctx, addr, t)
	}
	_ = alive.Close()
	_ = server.Wait()
	if err != nil {
		err = fmt.Errorf("%s, %s: %w; it said: %s", p.name, how, err, said.Bytes()[max(0, said.Len()-500):])
	}
	return t, err
}

// freeAddr is an address on loopback at which nobody listens.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// reachable waits until somebody listens there.
func reachable(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		if err == nil {
			return conn.Close()
		}
		if ctx.Err() != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}
