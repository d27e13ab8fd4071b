package leasepg_test

// This file holds OnError: what goes on failing is reported at once and then once a minute, and logged where nobody takes it; in virtual time.

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
	"github.com/stopbank/stopbank/lease/leasepg"
)

// nowhere is a server that cannot be reached, each time in other words, as a connection that is reset names its own port.
func nowhere(t *testing.T) *pgx.ConnConfig {
	t.Helper()
	cfg, err := pgx.ParseConfig("postgres://user@127.0.0.1:5432/orders?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	dials := 0
	cfg.DialFunc = func(context.Context, string, string) (net.Conn, error) {
		dials++
		return nil, fmt.Errorf("reset, from port %d", dials)
	}
	return cfg
}

// heldFor is a member in virtual time, for that long.
func heldFor(t *testing.T, cfg leasepg.OwnershipConfig, lasts time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cfg.Group, cfg.Partitions = "orders", []string{"a"}
		cfg.Open = func(context.Context, string) (dispatch.Partition, error) {
			return dispatch.Partition{}, errors.New("unreachable")
		}
		o, err := leasepg.NewOwnership(cfg)
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
	heldFor(t, leasepg.OwnershipConfig{Conn: nowhere(t), OnError: func(err error) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, err)
	}}, 150*time.Second)
	if len(told) != 3 { // at 0, 1 and 2 minutes
		t.Errorf("told %d times in two and a half minutes: %v", len(told), told)
	}
}

func TestOwnershipLogsWhatNobodyTakes(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	heldFor(t, leasepg.OwnershipConfig{Conn: nowhere(t)}, 10*time.Second)
	if said := log.String(); strings.Count(said, "level=WARN") != 1 || !strings.Contains(said, "group=orders") || !strings.Contains(said, "reset, from port 1") {
		t.Errorf("logged: %q", said)
	}
}
