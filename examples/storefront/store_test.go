package main

// The slow query is really slow: it holds its connection, and nobody but the store ends it early.

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"os"
	"testing"
	"time"

	"modernc.org/sqlite"
)

func newStore(t *testing.T) *store {
	t.Helper()
	st, err := openStore(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(st.dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the folder is still there: %v", err)
		}
	})
	return st
}

func newPool(t *testing.T, st *store, size int, acquire time.Duration) *pool {
	t.Helper()
	p, err := openPool(t.Context(), st, size, acquire)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.db.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func TestSleepHoldsItsConnectionEvenAfterCancel(t *testing.T) {
	st := newStore(t)
	asleep := make(chan struct{})
	err := st.drv.RegisterScalarFunction("now_asleep", 0, func(*sqlite.FunctionContext, []driver.Value) (driver.Value, error) {
		close(asleep)
		return int64(1), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	p := newPool(t, st, 1, 100*time.Millisecond)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- p.with(ctx, func(c *sql.Conn) error {
			var a, b int64
			return c.QueryRowContext(ctx, `SELECT now_asleep(), sleep_ms(3600000)`).Scan(&a, &b)
		})
	}()
	<-asleep
	cancel()

	if err := p.with(t.Context(), func(*sql.Conn) error { return nil }); !errors.Is(err, errPoolTimeout) {
		t.Errorf("a second user got %v, want errPoolTimeout", err)
	}
	if n := p.db.Stats().InUse; n != 1 {
		t.Errorf("%d connections in use, want 1", n)
	}
	select {
	case err := <-ended:
		t.Errorf("the sleep ended with its context: %v", err)
	default:
	}

	st.wake()
	if err := <-ended; err == nil {
		t.Error("a woken sleep reported success")
	}
	if n := p.db.Stats().InUse; n != 0 {
		t.Errorf("%d connections in use after the sleep, want 0", n)
	}
	if err := p.with(t.Context(), func(*sql.Conn) error { return nil }); err != nil {
		t.Errorf("the connection is not usable again: %v", err)
	}
}

func TestSleepLastsItsTime(t *testing.T) {
	p := newPool(t, newStore(t), 1, time.Minute)
	start := time.Now()
	var n int64
	if err := p.db.QueryRow(`SELECT sleep_ms(30)`).Scan(&n); err != nil || n != 30 {
		t.Fatalf("sleep_ms(30) = %d, %v", n, err)
	}
	if took := time.Since(start); took < 30*time.Millisecond {
		t.Errorf("slept %v", took)
	}
}

func TestSleepRefusesBadArguments(t *testing.T) {
	p := newPool(t, newStore(t), 1, time.Minute)
	for _, arg := range []any{-1, "soon", 1.5, nil} {
		var n int64
		if err := p.db.QueryRow(`SELECT sleep_ms(?)`, arg).Scan(&n); err == nil {
			t.Errorf("sleep_ms(%v) = %d, want an error", arg, n)
		}
	}
}

func TestPoolReturnsWhatTheQueryReturns(t *testing.T) {
	p := newPool(t, newStore(t), 5, time.Minute)
	boom := errors.New("boom")
	if err := p.with(t.Context(), func(*sql.Conn) error { return boom }); !errors.Is(err, boom) {
		t.Errorf("got %v, want %v", err, boom)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.with(ctx, func(*sql.Conn) error { return nil }); !errors.Is(err, context.Canceled) || errors.Is(err, errPoolTimeout) {
		t.Errorf("a user who has left got %v, want context.Canceled", err)
	}
	if s := p.db.Stats(); s.InUse != 0 || s.OpenConnections != 5 {
		t.Errorf("%d in use, %d open, want 0 and 5", s.InUse, s.OpenConnections)
	}
}

func TestStoreFailsWithoutAFolder(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()+"/missing")
	if st, err := openStore(t.Context()); err == nil {
		t.Errorf("opened in %s", st.dir)
	}
}
