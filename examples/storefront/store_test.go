package main

// The slow query is really slow: it holds its connection, and nobody but the store ends it early.

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"modernc.org/sqlite"
)

func newStore(t *testing.T) *sqliteStore {
	t.Helper()
	st, err := openSQLite(t.Context())
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

func newPool(t *testing.T, st store, size int, acquire time.Duration) *pool {
	t.Helper()
	p, err := openPool(t.Context(), st, size, size, acquire)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func nothing(context.Context, *sql.Conn) (any, error) { return nil, nil }

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
		_, err := p.with(ctx, func(ctx context.Context, c *sql.Conn) (any, error) {
			var a, b int64
			return nil, c.QueryRowContext(ctx, `SELECT now_asleep(), sleep_ms(3600000)`).Scan(&a, &b)
		})
		ended <- err
	}()
	<-asleep
	cancel()

	if _, err := p.with(t.Context(), nothing); !errors.Is(err, errPoolTimeout) {
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
	if _, err := p.with(t.Context(), nothing); err != nil {
		t.Errorf("the connection is not usable again: %v", err)
	}
}

func TestSleepLastsItsTime(t *testing.T) {
	st := newStore(t)
	p := newPool(t, st, 1, time.Minute)
	start := time.Now()
	if _, err := p.with(t.Context(), func(ctx context.Context, c *sql.Conn) (any, error) { return nil, st.pause(ctx, c, 30*time.Millisecond) }); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < 30*time.Millisecond {
		t.Errorf("slept %v", took)
	}
}

func TestSleepRejectsBadArguments(t *testing.T) {
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
	if _, err := p.with(t.Context(), func(context.Context, *sql.Conn) (any, error) { return nil, boom }); !errors.Is(err, boom) {
		t.Errorf("got %v, want %v", err, boom)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.with(ctx, nothing); !errors.Is(err, context.Canceled) || errors.Is(err, errPoolTimeout) {
		t.Errorf("a user who has left got %v, want context.Canceled", err)
	}
	if s := p.db.Stats(); s.InUse != 0 || s.OpenConnections != 5 {
		t.Errorf("%d in use, %d open, want 0 and 5", s.InUse, s.OpenConnections)
	}
}

func TestStoreFailsWithoutAFolder(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()+"/missing")
	if _, err := openStore(t.Context(), ""); err == nil {
		t.Error("opened")
	}
}

func TestStoreOfUnknownKind(t *testing.T) {
	for _, at := range []string{"mysql://here", "postgres", "postgres://%zz"} {
		var invalid *InvalidError
		if _, err := openStore(t.Context(), at); !errors.As(err, &invalid) || invalid.Name != databaseVariable {
			t.Errorf("%q: %v, want an InvalidError of %s", at, err, databaseVariable)
		}
	}
}

// A pool that is closed does not wait for the connection that it may just be opening. The store does.
func TestStoreClosesWhileConnectionsAreOpened(t *testing.T) {
	for range 20 {
		st, err := openSQLite(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var opening sync.WaitGroup
		opened := make(chan struct{}, 4)
		for range cap(opened) {
			opening.Go(func() {
				for told := false; ; told = true {
					c, err := st.Connect(context.Background())
					if err != nil {
						if !errors.Is(err, errStoreClosed) {
							t.Error(err)
						}
						return
					}
					if !told {
						opened <- struct{}{}
					}
					if err := c.Close(); err != nil {
						t.Error(err)
					}
				}
			})
		}
		for range cap(opened) {
			<-opened
		}
		if err := st.close(); err != nil {
			t.Error(err)
		}
		opening.Wait()
		if _, err := os.Stat(st.dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the folder is still there: %v", err)
		}
	}
}
