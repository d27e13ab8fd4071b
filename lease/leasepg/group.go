// SPDX-License-Identifier: Apache-2.0

package leasepg

// This file is a group whose members share partitions out by advisory locks: its configuration, and how a member connects.

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/internal/episode"
	"github.com/stopbank/stopbank/lease/internal/group"
)

// GroupConfig configures a group and one member of it. Conn, Group and Outbox are required, or Names and Open in place of
// Outbox.
type GroupConfig struct {
	// Conn says how to connect; pgx.ParseConfig makes it from a URL. Required. The member opens one connection at a
	// time. It must lead to the server itself, not to a pooler.
	Conn *pgx.ConnConfig
	// Group is the group's name, unique in the database: 1 to 255 bytes.
	Group string
	// Outbox has the partitions that are shared out.
	Outbox *Outbox
	// Ledger configures the ledgers of Outbox's partitions, which are in its database, each under its partition's name.
	// Zero, they give a record up at its first failure. Not used with Open.
	Ledger lease.Config
	// Journal has the ledgers of Outbox's partitions written per window, in place of twice for each record: that records have
	// begun, before they do and hundreds at a time; that they are done, within 50 ms; and failures one by one. After a crash
	// what ended in the last 50 ms or during a write runs again too, and a record that kills its process is given up after two
	// runs more. A ledger stays as it was begun. Not used with Open.
	Journal bool
	// Names are the names of all partitions, in any order. Nil: those of Outbox. A member with more names than the others
	// takes those alone.
	Names []string
	// Open opens a partition for this member: its Source and its Ledger, for one call of work. Nil: a partition of Outbox
	// with a ledger as above. If it fails, work is called with a Partition whose Open calls it again: a dispatch.Consumer
	// keeps the partition, says Stalled (unopened), and tries again after pauses up to 5 s. Its ctx is work's.
	Open func(ctx context.Context, partition string) (dispatch.Partition, error)
	// Session is how long a member may be silent before the group takes its partitions, by the server. The member queries
	// every second, or every quarter of Session if that is less. 0: 10 s. 100 ms to an hour.
	Session time.Duration
	// OnError is called with the reason why the membership was lost or could not begin, with Open's errors, and when the
	// server or Open has not answered for a Session: a wrong password is reported nowhere else. What goes on failing is
	// reported at once and then once a minute, until the member has joined, or Open has succeeded. It must be safe for
	// concurrent use, and return soon. Nil: slog.Default logs it as a warning.
	OnError func(error)
}

// Group is membership of a group whose members share partitions out by advisory locks: the member with the lock of a
// partition has the partition. They share evenly, by reading who holds which lock. It needs no table and no rights but to
// connect. It must come from OpenGroup.
type Group struct {
	cfg      GroupConfig
	class    int32            // of the partitions' locks
	memberOf int32            // of the members' locks
	key      map[string]int32 // of each partition
	name     map[int32]string // of each key
}

var _ dispatch.Ownership = (*Group)(nil)

// OpenGroup returns a Group. It neither connects nor blocks: Hold joins. ctx bounds nothing here, and must not be nil.
// Errors: *lease.InvalidError naming the field.
func OpenGroup(ctx context.Context, cfg GroupConfig) (*Group, error) {
	invalid := func(field, value, allowed string) (*Group, error) {
		return nil, &lease.InvalidError{Field: "leasepg.GroupConfig." + field, Value: value, Allowed: allowed}
	}
	if ctx == nil {
		return nil, noContext()
	}
	if cfg.Session == 0 {
		cfg.Session = 10 * time.Second
	}
	if cfg.Names == nil {
		cfg.Names = cfg.Outbox.Partitions()
	}
	cfg.Journal = cfg.Journal && cfg.Open == nil
	if cfg.Open == nil && cfg.Outbox != nil {
		for _, name := range cfg.Names {
			if !slices.Contains(cfg.Outbox.Partitions(), name) {
				return invalid("Names", strconv.Quote(name), "partitions of Outbox; others need an Open")
			}
		}
		var err error
		fresh := time.Duration(0)
		if cfg.Journal {
			fresh = cfg.Session / 4
		}
		if cfg.Open, err = cfg.Outbox.opener(cfg.Ledger, fresh); err != nil {
			return nil, err
		}
	}
	if cfg.OnError == nil {
		cfg.OnError = func(err error) {
			slog.Warn("leasepg: a member cannot go on", "group", cfg.Group, "err", err)
		}
	}
	switch {
	case cfg.Conn == nil, cfg.Conn.Host == "": // of another one pgx.ConnectConfig would panic
		return invalid("Conn", "nil or not parsed", "a configuration made by pgx.ParseConfig")
	case len(cfg.Group) < 1 || len(cfg.Group) > maxLedger:
		return invalid("Group", strconv.Quote(cfg.Group), "1 to 255 bytes")
	case len(cfg.Names) == 0:
		return invalid("Names", "none", "one or more, or an Outbox")
	case cfg.Open == nil:
		return invalid("Open", "nil", "a function, or an Outbox")
	case cfg.Session < 100*time.Millisecond || cfg.Session > time.Hour:
		return invalid("Session", cfg.Session.String(), "100ms to 1h, or 0 (the default, 10s)")
	}
	cfg.Conn, cfg.Names = cfg.Conn.Copy(), slices.Clone(cfg.Names)
	g := &Group{
		cfg: cfg, class: number("partitions of " + cfg.Group), memberOf: number("members of " + cfg.Group),
		key: map[string]int32{}, name: map[int32]string{},
	}
	for _, p := range cfg.Names {
		k := number(p)
		if other, found := g.name[k]; found && other == p {
			return invalid("Names", strconv.Quote(p)+" twice", "each name once")
		} else if found {
			return invalid("Names", strconv.Quote(p)+" and "+strconv.Quote(other), "names with different 31-bit hashes; rename one")
		}
		g.key[p], g.name[k] = k, p
	}
	return g, nil
}

// number is the 31-bit hash that stands for a name in a lock.
func number(name string) int32 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	sum := h.Sum64()
	return int32((sum ^ sum>>31) & (1<<31 - 1))
}

// Hold implements dispatch.Ownership. A member whose connection breaks, or that the server has not heard from for a
// Session, has lost all its partitions, and joins again, as long as ctx lasts. A member that cannot connect, also for the
// first time, retries with its next query: an unreachable server, a wrong password and a missing database are sent to
// OnError. A partition whose work returns while it is held is given back and may be taken again with the member's next
// query. When ctx is done it gives back each partition as soon as its work has returned, leaves, and returns nil.
//
// Hold returns a *lease.InvalidError when no server could ever admit the member (Conn leads to a pooler, or to a PostgreSQL
// before 14), and for a nil argument or a Group that OpenGroup did not make.
func (g *Group) Hold(ctx context.Context, work func(context.Context, dispatch.Partition)) error {
	switch {
	case ctx == nil:
		return noContext()
	case g == nil || g.cfg.Conn == nil:
		return &lease.InvalidError{Field: "leasepg.Group", Value: "nil or zero", Allowed: "a group made by OpenGroup"}
	case work == nil:
		return &lease.InvalidError{Field: "work", Value: "nil", Allowed: "a function"}
	}
	s := &session{Group: g, trouble: new(episode.Episode), locks: map[string]bool{}}
	defer s.hangUp()
	opening := make(map[string]*episode.Episode, len(g.cfg.Names))
	for _, name := range g.cfg.Names {
		opening[name] = new(episode.Episode)
	}
	m := group.Member[string]{
		Server: s, Name: func(name string) string { return name }, OnError: g.cfg.OnError, Trouble: s.trouble,
		Work: func(ctx context.Context, name string) {
			p, end := g.open(ctx, name, opening[name])
			defer end()
			work(ctx, p)
		},
	}
	return m.Run(ctx)
}

// open opens a partition. One that cannot be opened comes with what opens it, so that the work says that it is stalled. It is
// to be ended when the work has returned.
func (g *Group) open(ctx context.Context, name string, opening *episode.Episode) (p dispatch.Partition, end func()) {
	var opened lease.Ledger // by Open, which one goroutine calls until it succeeds
	open := func(ctx context.Context) (dispatch.Source, lease.Ledger, error) {
		opens := g.expect(opening, "Open of partition "+name)
		p, err := g.cfg.Open(ctx, name)
		opens()
		if err != nil {
			err = fmt.Errorf("leasepg: partition %s is not opened: %w", name, err)
			opening.Tell(g.cfg.OnError, err)
			return nil, nil, err
		}
		opening.Tell(g.cfg.OnError, nil)
		opened = p.Ledger
		return p.Source, p.Ledger, nil
	}
	source, ledger, err := open(ctx)
	p = dispatch.Partition{Name: name, Source: source, Ledger: ledger}
	if err != nil {
		p.Open = open
	}
	return p, func() {
		if g.cfg.Journal {
			closeLedger(opened, g.cfg.Session/4)
		}
	}
}

// expect reports that who has not answered for a Session, unless it is called off before.
func (g *Group) expect(e *episode.Episode, who string) (answers func() bool) {
	return time.AfterFunc(g.cfg.Session, func() {
		e.Tell(g.cfg.OnError, fmt.Errorf("leasepg: group %s: %s has not answered for %v", g.cfg.Group, who, g.cfg.Session))
	}).Stop
}

// beat is the time between two of a member's questions, and between two attempts to join.
func (g *Group) beat() time.Duration { return min(g.cfg.Session/4, time.Second) }

// connect connects, and finds out whether the connection is a session that ends when this member is silent.
func (g *Group) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, max(g.cfg.Session, 5*time.Second))
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, g.cfg.Conn.Copy())
	if err != nil {
		return nil, err
	}
	if err := g.prepareSession(ctx, conn); err != nil {
		drop(conn)
		return nil, err
	}
	return conn, nil
}

func (g *Group) prepareSession(ctx context.Context, conn *pgx.Conn) error {
	var pid uint32
	var set string
	// The server counts how long the session is idle: a client that stands still would otherwise keep its locks for as long as
	// its connection is open, and nothing closes that.
	err := conn.QueryRow(ctx, "SELECT pg_backend_pid(), set_config('idle_session_timeout', $1, false)",
		strconv.FormatInt(g.cfg.Session.Milliseconds(), 10)).Scan(&pid, &set)
	var pgErr *pgconn.PgError
	switch {
	case errors.As(err, &pgErr) && pgErr.Code == undefinedObject:
		return settingError("idle_session_timeout", "unknown to the server", "PostgreSQL 14 or later")
	case err != nil:
		return err
	case pid != conn.PgConn().PID():
		return poolerError(conn.PgConn().PID(), pid)
	}
	return nil
}

const undefinedObject = "42704"

// drop closes a connection, without waiting for long: the server may be gone.
func drop(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // it ends either way
}
