package leasepg_test

// This file tortures members that share partitions out by advisory locks, with ledgers and logs in the database, in this process and in processes
// of their own.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/leasepg"
	"github.com/stopbank/stopbank/lease/leasetest/ownertest"
)

// table is a partition: rows of a table, and a floor that belongs to whoever claimed it last.
type table struct {
	pool        *pgxpool.Pool
	group, name string
	claim       int64
}

const tables = `
CREATE TABLE IF NOT EXISTS owners_log (part text, record bigint, domain text, payload bytea, PRIMARY KEY (part, record));
CREATE TABLE IF NOT EXISTS owners_floor (part text PRIMARY KEY, floor bigint NOT NULL DEFAULT 0, claim bigint NOT NULL DEFAULT 0)`

func (s *table) part() string { return s.group + "/" + s.name }

func (s *table) Committed(ctx context.Context) (floor int64, err error) {
	err = s.pool.QueryRow(ctx, "UPDATE owners_floor SET claim = claim + 1 WHERE part = $1 RETURNING floor, claim", s.part()).Scan(&floor, &s.claim)
	return floor, err
}

func (s *table) Commit(ctx context.Context, floor int64) error {
	tag, err := s.pool.Exec(ctx, "UPDATE owners_floor SET floor = greatest(floor, $3) WHERE part = $1 AND claim = $2", s.part(), s.claim, floor)
	if err == nil && tag.RowsAffected() == 0 {
		return &dispatch.LostError{Partition: s.name, Err: errors.New("somebody else has claimed it")}
	}
	return err
}

func (s *table) Fetch(ctx context.Context, from int64, limit int) ([]dispatch.Record, error) {
	for {
		rows, err := s.pool.Query(ctx, "SELECT domain, record, payload FROM owners_log WHERE part = $1 AND record >= $2 ORDER BY record LIMIT $3", s.part(), from, limit)
		if err != nil {
			return nil, err
		}
		records, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r dispatch.Record, err error) {
			err = row.Scan(&r.Domain, &r.Offset, &r.Payload)
			return r, err
		})
		if err != nil || len(records) > 0 {
			return records, err
		}
		select { // nothing tells of a new row
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// joining is what a member is made from.
type joining struct {
	URL, Group string
	Partitions []string
	dial       pgconn.DialFunc // nil: the usual one
	told       func(error)     // nil: nobody is told
}

const joiningLease = 400 * time.Millisecond

// join makes a member with a pool of its own, waiting for the server if it is away.
func (j joining) join(ctx context.Context) (*leasepg.Ownership, *pgxpool.Pool, error) {
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
	o, err := leasepg.NewOwnership(leasepg.OwnershipConfig{
		Conn: cfg.ConnConfig.Copy(), Group: j.Group, Partitions: j.Partitions, Lease: joiningLease, OnError: j.told,
		Open: func(ctx context.Context, partition string) (dispatch.Partition, error) {
			source := &table{pool: pool, group: j.Group, name: partition}
			store, err := leasepg.New(ctx, leasepg.Config{Pool: pool, Ledger: source.part()})
			if err != nil {
				return dispatch.Partition{}, err
			}
			ledger, err := durable.New(durable.Config{Store: store, MaxRetries: 100})
			return dispatch.Partition{Source: source, Ledger: ledger}, err
		},
	})
	for until := time.Now().Add(time.Minute); err == nil; time.Sleep(10 * time.Millisecond) { // nothing tells when the server is up
		if pool.Ping(ctx) == nil || time.Now().After(until) {
			break
		}
	}
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

func TestTortureOwners(t *testing.T) {
	admin := migrated(t, 4)
	must(admin.Exec(t.Context(), tables, pgx.QueryExecModeSimpleProtocol))(t)
	exec := func(t testing.TB, sql string, args ...any) {
		var err error
		for range 5 { // all of its connections may be those to the server before the restart
			if _, err = admin.Exec(context.Background(), sql, args...); err == nil {
				return
			}
		}
		t.Fatal(err)
	}
	ownertest.Torture(t, func(t testing.TB, partitions int) ownertest.Group {
		j := joining{URL: server.URL(), Group: fmt.Sprintf("%s/%d", t.Name(), ledgers.Add(1))}
		for i := range partitions {
			j.Partitions = append(j.Partitions, fmt.Sprint("p", i))
			exec(t, "INSERT INTO owners_floor (part) VALUES ($1)", j.Group+"/"+j.Partitions[i])
		}
		process, err := json.Marshal(j)
		if err != nil {
			t.Fatal(err)
		}
		var open []func() // to be closed when the members have ended
		var mu sync.Mutex // guards told
		var told []string // the last errors of members
		t.Cleanup(func() {
			for _, end := range open {
				end()
			}
			if t.Failed() {
				t.Logf("members were told:\n%s", strings.Join(told, "\n"))
			}
		})
		next := map[string]int64{}
		g := ownertest.Group{
			Partitions: j.Partitions, Lease: joiningLease, Process: string(process),
			Append: func(partition, domain string, payload []byte) {
				exec(t, "INSERT INTO owners_log VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING", j.Group+"/"+partition, next[partition], domain, payload)
				next[partition]++
			},
			Behind: func() ([]string, error) {
				rows, err := admin.Query(context.Background(), `SELECT part FROM owners_floor f WHERE starts_with(part, $1)
					AND floor < (SELECT coalesce(max(record) + 1, 0) FROM owners_log l WHERE l.part = f.part)`, j.Group+"/")
				if err != nil {
					return nil, err
				}
				return pgx.CollectRows(rows, pgx.RowTo[string])
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
				open = append(open, pool.Close)
				return ownertest.Member{Ownership: o, Cut: line.Cut, Mend: line.Mend}
			},
		}
		if server.Private() {
			g.Restart = func() error { return server.Restart(context.Background()) }
		}
		return g
	})
}
