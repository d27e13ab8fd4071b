// The PostgreSQL engine: an outbox of the orders, a table of the accounts, and the ledgers; advisory locks assign the partitions.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/leasepg"
	"github.com/stopbank/stopbank/lease/leasepg/pgtest"
)

// servePostgres creates a database on the server of STOPBANK_POSTGRES_URL or on a private server, if PostgreSQL is installed.
func servePostgres(ctx context.Context, _ options) (servers, error) {
	s, err := pgtest.Open(ctx, false) // without fsync: only processes crash here
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
	cfg.MaxConns = 8 // the server accepts 100, and every replica has a pool
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	return &onPostgres{pool}, err
}

func (p *onPostgres) close() { p.pool.Close() }

func (p *onPostgres) prepare(ctx context.Context, o options) error {
	if err := leasepg.Migrate(ctx, p.pool); err != nil {
		return err
	}
	if _, err := p.pool.Exec(ctx, `CREATE TABLE accounts (customer text PRIMARY KEY, version bigint NOT NULL, content jsonb NOT NULL)`); err != nil {
		return err
	}
	_, err := p.outbox(ctx, o)
	return err
}

func (p *onPostgres) outbox(ctx context.Context, o options) (*leasepg.Outbox, error) {
	return leasepg.OpenOutbox(ctx, leasepg.OutboxConfig{Pool: p.pool, Name: "orders", Partitions: o.partitions})
}

// publish enqueues the orders in one transaction, where a real service would also write its own rows.
func (p *onPostgres) publish(ctx context.Context, o options, first, end int) error {
	box, err := p.outbox(ctx, o)
	if err != nil {
		return err
	}
	var orders []dispatch.Record
	for i := first; i < end; i++ {
		orders = append(orders, dispatch.Record{Domain: buyer(o, i), Payload: strconv.AppendInt(nil, int64(i)+1, 10)})
	}
	return pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error { return box.Enqueue(ctx, tx, orders...) })
}

func (p *onPostgres) group(ctx context.Context, o options) (dispatch.Ownership, error) {
	box, err := p.outbox(ctx, o)
	if err != nil {
		return nil, err
	}
	return leasepg.OpenGroup(ctx, leasepg.GroupConfig{
		Conn: p.pool.Config().ConnConfig, Group: "orders", Outbox: box, Session: o.session,
		Ledger: lease.Config{MaxRetries: lease.DefaultRetries, Observer: o.decisions},
	})
}

// remove does nothing: the database of the run is dropped.
func (*onPostgres) remove(context.Context) error { return nil }

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

var errConflict = errors.New("the account has changed")

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
		return errConflict
	}
	return err
}

func (p *onPostgres) swaps(ctx context.Context) (n int, err error) {
	err = p.pool.QueryRow(ctx, `SELECT COALESCE(SUM(version), 0)::bigint FROM accounts`).Scan(&n)
	return n, err
}
