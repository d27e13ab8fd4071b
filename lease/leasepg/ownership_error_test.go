// SPDX-License-Identifier: Apache-2.0

package leasepg_test

// This file holds OnError: what fails, or does not answer, is reported within a session and then once a minute, and logged where
// nobody takes it.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/internal/testkit/ownertest"
	"github.com/stopbank/stopbank/lease/leasepg"
)

// nowhere is a server that cannot be reached, each time in other words, as a connection that is reset names its own port.
func nowhere(t *testing.T) *pgx.ConnConfig {
	t.Helper()
	cfg := must(pgx.ParseConfig("postgres://user@127.0.0.1:5432/orders?sslmode=disable"))(t)
	dials := 0
	cfg.DialFunc = func(context.Context, string, string) (net.Conn, error) {
		dials++
		return nil, fmt.Errorf("reset, from port %d", dials)
	}
	return cfg
}

// heldFor is a member in virtual time, for that long.
func heldFor(t *testing.T, cfg leasepg.GroupConfig, lasts time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cfg.Group, cfg.Names = "orders", []string{"a"}
		cfg.Open = func(context.Context, string) (dispatch.Partition, error) {
			return dispatch.Partition{}, errors.New("unreachable")
		}
		o, err := leasepg.OpenGroup(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), lasts)
		defer cancel()
		if err := o.Hold(ctx, func(context.Context, dispatch.Partition) {}); err != nil {
			t.Error(err)
		}
	})
}

func TestOwnershipTellsOnceAMinute(t *testing.T) {
	var mu sync.Mutex
	var told []error
	heldFor(t, leasepg.GroupConfig{Conn: nowhere(t), OnError: func(err error) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, err)
	}}, 150*time.Second)
	if len(told) != 3 { // at 0, 1 and 2 minutes
		t.Errorf("told %d times in two and a half minutes: %v", len(told), told)
	}
}

// The server takes the connection and says nothing, for longer than a session; an attempt to join may take five seconds.
func TestOwnershipTellsOfSilence(t *testing.T) {
	cfg := nowhere(t)
	cfg.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	told := make(chan error, 10)
	heldFor(t, leasepg.GroupConfig{Conn: cfg, Session: time.Second, OnError: func(err error) { told <- err }}, 2*time.Second)
	if n := len(told); n != 1 {
		t.Fatalf("told %d times in two sessions", n)
	}
	if err := <-told; !strings.Contains(err.Error(), "has not answered for 1s") {
		t.Errorf("told: %v", err)
	}
}

// hear waits for what a member says, for a minute. On a busy machine it may have had to say something else before.
func hear(t *testing.T, told <-chan error, want string) {
	t.Helper()
	var all []error
	for late := time.After(time.Minute); ; {
		select {
		case err := <-told:
			if all = append(all, err); strings.Contains(err.Error(), want) {
				return
			}
		case <-late:
			t.Errorf("told %v, not %q", all, want)
			return
		}
	}
}

// A member says that Open does not return, and that it has lost its session while a work goes on that does not listen.
func TestOwnershipTellsWhileItWaits(t *testing.T) {
	for what, want := range map[string]string{"Open": "Open of partition a has not answered", "work": "the session is lost"} {
		t.Run(what, func(t *testing.T) {
			told, began, hang := make(chan error, 100), make(chan struct{}), make(chan struct{})
			line := ownertest.NewLine(t)
			conn := dedicated(t)
			conn.DialFunc = line.DialContext
			o := must(leasepg.OpenGroup(t.Context(), leasepg.GroupConfig{
				Conn: conn, Group: t.Name(), Names: []string{"a"}, Session: 400 * time.Millisecond, OnError: func(err error) { told <- err },
				Open: func(context.Context, string) (dispatch.Partition, error) {
					if what == "Open" {
						<-hang
					}
					return dispatch.Partition{}, nil
				},
			}))(t)
			ctx, cancel := context.WithCancel(t.Context())
			held := make(chan error, 1)
			go func() {
				held <- o.Hold(ctx, func(context.Context, dispatch.Partition) {
					if what == "work" {
						close(began)
						<-hang
					}
				})
			}()
			if what == "work" {
				<-began
				line.Cut()
			}
			hear(t, told, want)
			cancel()
			close(hang)
			line.Mend()
			noError(t, <-held)
		})
	}
}

func TestOwnershipLogsWhatNobodyTakes(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	heldFor(t, leasepg.GroupConfig{Conn: nowhere(t)}, 10*time.Second)
	if said := log.String(); strings.Count(said, "level=WARN") != 1 || !strings.Contains(said, "group=orders") ||
		!strings.Contains(said, "reset, from port 1") {
		t.Errorf("logged: %q", said)
	}
}
