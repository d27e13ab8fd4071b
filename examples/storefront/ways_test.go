package main

// What one pool loses and what compartments keep, without HTTP and without a clock.

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/limiter"
)

func small() scenario {
	sc := incident()
	sc.conns = [routes]int{checkout: 5, products: 3, analytics: 2, admin: 1}
	sc.acquire, sc.patience = 100*time.Millisecond, time.Hour
	return sc
}

func newWay(t *testing.T, kind string, sc scenario) way {
	t.Helper()
	var w way
	var err error
	if kind == shared {
		w, err = openShared(t.Context(), newStore(t), sc)
	} else {
		w, err = openCompartments(t.Context(), newStore(t), sc, nil)
	}
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

// flood keeps n queries of a route running and returns how to end them.
func flood(t *testing.T, w way, r route, n int) (end func()) {
	t.Helper()
	var running, ended sync.WaitGroup
	release := make(chan struct{})
	running.Add(n)
	for range n {
		ended.Go(func() {
			_, err := w.do(t.Context(), r, func(context.Context, *sql.Conn) (any, error) {
				running.Done()
				<-release
				return nil, nil
			}, nil)
			if err != nil && !errors.Is(err, bulkhead.ErrTimeout) { // whoever waits longer than the timeout is told so
				t.Error(err)
			}
		})
	}
	running.Wait()
	return func() { close(release); ended.Wait() }
}

func use(t *testing.T, w way, r route) error {
	t.Helper()
	_, err := w.do(t.Context(), r, func(ctx context.Context, c *sql.Conn) (any, error) { return nil, c.PingContext(ctx) }, nil)
	return err
}

func TestSharedPoolIsLostToOneRoute(t *testing.T) {
	sc := small()
	w := newWay(t, shared, sc)
	end := flood(t, w, analytics, sc.total())
	if got, want := w.inUse(), "11/11"; got != want {
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

// Analytics takes its own places and those that are lent, is rejected the next one, and the others do not notice; its
// pool has a connection for each of them.
func TestCompartmentsKeepTheOthers(t *testing.T) {
	w := newWay(t, divided, small())
	end := flood(t, w, analytics, 4)
	if got, want := w.inUse(), "0/7  0/4  4/4  0/2"; got != want {
		t.Errorf("in use %q, want %q", got, want)
	}
	err := use(t, w, analytics)
	var timeout *bulkhead.TimeoutError
	if !errors.As(err, &timeout) || timeout.Phase != bulkhead.Queued {
		t.Fatalf("analytics: %v, want a timeout in the queue", err)
	}
	for _, r := range bystanders() {
		if err := use(t, w, r); err != nil {
			t.Errorf("%s: %v", r, err)
		}
	}
	end()
	if err := use(t, w, analytics); err != nil {
		t.Errorf("analytics afterwards: %v", err)
	}
}

// The products page has no place: its fallback answers, and is told why.
func TestFallbackWhenFull(t *testing.T) {
	w := newWay(t, divided, small())
	end := flood(t, w, products, 4)
	defer end()
	got, err := w.do(t.Context(), products, nothing, func(_ context.Context, cause error) (any, error) {
		if !errors.Is(cause, limiter.ErrRejected) && !errors.Is(cause, bulkhead.ErrTimeout) {
			t.Errorf("the cause is %v", cause)
		}
		return "an older list", nil
	})
	if err != nil || got != "an older list" {
		t.Errorf("%v, %v", got, err)
	}
}

// Ten reports that fail open the breaker; callers who went away do not.
func TestReportsBreaker(t *testing.T) {
	w := newWay(t, divided, small())
	boom := errors.New("boom")
	ask := func(ctx context.Context, q query) error {
		_, err := w.do(ctx, analytics, q, nil)
		return err
	}
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		err := ask(ctx, func(ctx context.Context, _ *sql.Conn) (any, error) { cancel(); return nil, ctx.Err() })
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	for range 10 {
		if err := ask(t.Context(), func(context.Context, *sql.Conn) (any, error) { return nil, boom }); !errors.Is(err, boom) {
			t.Fatal(err)
		}
	}
	if err := ask(t.Context(), nothing); !errors.Is(err, bulkhead.ErrBreakerOpen) {
		t.Errorf("after ten failures: %v", err)
	}
	if err := use(t, w, checkout); err != nil {
		t.Errorf("checkout: %v", err)
	}
}

// The pools follow their compartments, and stay where they are if the plan is rejected.
func TestResizeTakesThePoolsAlong(t *testing.T) {
	w := newWay(t, divided, small()).(*compartments)
	sizes := func(want string) {
		t.Helper()
		if got := w.inUse(); got != want {
			t.Errorf("pools %s, want %s", got, want)
		}
	}
	next := w.set.Plan()
	next.Compartments[analytics].Max, next.Compartments[checkout].Max = 1, 11
	next.Compartments[analytics].Guaranteed, next.Compartments[analytics].Lendable = 1, 0
	revision, err := w.resize(next)
	if err != nil || revision != 2 {
		t.Fatalf("revision %d, %v", revision, err)
	}
	sizes("0/11  0/4  0/1  0/2")
	next.Compartments[checkout].Max = 6
	if _, err := w.resize(next); !errors.Is(err, bulkhead.ErrConflict) {
		t.Errorf("a plan of revision 1: %v", err)
	}
	next.Revision, next.Compartments[checkout].Max = 2, 12
	if _, err := w.resize(next); !errors.Is(err, bulkhead.ErrInvalid) {
		t.Errorf("more than there are: %v", err)
	}
	sizes("0/11  0/4  0/1  0/2")
}

func TestCompartmentsRejectABadSize(t *testing.T) {
	sc := small()
	sc.conns[admin] = -1
	if _, err := openCompartments(t.Context(), newStore(t), sc, nil); !errors.Is(err, bulkhead.ErrInvalid) {
		t.Errorf("opened with -1 connections: %v", err)
	}
}

// Every scenario's shares are a valid plan, also halved for PostgreSQL.
func TestSharesAreValid(t *testing.T) {
	for _, sc := range []scenario{incident(), incident().halved(), overload(), overload().halved()} {
		set, err := bulkhead.New(bulkhead.Config{Total: sc.total(), Compartments: sc.compartments(nil)})
		if err != nil {
			t.Fatal(err)
		}
		most := 0
		for _, share := range set.Plan().Compartments {
			most += share.Max
		}
		if sc.total() < 100 && most > 90 {
			t.Errorf("%d connections may be open, idle ones included, where a server allows a hundred", most)
		}
	}
}
