// SPDX-License-Identifier: Apache-2.0

package leasepg

// This file wakes the Sources of an outbox when a transaction that has enqueued is committed.

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stopbank/stopbank/lease"
)

// Listen wakes the Sources of the outbox as soon as a transaction with records is committed, until ctx is done; then it
// returns nil. It keeps one connection of its own to the server itself, not to a pooler; conn says how to connect. It
// reconnects when the connection breaks, and wakes every Source once after each connect. Without Listen, and for
// producers without Notify, a Source looks for records every Poll, so a lost notification delays a record by Poll at
// most. It returns an error if its first connection fails, and a *lease.InvalidError for a pooler or a nil argument.
func (o *Outbox) Listen(ctx context.Context, conn *pgx.ConnConfig) error {
	if err := o.made(ctx); err != nil {
		return err
	}
	if conn == nil {
		return &lease.InvalidError{Field: "conn", Value: "nil", Allowed: "a configuration made by pgx.ParseConfig"}
	}
	for listened := false; ; {
		c, err := o.subscribe(ctx, conn)
		if err == nil {
			listened = true
			err = o.hear(ctx, c)
			drop(c)
		}
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // it was asked to end
		case !listened || is[*lease.InvalidError](err):
			return err
		}
		pause := time.NewTimer(o.cfg.Poll)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
	}
}

func (o *Outbox) subscribe(ctx context.Context, conn *pgx.ConnConfig) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	c, err := pgx.ConnectConfig(ctx, conn.Copy())
	if err != nil {
		return nil, err
	}
	var pid uint32
	_, err = c.Exec(ctx, "LISTEN "+channel)
	if err == nil {
		err = c.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid)
	}
	if err == nil && pid != c.PgConn().PID() {
		err = poolerError(c.PgConn().PID(), pid)
	}
	if err != nil {
		drop(c)
		return nil, err
	}
	return c, nil
}

// hear wakes until the connection breaks or ctx is done.
func (o *Outbox) hear(ctx context.Context, c *pgx.Conn) error {
	for o.wake(); ; {
		n, err := c.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		if n.Payload == o.cfg.Name {
			o.wake()
		}
	}
}

// waiting returns what the next wake closes.
func (o *Outbox) waiting() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.woken == nil {
		o.woken = make(chan struct{})
	}
	return o.woken
}

func (o *Outbox) wake() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.woken != nil {
		close(o.woken)
		o.woken = nil
	}
}
