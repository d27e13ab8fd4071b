// SPDX-License-Identifier: Apache-2.0

package leasepg

// This file holds the errors, and how a failed swap is classified.

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/durable"
)

// schemaError rejects a database whose schema has another version; found is 0 where there is none.
func schemaError(found, want int) error {
	err := &lease.InvalidError{Field: "leasepg.schema", Value: fmt.Sprintf("version %d", found),
		Allowed: fmt.Sprintf("version %d: run Migrate", want)}
	if found == 0 {
		err.Value = "absent"
	} else if found > want {
		err.Allowed = fmt.Sprintf("version %d or older: upgrade the program", want)
	}
	return err
}

// settingError rejects a server or a connection whose setting breaks a ledger's guarantees.
func settingError(name, value, allowed string) error {
	return &lease.InvalidError{Field: "leasepg.setting " + name, Value: value, Allowed: allowed}
}

// poolerError rejects a connection whose statements run in another backend than the announced one, so that there is a pooler
// in between. Advisory locks belong to a session, and a pooler may give the session to another client after each transaction.
func poolerError(announced, found uint32) error {
	return &lease.InvalidError{
		Field: "leasepg.connection", Value: fmt.Sprintf("to backend %d, while statements run in backend %d", announced, found),
		Allowed: "a connection to the server itself, without a pooler in between",
	}
}

// otherDatabase rejects a transaction that is not in the database of the ledger or outbox.
func otherDatabase() error {
	return &lease.InvalidError{Field: "tx", Value: "of another database",
		Allowed: "a transaction in the database of the ledger or outbox"}
}

// rewound says that an outbox is in an earlier state than was reached before: it was restored from a backup, or its tables were
// changed by hand. New records would get offsets that the ledger may take for done. Nothing was skipped.
func rewound(partition, what string, found, known int64) error {
	return dispatch.Rewound(partition, fmt.Errorf("leasepg: %s is %d, and %d was reached before: the outbox was put back. Restore its "+
		"ledgers with it, or give them new names", what, found, known))
}

// is reports whether err is, or wraps, an E.
func is[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}

func noContext() error { return &lease.InvalidError{Field: "ctx", Value: "nil", Allowed: "a context"} }

// failed sorts the errors of a statement that has one row to change. Not applied is only said where the server says so, and not
// with its last breath, or where nothing was sent; everything else is unknown.
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
