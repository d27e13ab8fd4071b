// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The shield has the lines that a reader finds, and no others.
func TestShieldHasTheLinesOfThePages(t *testing.T) {
	for page, lines := range map[string][]string{
		"../../../README.md": {
			"func task(r *http.Request) warden.Task {",
			`	if r.URL.Path == "/checkout" {`,
			`	t := warden.Task{Tenant: customers[r.Header.Get("X-Api-Key")]}`,
			"		t.Priority = decision.Critical",
			"w, err := warden.New(warden.Config{})",
			"go func() { _ = w.Run(context.Background()) }()",
			"protect, err := wardenhttp.New(w, wardenhttp.Config{Task: task, Timeout: 500 * time.Millisecond})",
		},
		"../../../docs/observability.md": {
			"	grpc.ChainUnaryInterceptor(guard.UnaryServer()),",
			"	grpc.ChainStreamInterceptor(guard.StreamServer()),",
		},
	} {
		for _, file := range []string{page, "shield.go"} {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range lines {
				if !strings.Contains(string(text), line+"\n") {
					t.Errorf("%s has no line %q", file, line)
				}
			}
		}
	}
}

// Errors of a kind are one end, whatever else their texts say.
func TestTallyEnds(t *testing.T) {
	tally := newTally()
	for _, err := range []error{
		nil, unexpected(504), fmt.Errorf("a push: %w", unexpected(504)), context.DeadlineExceeded,
		&url.Error{Op: "Get", URL: "http://127.0.0.1:1/a", Err: io.ErrUnexpectedEOF},
		&url.Error{Op: "Get", URL: "http://127.0.0.1:2/b", Err: io.ErrUnexpectedEOF},
		status.Error(codes.DeadlineExceeded, "1 s"), status.Error(codes.ResourceExhausted, "decision 7"),
	} {
		tally.add("a call", time.Now(), err)
	}
	tally.came("a message", 3, 5)
	for what, want := range map[string]string{
		"a call":    "2 504 Gateway Timeout, 1 ResourceExhausted, 2 not answered in time, 1 ok, 2 unexpected EOF",
		"a message": "2 lost, 3 ok",
	} {
		if got := tally.row(what); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
}

// A body takes three seconds over a line, and a pause comes on top, once.
func TestLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, way := range ways() {
			began, body := time.Now(), bytes.Repeat([]byte("body"), 100_000)
			got, err := io.ReadAll(way.over(bytes.NewReader(body), len(body)))
			if took := time.Since(began) - way.pause; err != nil || !bytes.Equal(got, body) || took.Round(time.Millisecond) != 3*time.Second {
				t.Errorf("%s: %d bytes, %v, %v beside the pause", way.name, len(got), err, took)
			}
		}
	})
}

// An error of the clients says whose it is, and ends the server.
func TestClientsThatFail(t *testing.T) {
	failing := program{name: "tusd", drive: func(context.Context, string, *tally) error { return io.EOF }}
	if _, err := failing.run(t.Context(), bare); !errors.Is(err, io.EOF) || !strings.Contains(err.Error(), "tusd, bare") {
		t.Error(err)
	}
}
