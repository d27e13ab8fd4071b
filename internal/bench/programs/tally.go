// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// whole is the end that a client hopes for.
const whole = "ok"

// A tally counts how what the clients of a program did has ended. Bare and protected, a program's tallies must be equal.
type tally struct {
	mu      sync.Mutex
	ends    map[string]map[string]int // by what a client did
	longest map[string]time.Duration  // for the reader: no verdict depends on a time
}

func newTally() *tally {
	return &tally{ends: map[string]map[string]int{}, longest: map[string]time.Duration{}}
}

// add counts one thing that began at that time; nil is its good end.
func (t *tally) add(what string, began time.Time, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.longest[what] = max(t.longest[what], time.Since(began))
	t.count(what, end(err), 1)
}

// came counts how many of the messages that were due have come.
func (t *tally) came(what string, n, due int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count(what, whole, n)
	t.count(what, "lost", due-n)
}

func (t *tally) count(what, end string, n int) {
	if t.ends[what] == nil {
		t.ends[what] = map[string]int{}
	}
	if n != 0 {
		t.ends[what][end] += n
	}
}

// end is the kind of an error: times, addresses and ids in its text would make two of a kind differ.
func end(err error) string {
	var code unexpected
	switch {
	case err == nil:
		return whole
	case errors.As(err, &code):
		return code.Error()
	case errors.Is(err, context.DeadlineExceeded), status.Code(err) == codes.DeadlineExceeded:
		return "not answered in time"
	case status.Code(err) != codes.Unknown:
		return status.Code(err).String()
	}
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
		err = next
	}
	return err.Error()
}

// unexpected is a status that an HTTP client did not expect.
type unexpected int

func (u unexpected) Error() string { return fmt.Sprintf("%d %s", int(u), http.StatusText(int(u))) }

// row says how one thing has ended.
func (t *tally) row(what string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var parts []string
	for _, end := range slices.Sorted(maps.Keys(t.ends[what])) {
		parts = append(parts, fmt.Sprintf("%d %s", t.ends[what][end], end))
	}
	return strings.Join(parts, ", ")
}

// rows are the things that were done, in order.
func (t *tally) rows() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Sorted(maps.Keys(t.ends))
}
