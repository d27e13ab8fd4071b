package leasepg

// This file holds the errors, and how a failed swap is classified.

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
)

// SchemaError rejects a database whose schema has another version. If it is older, run Migrate; if it is newer, upgrade
// this program.
type SchemaError struct {
	Found int // 0: no schema
	Want  int
}

func (e *SchemaError) Error() string {
	switch {
	case e.Found == 0:
		return fmt.Sprintf("leasepg: the database has no schema `stopbank`, want version %d: run Migrate", e.Want)
	case e.Found < e.Want:
		return fmt.Sprintf("leasepg: the schema has version %d, want %d: run Migrate", e.Found, e.Want)
	}
	return fmt.Sprintf("leasepg: the schema has version %d, this program supports up to %d: upgrade the program", e.Found, e.Want)
}

// SettingError rejects a connection whose settings break a ledger's guarantees.
type SettingError struct {
	Name, Value string
	Allowed     string
}

func (e *SettingError) Error() string {
	return fmt.Sprintf("leasepg: %s is %s; allowed: %s", e.Name, e.Value, e.Allowed)
}

// PoolerError rejects a connection whose statements run in another backend than the announced one: there is a pooler in
// between. Advisory locks belong to a session, and a pooler may give the session to another client after each
// transaction.
type PoolerError struct {
	Announced, Found uint32 // process numbers of backends
}

func (e *PoolerError) Error() string {
	return fmt.Sprintf("leasepg: the connection is to backend %d, but statements run in backend %d: a pooler stands between; allowed: the server's own address",
		e.Announced, e.Found)
}

// TxError rejects a transaction that cannot be written in. Nothing was written.
type TxError struct {
	Call  string // "enqueue" or "succeed"
	State string // "over", "aborted", "read-only" or "of another database"
	Err   error  // the database's error; nil for another database
}

func (e *TxError) Error() string {
	return fmt.Sprintf("leasepg: %s: the transaction is %s; allowed: an open one that may write, in the database of the ledger or outbox", e.Call, e.State)
}

// Unwrap returns Err.
func (e *TxError) Unwrap() error { return e.Err }

// RewoundError says that an outbox is in an earlier state than was reached before: it was restored from a backup, or its
// tables were changed by hand. New records would get offsets that the ledger may take for done. Nothing was skipped:
// docs/outbox.md says how to go on.
type RewoundError struct {
	Partition string
	What      string // the value that is too small: "the greatest id drawn", "the first record" or "the position"
	Found     int64
	Known     int64 // the least allowed value, by the position or by the ledger's floor
}

func (e *RewoundError) Error() string {
	return fmt.Sprintf("leasepg: outbox, partition %s: %s is %d, and %d was reached before: it was put back", e.Partition, e.What, e.Found, e.Known)
}

// is reports whether err is, or wraps, an E.
func is[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}

func noContext() error { return &lease.InvalidError{Field: "ctx", Value: "nil", Allowed: "a context"} }

// failed sorts the errors of a statement that has one row to change. Not applied is only said where the server says so, and not with its last
// breath, or where nothing was sent; everything else is unknown.
func failed(err error) error {
	var server *pgconn.PgError
	switch {
	case pgconn.SafeToRetry(err):
		return fmt.Errorf("%w: not sent: %w", durable.ErrNotApplied, err)
	case !errors.As(err, &server) || server.SeverityUnlocalized != "ERROR" || unknown(server.Code):
		return err
	case server.Code == serialization || server.Code == deadlock:
		return fmt.Errorf("%w: %w", durable.ErrConflict, err)
	}
	return fmt.Errorf("%w: rejected: %w", durable.ErrNotApplied, err)
}

const (
	serialization = "40001"
	deadlock      = "40P01"
)

// unknown are the codes of errors that do not say what became of the statement: those of a connection, and completion unknown.
func unknown(code string) bool { return strings.HasPrefix(code, "08") || code == "40003" }
