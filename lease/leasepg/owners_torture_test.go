// SPDX-License-Identifier: Apache-2.0

package leasepg_test

// This file tortures members that work an outbox off: partitions shared out by advisory locks, sources and ledgers in the
// database, in this process and in processes of their own.

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/internal/testkit/ownertest"
	"github.com/stopbank/stopbank/lease/leasepg"
	"github.com/stopbank/stopbank/lease/leasepg/pgtest"
)

// joining is what a member is made from.
type joining struct {
	URL, Outbox string
	Partitions  []string
	Journal     bool
	dial        pgconn.DialFunc // nil: the usual one
	told        func(error)     // nil: the default
}

const joiningLease = 400 * time.Millisecond

// join makes a member with a pool of its own, waiting for the server if it is away.
func (j joining) join(ctx context.Context) (*leasepg.Group, *pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(j.URL)
	if err != nil {
		return nil, nil, err
	}
	cfg.MaxConns = 2 // the dead keep theirs until their group ends, and the server has a hundred for all groups
	if j.dial != nil {
		cfg.ConnConfig.DialFunc = j.dial
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	var outbox *leasepg.Outbox
	for until := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) { // nothing tells when the server is up
		outbox, err = leasepg.OpenOutbox(ctx, leasepg.OutboxConfig{Pool: pool, Name: j.Outbox, Poll: 10 * time.Millisecond})
		if err == nil || time.Now().After(until) {
			break
		}
	}
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	o, err := leasepg.OpenGroup(ctx, leasepg.GroupConfig{
		Conn: cfg.ConnConfig.Copy(), Group: j.Outbox, Outbox: outbox, Ledger: lease.Config{MaxRetries: 100},
		Session: joiningLease, OnError: j.told, Journal: j.Journal,
	})
	return o, pool, err
}

// ownerChild is what ownertest.Child makes a member of.
func ownerChild(process string) (dispatch.Ownership, error) {
	var j joining
	if err := json.Unmarshal([]byte(process), &j); err != nil {
		return nil, err
	}
	o, _, err := j.join(context.Background())
	return o, err
}

// placed are the keys that the outbox puts into the partition where a torture wants a domain.
type placed map[string]string

func (p placed) key(partition, domain string, partitions int) string {
	for i := 0; p[partition+domain] == ""; i++ {
		key := fmt.Sprint(domain, "-", i)
		if at := leasepg.PartitionOf(key, partitions); strings.HasSuffix(partition, fmt.Sprint("/", at)) {
			p[partition+domain] = key
		}
	}
	return p[partition+domain]
}

func TestOwnership(t *testing.T) { ownertest.Run(t, owners(t, need(t), false)) }

func TestTortureOwners(t *testing.T) { torture(t, false) }

// The ledgers are written per window.
func TestTortureOwnersOfJournals(t *testing.T) { torture(t, true) }

// torture waits more than it works, so two run at a time, each on a server that it restarts, unless -torture.time fills the machine.
func torture(t *testing.T, inJournals bool) {
	need(t)
	if long, _ := ownertest.Budget(); long == 0 {
		t.Parallel()
	}
	own := must(pgtest.Open(t.Context(), false))(t)
	t.Cleanup(func() { noError(t, own.Close()) })
	ownertest.Torture(t, owners(t, own, inJournals))
}

// owners opens groups, each on an outbox of its own.
func owners(t *testing.T, server *pgtest.Server, inJournals bool) ownertest.Open {
	admin := connect(t, server.URL(), 4)
	noError(t, leasepg.Migrate(t.Context(), admin))
	// insist repeats what fails: all connections may be those to the server before a restart.
	insist := func(t testing.TB, do func(ctx context.Context) error) {
		var err error
		for range 5 {
			if err = do(context.Background()); err == nil {
				return
			}
		}
		t.Fatal(err)
	}
	return func(t testing.TB, partitions int) ownertest.Group {
		var outbox *leasepg.Outbox
		name := fmt.Sprintf("%s/%d", t.Name(), ledgers.Add(1))
		insist(t, func(ctx context.Context) (err error) {
			outbox, err = leasepg.OpenOutbox(ctx, leasepg.OutboxConfig{Pool: admin, Name: name, Partitions: partitions})
			return err
		})
		j := joining{URL: server.URL(), Outbox: name, Partitions: outbox.Partitions(), Journal: inJournals}
		process := must(json.Marshal(j))(t)
		var mu sync.Mutex // guards told
		var told []string // the last errors of members
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("members were told:\n%s", strings.Join(told, "\n"))
			}
		})
		keys := placed{}
		g := ownertest.Group{
			Partitions: j.Partitions, Lease: joiningLease, Process: string(process),
			HandOver: 10 * joiningLease, // the server and members have processes of their own, which this machine may keep waiting
			Append: func(partition, domain string, payload []byte) {
				r := dispatch.Record{Domain: keys.key(partition, domain, partitions), Payload: payload}
				insist(t, func(ctx context.Context) error {
					return pgx.BeginFunc(ctx, admin, func(tx pgx.Tx) error { return outbox.Enqueue(ctx, tx, r) })
				})
			},
			// What is done is deleted, and what is not is behind.
			Behind: func() ([]string, error) {
				rows, err := admin.Query(context.Background(), "SELECT DISTINCT partition FROM stopbank.outbox_records WHERE outbox = $1",
					name)
				if err != nil {
					return nil, err
				}
				numbers, err := pgx.CollectRows(rows, pgx.RowTo[int])
				var behind []string
				for _, n := range numbers {
					behind = append(behind, j.Partitions[n])
				}
				return behind, err
			},
			Join: func() ownertest.Member {
				line := ownertest.NewLine(t)
				mine := j
				mine.dial = line.DialContext
				mine.told = func(err error) {
					mu.Lock()
					defer mu.Unlock()
					told = append(told[max(0, len(told)-19):], err.Error())
				}
				o, pool, err := mine.join(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				return ownertest.Member{Ownership: o, Cut: line.Cut, Mend: line.Mend, Line: line, Close: pool.Close}
			},
		}
		if server.Private() {
			g.Restart = func() error { return server.Restart(context.Background()) }
		}
		return g
	}
}
