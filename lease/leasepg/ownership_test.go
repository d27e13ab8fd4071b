package leasepg_test

// This file is about sharing partitions out: the contract's own suite, and what only PostgreSQL can do to a member.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/internal/testkit/ownertest"
	"github.com/stopbank/stopbank/lease/leasepg"
)

func TestOwnership(t *testing.T) {
	need(t)
	ownertest.Run(t, func(t testing.TB, partitions int) ownertest.Group {
		logs := map[string]*ownertest.Log{}
		g := ownertest.Group{Append: func(partition, domain string, payload []byte) { logs[partition].Append(domain, payload) }}
		for i := range partitions {
			l := ownertest.NewLog(fmt.Sprint("p", i))
			logs[l.Name], g.Partitions = l, append(g.Partitions, l.Name)
		}
		name := fmt.Sprintf("%s/%d", t.Name(), ledgers.Add(1))
		join := func(old bool) ownertest.Member {
			line := ownertest.NewLine(t)
			conn := dedicated(t)
			conn.DialFunc = line.DialContext
			o := must(leasepg.NewOwnership(leasepg.OwnershipConfig{
				Conn: conn, Group: name, Partitions: g.Partitions, Lease: 500 * time.Millisecond,
				Open: func(_ context.Context, partition string) (dispatch.Partition, error) {
					return logs[partition].Open(old), nil
				},
			}))(t)
			return ownertest.Member{Ownership: o, Cut: line.Cut, Mend: line.Mend}
		}
		g.Join = func() ownertest.Member { return join(false) }
		g.JoinOld = func() ownertest.Member { return join(true) }
		return g
	})
}

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

func watch(t testing.TB, cfg leasepg.OwnershipConfig) *watched {
	t.Helper()
	if cfg.Open == nil {
		cfg.Open = func(context.Context, string) (dispatch.Partition, error) { return dispatch.Partition{}, nil }
	}
	o, err := leasepg.NewOwnership(cfg)
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
	good := leasepg.OwnershipConfig{
		Conn: cfg, Group: "g", Partitions: []string{"a", "b"},
		Open: func(context.Context, string) (dispatch.Partition, error) { return dispatch.Partition{}, nil },
	}
	for field, change := range map[string]func(*leasepg.OwnershipConfig){
		"Conn":       func(c *leasepg.OwnershipConfig) { c.Conn = nil },
		"Group":      func(c *leasepg.OwnershipConfig) { c.Group = "" },
		"Partitions": func(c *leasepg.OwnershipConfig) { c.Partitions = nil },
		"Open":       func(c *leasepg.OwnershipConfig) { c.Open = nil },
		"Lease":      func(c *leasepg.OwnershipConfig) { c.Lease = time.Millisecond },
	} {
		bad := good
		change(&bad)
		if o, err := leasepg.NewOwnership(bad); o != nil || !refusesField(err, "leasepg.OwnershipConfig."+field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	bad := good
	bad.Partitions = []string{"a", "b", "a"}
	if _, err := leasepg.NewOwnership(bad); !refusesField(err, "leasepg.OwnershipConfig.Partitions") {
		t.Errorf("a partition twice: %v", err)
	}
	nothing := func(context.Context, dispatch.Partition) {}
	o, err := leasepg.NewOwnership(good)
	if err != nil {
		t.Fatal(err)
	}
	for field, err := range map[string]error{
		"leasepg.Ownership": errors.Join(new(leasepg.Ownership).Hold(t.Context(), nothing), (*leasepg.Ownership)(nil).Hold(t.Context(), nothing)),
		"work":              o.Hold(t.Context(), nil),
		"ctx":               o.Hold(nil, nothing), //nolint:staticcheck // the point of it
	} {
		if !refusesField(err, field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// Whatever the first connection meets, it is told, and tried again: a server that is not there yet, a password that is not right yet.
func TestOwnershipFirstConnection(t *testing.T) {
	wrong := dedicated(t)
	wrong.Database = "not there"
	told := make(chan error, 100)
	w := watch(t, leasepg.OwnershipConfig{Conn: wrong, Group: t.Name(), Partitions: []string{"a"}, OnError: func(err error) { told <- err }})
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
	o := leasepg.OwnershipConfig{Conn: late, Group: t.Name(), Partitions: partitions, Lease: 400 * time.Millisecond, OnError: func(err error) { told <- err }}
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
	w := watch(t, leasepg.OwnershipConfig{Conn: cfg, Group: t.Name(), Partitions: []string{"a"}})
	var pooler *leasepg.PoolerError
	<-w.ended
	if !errors.As(w.err, &pooler) || pooler.Announced == pooler.Found || pooler.Found == 0 {
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
			w := watch(t, leasepg.OwnershipConfig{
				Conn: cfg, Group: t.Name(), Partitions: []string{"a", "b", "c"}, Lease: time.Hour,
				OnError: func(err error) { told <- err },
			})
			w.next(t, 3, begins)
			noError(t, end())
			for _, e := range w.next(t, 3, lost) {
				var ended *dispatch.LostError
				if !errors.As(e.cause, &ended) || ended.Partition != e.partition {
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

// A partition that cannot be opened comes with what opens it.
func TestOwnershipOpenFails(t *testing.T) {
	var calls atomic.Int64
	told := make(chan error, 100)
	broken := errors.New("broken")
	w := watch(t, leasepg.OwnershipConfig{
		Conn: dedicated(t), Group: t.Name(), Partitions: []string{"a"}, Lease: 200 * time.Millisecond,
		OnError: func(err error) { told <- err },
		Open: func(context.Context, string) (dispatch.Partition, error) {
			if calls.Add(1) == 1 {
				return dispatch.Partition{}, broken
			}
			return dispatch.Partition{Name: "whatever"}, nil
		},
	})
	if all := w.next(t, 1, begins); all[0].partition != "a" {
		t.Errorf("work on %q", all[0].partition)
	}
	if err := <-told; !errors.Is(err, broken) {
		t.Errorf("told: %v", err)
	}
}

// A Consumer keeps a partition that cannot be opened, says that it is stalled, and works on it when it opens.
func TestUnopenedPartitionSaysSo(t *testing.T) {
	var opens atomic.Bool
	log := &dispatch.Log{}
	log.Append("k", nil)
	o := must(leasepg.NewOwnership(leasepg.OwnershipConfig{
		Conn: dedicated(t), Group: t.Name(), Partitions: []string{"a"}, Lease: 200 * time.Millisecond, OnError: func(error) {},
		Open: func(context.Context, string) (dispatch.Partition, error) {
			if !opens.Load() {
				return dispatch.Partition{}, errors.New("broken")
			}
			return dispatch.Partition{Source: log, Ledger: must(lease.NewMemory(lease.Config{}))(t)}, nil
		},
	}))(t)
	done := make(chan struct{})
	c := must(dispatch.NewConsumer(o, dispatch.Config{AttemptTimeout: 50 * time.Millisecond, DeadLetter: dispatch.Discard, Handler: func(context.Context, dispatch.Job) error {
		close(done)
		return nil
	}}))(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
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

// However the partitions are spread, and whoever knows of it, a few rounds make the parts equal; then nothing moves any more.
func TestPropertyShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		counts := map[uint32]int{}
		members := rapid.IntRange(1, 9).Draw(t, "members")
		total := 0
		for range members {
			counts[rapid.Uint32Range(1, 1<<31).Filter(func(m uint32) bool { _, there := counts[m]; return !there }).Draw(t, "backend")] =
				rapid.IntRange(0, 30).Draw(t, "has")
		}
		free := rapid.IntRange(0, 30).Draw(t, "free")
		for _, n := range counts {
			total += n
		}
		total += free
		for round := 0; ; round++ {
			taken, given := 0, 0
			after := map[uint32]int{}
			for m, n := range counts {
				take, give := leasepg.Shares(counts, m, free)
				if take < 0 || give < 0 || give > n || take > free {
					t.Fatalf("of %v and %d free, %d takes %d and gives %d", counts, free, m, take, give)
				}
				after[m] = n + take - give
				taken, given = taken+take, given+give
			}
			if taken != free {
				t.Fatalf("of %v and %d free, %d are taken", counts, free, taken)
			}
			counts, free = after, given
			if given == 0 {
				break
			}
			if round == 2 {
				t.Fatalf("no rest at %v with %d free", counts, free)
			}
		}
		for m, n := range counts {
			if n < total/members || n > (total+members-1)/members {
				t.Fatalf("%d has %d in %v", m, n, counts)
			}
		}
	})
}
