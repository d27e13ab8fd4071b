//go:build unix

package leasepg_test

// This file stops a member's process, which keeps its connection open and its locks with it, and lets it go on.

import (
	"bufio"
	"context"
	"errors"
	"os"
	process "os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestOwnershipFrozenProcess(t *testing.T) {
	need(t)
	child := process.CommandContext(context.Background(), os.Args[0])
	child.Env, child.Stderr = append(os.Environ(), ownershipVariable+"="+server.URL()), os.Stderr
	leash := must(child.StdinPipe())(t)
	out := must(child.StdoutPipe())(t)
	noError(t, child.Start())
	t.Cleanup(func() {
		_ = child.Process.Signal(syscall.SIGCONT)
		_ = leash.Close()
		if err := child.Wait(); err != nil {
			t.Error(err)
		}
	})
	lines := make(chan string, 1000)
	go func() {
		defer close(lines)
		for said := bufio.NewScanner(out); said.Scan(); {
			lines <- said.Text()
		}
	}()
	says := func(what string, n int) {
		t.Helper()
		for late := time.After(time.Minute); n > 0; {
			select {
			case line, open := <-lines:
				if !open {
					t.Fatalf("the other process has ended; %d times %q to come", n, what)
				}
				if strings.HasPrefix(line, what) {
					n--
				}
			case <-late:
				t.Fatalf("%d times %q to come", n, what)
			}
		}
	}
	says("begins", 4)
	cfg := frozen
	cfg.Conn = dedicated(t)
	w := watch(t, cfg)
	says("ends", 2)
	w.next(t, 2, begins)
	noError(t, child.Process.Signal(syscall.SIGSTOP))
	w.next(t, 2, begins) // the server has ended the session of whoever says nothing
	noError(t, child.Process.Signal(syscall.SIGCONT))
	says("lost", 2)
	says("begins", 2)
	w.next(t, 2, func(e event) bool { return !e.begins && errors.Is(e.cause, context.Canceled) })
}
