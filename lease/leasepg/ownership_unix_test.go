//go:build unix

package leasepg_test

// This file stops a member's process, which keeps its connection open and its locks with it, and lets it go on.

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stopbank/stopbank/lease/internal/child"
)

func TestOwnershipFrozenProcess(t *testing.T) {
	need(t)
	other, err := child.Start(context.Background(), ownershipVariable, server.URL())
	if err != nil {
		t.Fatal(err)
	}
	lines, ended := make(chan string, 1000), make(chan error, 1)
	go func() {
		defer close(lines)
		ended <- other.Listen(func(line []byte) { lines <- string(line) })
	}()
	t.Cleanup(func() {
		other.Wake()
		other.Leave()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
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
	other.Stop()
	w.next(t, 2, begins) // the server has ended the session of whoever says nothing
	other.Wake()
	says("lost", 2)
	says("begins", 2)
	w.next(t, 2, func(e event) bool { return !e.begins && errors.Is(e.cause, context.Canceled) })
}
