// On PostgreSQL: a table each of the orders, the partitions' positions and the accounts, beside the ledgers; advisory locks share the partitions out.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"hash/fnv"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/leasepg"
	"github.com/stopbank/stopbank/lease/leasepg/pgtest"
)

// servePostgres returns a new database of the server that STOPBANK_POSTGRES_URL names, or of a private one, made from what is installed.
func servePostgres(ctx context.Context, _ options) (servers, error) {
	s, err := pgtest.Open(ctx, false) // without fsync: processes are killed here, not machines
	if err != nil {
		return servers{}, err
	}
	return servers{at: s.URL(), about: "PostgreSQL, " + s.About(), stop: s.Close}, nil
}

// onPostgres implements engine and register.
type onPostgres struct{ pool *pgxpool.Pool }

func connectPostgres(ctx context.Context, o options) (engine, error) {
	cfg, err := pgxpool.ParseConfig(o.servers)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = 8 // a server takes 100, and every replica has a pool
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	return &onPostgres{pool}, err
}

func (p *onPostgres) close() { p.pool.Close() }

func (p *onPostgres) prepare(ctx context.Context, o options) error {
	if err := leasepg.Migrate(ctx, p.pool); err != nil {
		return err
	}
	if _, err := p.pool.Exec(ctx, `
		CREATE TABLE orders (part integer, id bigint, customer text NOT NULL, payload bytea NOT NULL, PRIMARY KEY (part, id));
		CREATE TABLE positions (part integer PRIMARY KEY, claims bigint NOT NULL DEFAULT 0, floor bigint NOT NULL DEFAULT 0);
		CREATE TABLE accounts (customer text PRIMARY KEY, version bigint NOT NULL, content jsonb NOT NULL)`); err != nil {
		return err
	}
	_, err := p.pool.Exec(ctx, `INSERT INTO positions (part) SELECT generate_series(0, $1 - 1)`, o.partitions)
	return err
}

// publish is one statement, and the next one begins when this one is committed: there is a single producer. That is why orders may be read by their
// ids: none turns up below one that was read. An outbox with several writers needs more, for who drew the smaller id may commit
// last, behind a position that has passed it.
func (p *onPostgres) publish(ctx context.Context, o options, first, behind int) error {
	rows := pgx.CopyFromSlice(behind-first, func(row int) ([]any, error) {
		i := first + row
		h := fnv.New32a()
		_, _ = h.Write([]byte(buyer(o, i)))
		return []any{int(h.Sum32() % uint32(o.partitions)), i + 1, buyer(o, i), strconv.AppendInt(nil, int64(i)+1, 10)}, nil
	})
	_, err := p.pool.CopyFrom(ctx, pgx.Identifier{"orders"}, []string{"part", "id", "customer", "payload"}, rows)
	return err
}

func (p *onPostgres) group(_ context.Context, o options) (dispatch.Ownership, error) {
	parts := map[string]int{}
	cfg := leasepg.OwnershipConfig{
		Conn: p.pool.Config().ConnConfig, Group: "orders", Lease: o.session,
		Open: func(ctx context.Context, partition string) (dispatch.Partition, error) {
			store, err := leasepg.New(ctx, leasepg.Config{Pool: p.pool, Ledger: partition})
			if err != nil {
				return dispatch.Partition{}, err
			}
			ledger, err := durable.New(durable.Config{Store: store})
			return dispatch.Partition{Name: partition, Source: &table{pool: p.pool, part: parts[partition]}, Ledger: ledger}, err
		},
	}
	for i := range o.partitions {
		name := "orders/" + strconv.Itoa(i)
		parts[name] = i
		cfg.Partitions = append(cfg.Partitions, name)
	}
	return leasepg.NewOwnership(cfg)
}

// remove leaves it to the end of the database, which is this run's alone.
func (*onPostgres) remove(context.Context) error { return nil }

// table is a partition of the orders as a dispatch.Source, for one owner.
type table struct {
	pool  *pgxpool.Pool
	part  int
	claim int64
}

// Committed claims the position: from now on the commits of earlier owners are refused.
func (t *table) Committed(ctx context.Context) (floor int64, err error) {
	err = t.pool.QueryRow(ctx, `UPDATE positions SET claims = claims + 1 WHERE part = $1 RETURNING claims, floor`, t.part).Scan(&t.claim, &floor)
	return floor, err
}

// Commit is fenced by the claim.
func (t *table) Commit(ctx context.Context, floor int64) error {
	done, err := t.pool.Exec(ctx, `UPDATE positions SET floor = $1 WHERE part = $2 AND claims = $3`, floor, t.part, t.claim)
	if err == nil && done.RowsAffected() == 0 {
		return &dispatch.LostError{Partition: strconv.Itoa(t.part), Err: errors.New("a later owner has claimed the position")}
	}
	return err
}

// Fetch looks again and again where there is nothing; LISTEN would tell it sooner.
func (t *table) Fetch(ctx context.Context, from int64, limit int) ([]dispatch.Record, error) {
	for {
		rows, err := t.pool.Query(ctx, `SELECT customer, id, payload FROM orders WHERE part = $1 AND id >= $2 ORDER BY id LIMIT $3`, t.part, from, limit)
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
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (p *onPostgres) register(context.Context) (register, error) { return p, nil }

func (p *onPostgres) load(ctx context.Context, customer string) (a account, version uint64, err error) {
	var content []byte
	err = p.pool.QueryRow(ctx, `SELECT version, content FROM accounts WHERE customer = $1`, customer).Scan(&version, &content)
	if errors.Is(err, pgx.ErrNoRows) {
		return account{}, 0, nil
	} else if err != nil {
		return account{}, 0, err
	}
	err = json.Unmarshal(content, &a)
	return a, version, err
}

var errSwapped = errors.New("somebody else has written")

func (p *onPostgres) swap(ctx context.Context, customer string, a account, version uint64) error {
	content, err := json.Marshal(a)
	if err != nil {
		return err
	}
	statement := `UPDATE accounts SET version = version + 1, content = $2 WHERE customer = $1 AND version = $3`
	if version == 0 {
		statement = `INSERT INTO accounts (customer, content, version) VALUES ($1, $2, $3::bigint + 1) ON CONFLICT DO NOTHING`
	}
	done, err := p.pool.Exec(ctx, statement, customer, content, version)
	if err == nil && done.RowsAffected() == 0 {
		return errSwapped
	}
	return err
}

func (p *onPostgres) swaps(ctx context.Context) (n int, err error) {
	err = p.pool.QueryRow(ctx, `SELECT COALESCE(SUM(version), 0)::bigint FROM accounts`).Scan(&n)
	return n, err
}
