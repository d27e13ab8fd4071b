package main

// What one pool loses and what a gate and a pool per route keep, without HTTP and without a clock.

import (
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stopbank/stopbank/admission"
)

func small() scenario {
	sc := incident()
	sc.conns = [routes]int{checkout: 4, products: 3, analytics: 2, admin: 1}
	sc.acquire = 100 * time.Millisecond
	return sc
}

func newWay(t *testing.T, open openWay, sc scenario) way {
	t.Helper()
	w, err := open(t.Context(), newStore(t), sc)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// flood keeps n queries of analytics running and returns how to end them.
func flood(t *testing.T, w way, n int) (end func()) {
	t.Helper()
	var running, ended sync.WaitGroup
	release := make(chan struct{})
	running.Add(n)
	for range n {
		ended.Go(func() {
			err := w.do(t.Context(), analytics, func(*sql.Conn) error {
				running.Done()
				<-release
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	return func() { close(release); ended.Wait() }
}

func use(t *testing.T, w way, r route) error {
	t.Helper()
	return w.do(t.Context(), r, func(c *sql.Conn) error { return c.PingContext(t.Context()) })
}

func TestSharedPoolIsLostToOneRoute(t *testing.T) {
	sc := small()
	w := newWay(t, openShared, sc)
	end := flood(t, w, sc.total())
	if got, want := w.inUse(), "10/10"; got != want {
		t.Errorf("in use %q, want %q", got, want)
	}
	for r := range routes {
		if err := use(t, w, r); !errors.Is(err, errPoolTimeout) {
			t.Errorf("%s: %v, want errPoolTimeout", r, err)
		}
	}
	end()
	for r := range routes {
		if err := use(t, w, r); err != nil {
			t.Errorf("%s afterwards: %v", r, err)
		}
	}
}

func TestIsolationKeepsTheOthers(t *testing.T) {
	sc := small()
	w := newWay(t, openIsolated, sc)
	end := flood(t, w, sc.conns[analytics])
	if got, want := w.inUse(), "0/4  0/3  2/2  0/1"; got != want {
		t.Errorf("in use %q, want %q", got, want)
	}
	var rejected *admission.RejectedError
	err := use(t, w, analytics)
	if !errors.As(err, &rejected) || !errors.Is(err, admission.ErrRejected) {
		t.Fatalf("analytics: %v, want a rejection", err)
	}
	if rejected.Gate != "analytics" || rejected.Limit != 2 {
		t.Errorf("rejected by %q with limit %d", rejected.Gate, rejected.Limit)
	}
	for _, r := range protected {
		if err := use(t, w, r); err != nil {
			t.Errorf("%s: %v", r, err)
		}
	}
	end()
	if err := use(t, w, analytics); err != nil {
		t.Errorf("analytics afterwards: %v", err)
	}
}

func TestIsolationRefusesABadSize(t *testing.T) {
	sc := small()
	sc.conns[admin] = -1
	if _, err := openIsolated(t.Context(), newStore(t), sc); err == nil {
		t.Error("opened with -1 connections")
	}
}
