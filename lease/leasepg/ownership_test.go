// SPDX-License-Identifier: Apache-2.0

package leasepg_test

// This file is about sharing partitions out: what only PostgreSQL can do to a member.

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/leasepg"
)

// dedicated is how a member connects.
func dedicated(t testing.TB) *pgx.ConnConfig {
	t.Helper()
	return must(pgx.ParseConfig(need(t).URL()))(t)
}

// watched is a member whose work says when it begins and how it ends.
type watched struct {
	cancel context.CancelFunc
	ended  chan struct{}
	err    error // of Hold, once ended
	events chan event
}

type event struct {
	partition string
	begins    bool
	cause     error // of an end
}

func watch(t testing.TB, cfg leasepg.GroupConfig) *watched {
	t.Helper()
	if cfg.Open == nil {
		cfg.Open = func(context.Context, string) (dispatch.Partition, error) { return dispatch.Partition{}, nil }
	}
	o, err := leasepg.OpenGroup(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w := &watched{cancel: cancel, ended: make(chan struct{}), events: make(chan event, 1000)}
	go func() {
		defer close(w.ended)
		w.err = o.Hold(ctx, func(ctx context.Context, p dispatch.Partition) {
			w.events <- event{partition: p.Name, begins: true}
			<-ctx.Done()
			w.events <- event{partition: p.Name, cause: context.Cause(ctx)}
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-w.ended
	})
	return w
}

// next returns the events up to the nth that is as wanted.
func (w *watched) next(t testing.TB, n int, wanted func(event) bool) (all []event) {
	t.Helper()
	late := time.After(time.Minute)
	for n > 0 {
		select {
		case e := <-w.events:
			if all = append(all, e); wanted(e) {
				n--
			}
		case <-late:
			t.Fatalf("%d more to come after %v", n, all)
		}
	}
	return all
}

func begins(e event) bool { return e.begins }
func lost(e event) bool   { return !e.begins && errors.Is(e.cause, dispatch.ErrLost) }

func TestOwnershipRefuses(t *testing.T) {
	cfg := must(pgx.ParseConfig("postgres://x@127.0.0.1:1/x?sslmode=disable"))(t)
	good := leasepg.GroupConfig{
		Conn: cfg, Group: "g", Names: []string{"a", "b"},
		Open: func(context.Context, string) (dispatch.Partition, error) { return dispatch.Partition{}, nil },
	}
	for field, change := range map[string]func(*leasepg.GroupConfig){
		"Conn":    func(c *leasepg.GroupConfig) { c.Conn = nil },
		"Group":   func(c *leasepg.GroupConfig) { c.Group = "" },
		"Names":   func(c *leasepg.GroupConfig) { c.Names = nil },
		"Open":    func(c *leasepg.GroupConfig) { c.Open = nil },
		"Session": func(c *leasepg.GroupConfig) { c.Session = time.Millisecond },
	} {
		bad := good
		change(&bad)
		if o, err := leasepg.OpenGroup(t.Context(), bad); o != nil ||
			!refusesField(err, "leasepg.GroupConfig."+field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	bad := good
	bad.Conn = &pgx.ConnConfig{} // pgx would panic
	if _, err := leasepg.OpenGroup(t.Context(), bad); !refusesField(err, "leasepg.GroupConfig.Conn") {
		t.Errorf("a connection that pgx did not make: %v", err)
	}
	bad = good
	bad.Names = []string{"a", "b", "a"}
	if _, err := leasepg.OpenGroup(t.Context(), bad); !refusesField(err, "leasepg.GroupConfig.Names") {
		t.Errorf("a partition twice: %v", err)
	}
	nothing := func(context.Context, dispatch.Partition) {}
	o := must(leasepg.OpenGroup(t.Context(), good))(t)
	for field, err := range map[string]error{
		"leasepg.Group": errors.Join(new(leasepg.Group).Hold(t.Context(), nothing), (*leasepg.Group)(nil).Hold(t.Context(), nothing)),
		"work":          o.Hold(t.Context(), nil),
		"ctx":           o.Hold(nil, nothing), //nolint:staticcheck // the point of it
	} {
		if !refusesField(err, field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// Whatever the first connection meets, it is told, and tried again: a server that is not there yet, a password that is not right
// yet.
func TestOwnershipFirstConnection(t *testing.T) {
	wrong := dedicated(t)
	wrong.Database = "not there"
	told := make(chan error, 100)
	w := watch(t, leasepg.GroupConfig{Conn: wrong, Group: t.Name(), Names: []string{"a"}, OnError: func(err error) { told <- err }})
	var refused *pgconn.PgError
	if err := <-told; !errors.As(err, &refused) || refused.Code != "3D000" {
		t.Errorf("no such database: %v", err)
	}
	w.cancel()
	if <-w.ended; w.err != nil {
		t.Errorf("asked to end: %v", w.err)
	}

	late := dedicated(t)
	dial, away := late.DialFunc, errors.New("away")
	var calls atomic.Int64
	late.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if calls.Add(1) <= 2 {
			return nil, away
		}
		return dial(ctx, network, address)
	}
	partitions := []string{"a", "b"}
	o := leasepg.GroupConfig{Conn: late, Group: t.Name(), Names: partitions, Session: 400 * time.Millisecond,
		OnError: func(err error) { told <- err }}
	w = watch(t, o)
	partitions[0], late.DialFunc = "another", nil // the caller's own by now
	for _, e := range w.next(t, 2, begins) {
		if e.partition == "another" {
			t.Error("what the caller did to his slice is worked on")
		}
	}
	if err := <-told; !errors.Is(err, away) {
		t.Errorf("told: %v", err)
	}
}

// A pooler gives a session to whoever comes next. It announces itself by a backend that is not the one which answers.
func TestOwnershipRefusesPoolers(t *testing.T) {
	cfg := dedicated(t)
	cfg.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		return &renumbering{Conn: conn}, err
	}
	w := watch(t, leasepg.GroupConfig{Conn: cfg, Group: t.Name(), Names: []string{"a"}})
	<-w.ended
	if !refusesField(w.err, "leasepg.connection") {
		t.Errorf("through a pooler: %v", w.err)
	}
}

// renumbering announces another backend, as a pooler does.
type renumbering struct {
	net.Conn
	done bool
}

func (r *renumbering) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	if at := bytes.Index(b[:n], []byte{'K', 0, 0, 0, 12}); at >= 0 && at+9 <= n && !r.done {
		b[at+8] ^= 0x55
		r.done = true
	}
	return n, err
}

// A session that the server ends is lost long before its lease is over, and another one takes its place.
func TestOwnershipTerminated(t *testing.T) {
	admin := connect(t, need(t).URL(), 1)
	ways := map[string]func() error{"the backend is terminated": func() error {
		_, err := admin.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'a member'")
		return err
	}}
	if server.Private() {
		ways["the server is restarted"] = func() error { return server.Restart(t.Context()) }
	}
	for how, end := range ways {
		t.Run(how, func(t *testing.T) {
			cfg := dedicated(t)
			cfg.RuntimeParams["application_name"] = "a member"
			told := make(chan error, 100)
			w := watch(t, leasepg.GroupConfig{
				Conn: cfg, Group: t.Name(), Names: []string{"a", "b", "c"}, Session: time.Hour,
				OnError: func(err error) { told <- err },
			})
			w.next(t, 3, begins)
			noError(t, end())
			for _, e := range w.next(t, 3, lost) {
				if !errors.Is(e.cause, dispatch.ErrLost) || !strings.Contains(e.cause.Error(), e.partition) {
					t.Errorf("%s: %v", e.partition, e.cause)
				}
			}
			w.next(t, 3, begins)
			if err := <-told; err == nil {
				t.Error("told of no error")
			}
		})
	}
}

// A Consumer keeps a partition that cannot be opened, says that it is stalled, and works on it when it opens. The member is told why.
func TestUnopenedPartitionSaysSo(t *testing.T) {
	var opens atomic.Bool
	broken, told := errors.New("broken"), make(chan error, 100)
	log := &dispatch.Log{}
	log.Append("k", nil)
	o := must(leasepg.OpenGroup(t.Context(), leasepg.GroupConfig{
		Conn: dedicated(t), Group: t.Name(), Names: []string{"a"}, Session: 200 * time.Millisecond, OnError: func(err error) { told <- err },
		Open: func(context.Context, string) (dispatch.Partition, error) {
			if !opens.Load() {
				return dispatch.Partition{}, broken
			}
			return dispatch.Partition{Name: "whatever", Source: log, Ledger: must(lease.NewMemory(lease.Config{}))(t)}, nil
		},
	}))(t)
	done := make(chan struct{})
	c := must(dispatch.NewConsumer(o, dispatch.Config{AttemptTimeout: 50 * time.Millisecond, DeadLetter: dispatch.Discard,
		Handler: func(_ context.Context, job dispatch.Job) error {
			if job.Partition != "a" {
				t.Errorf("work on %q", job.Partition)
			}
			close(done)
			return nil
		}}))(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	hear(t, told, "broken")
	for stalled := ""; stalled != "unopened"; time.Sleep(time.Millisecond) { // a server tells nobody
		for _, s := range c.Stats() {
			stalled = s.Stalled
		}
		if t.Context().Err() != nil {
			t.Fatal("D12: it does not say that it is not open")
		}
	}
	opens.Store(true)
	<-done
	cancel()
	noError(t, <-ended)
}

// closable is a ledger that is its maker's to close.
type closable struct {
	lease.Ledger
	closed atomic.Bool
}

func (c *closable) Close(context.Context) error { c.closed.Store(true); return nil }

// A ledger that Open returned stays open, also where Journal is set.
func TestJournalIsNotForOpen(t *testing.T) {
	mine := &closable{Ledger: must(lease.NewMemory(lease.Config{}))(t)}
	o := must(leasepg.OpenGroup(t.Context(), leasepg.GroupConfig{
		Conn: dedicated(t), Group: t.Name(), Names: []string{"a"}, Journal: true,
		Open: func(context.Context, string) (dispatch.Partition, error) {
			return dispatch.Partition{Source: new(dispatch.Log), Ledger: mine}, nil
		},
	}))(t)
	ctx, cancel := context.WithCancel(t.Context())
	noError(t, o.Hold(ctx, func(context.Context, dispatch.Partition) { cancel() }))
	if mine.closed.Load() {
		t.Error("closed")
	}
}
