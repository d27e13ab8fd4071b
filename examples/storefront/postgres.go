// The database if STOREFRONT_DB has the URL of a PostgreSQL server: a schema there, dropped at the end.
package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// databaseVariable has the URL of the server.
const databaseVariable = "STOREFRONT_DB"

// postgresStore is a schema of a PostgreSQL database.
type postgresStore struct {
	driver.Connector

	name   string
	asleep context.Context // of all pauses; ended by wake
	wakeUp context.CancelFunc
}

func openPostgres(ctx context.Context, at string) (*postgresStore, error) {
	cfg, err := pgx.ParseConfig(at)
	if err != nil {
		return nil, &InvalidError{databaseVariable, "not a valid URL", "postgres://user:password@host:port/database: " + err.Error()}
	}
	st := &postgresStore{name: "storefront_" + strings.ToLower(rand.Text())}
	if cfg.RuntimeParams == nil {
		cfg.RuntimeParams = map[string]string{}
	}
	cfg.RuntimeParams["search_path"] = st.name
	st.Connector = stdlib.GetConnector(*cfg)
	st.asleep, st.wakeUp = context.WithCancel(context.WithoutCancel(ctx))
	if err := st.exec(ctx, `CREATE SCHEMA `+st.name); err != nil {
		st.wakeUp()
		return nil, err
	}
	for statement := range strings.SplitSeq(fmt.Sprintf(schema, "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"), ";") {
		if err := st.exec(ctx, statement); err != nil {
			return nil, errors.Join(err, st.close())
		}
	}
	return st, nil
}

func (st *postgresStore) exec(ctx context.Context, statement string) error {
	db := sql.OpenDB(st)
	_, err := db.ExecContext(ctx, statement)
	return errors.Join(err, db.Close())
}

func (st *postgresStore) pause(_ context.Context, conn *sql.Conn, d time.Duration) error {
	_, err := conn.ExecContext(st.asleep, `SELECT pg_sleep($1)`, d.Seconds())
	return err
}

func (st *postgresStore) wake() { st.wakeUp() }

func (st *postgresStore) close() error {
	st.wake()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return st.exec(ctx, `DROP SCHEMA `+st.name+` CASCADE`)
}
