// SPDX-License-Identifier: Apache-2.0

// Package pgtest lends a PostgreSQL to tests, benchmarks and demos: the one that STOPBANK_POSTGRES_URL names, or a private one,
// started from what is installed and gone afterwards.
package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// urlVariable holds the URL of a server to use; its role must be allowed to create databases.
	urlVariable = "STOPBANK_POSTGRES_URL"
	// requiredVariable, set to "required", makes tests fail without a PostgreSQL.
	requiredVariable = "STOPBANK_POSTGRES"
)

// ErrNone means that there is no PostgreSQL to be had: no URL is set and none is installed, or this is no Linux.
var ErrNone = errors.New("pgtest: no PostgreSQL: set " + urlVariable + " or install initdb")

// Required reports whether the environment variable STOPBANK_POSTGRES is "required": tests must then fail, and not skip, without
// a PostgreSQL.
func Required() bool { return os.Getenv(requiredVariable) == "required" }

// Available returns nil where Open has a server to use or to start, ErrNone otherwise.
func Available(ctx context.Context) error {
	if os.Getenv(urlVariable) != "" {
		return nil
	}
	if _, err := otherUser(); err != nil {
		return err
	}
	_, err := binaries(ctx)
	return err
}

// Server is a PostgreSQL with a database of its own for the caller.
type Server struct {
	url     string
	admin   string   // the URL that databases are made through
	made    []string // databases to drop; guarded by nothing: Open, Database and Close are called one after another
	cluster *cluster // nil: not ours
}

// Open returns the server that STOPBANK_POSTGRES_URL names, else a private one. A private one listens on the loopback
// address, under a password of its own, and as root it runs under another user. Its fsync is off unless durable is true: a
// test kills servers, not machines, and what a killed server had written the kernel still has. It blocks for about two
// seconds, or until ctx ends. Error: ErrNone, or whatever went wrong.
func Open(ctx context.Context, durable bool) (*Server, error) {
	s := &Server{admin: os.Getenv(urlVariable)}
	if s.admin == "" {
		c, err := startCluster(ctx, durable)
		if err != nil {
			return nil, err
		}
		s.cluster, s.admin = c, c.url()
	}
	var err error
	if s.url, err = s.Database(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// URL returns the URL of the server's database.
func (s *Server) URL() string { return s.url }

// Private reports whether the server is one that Open started, so that Restart works.
func (s *Server) Private() bool { return s.cluster != nil }

// About says in a line what the server is.
func (s *Server) About() string {
	if s.cluster == nil {
		return "the server that " + urlVariable + " names"
	}
	return fmt.Sprintf("a private server from %s, fsync %s", s.cluster.bin, onOff(s.cluster.durable))
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// Database makes another database and returns its URL. Close drops it.
func (s *Server) Database(ctx context.Context) (string, error) {
	name := "stopbank_" + strings.ToLower(rand.Text()[:16])
	if err := s.exec(ctx, "CREATE DATABASE "+name); err != nil {
		return "", err
	}
	s.made = append(s.made, name)
	u, err := url.Parse(s.admin)
	if err != nil {
		return "", fmt.Errorf("pgtest: %s is no URL: %w", urlVariable, err)
	}
	u.Path = "/" + name
	return u.String(), nil
}

func (s *Server) exec(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, s.admin)
	if err != nil {
		return fmt.Errorf("pgtest: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, sql); err != nil {
		return fmt.Errorf("pgtest: %s: %w", sql, err)
	}
	return nil
}

// Restart ends the private server at once, as a crash would (what `pg_ctl restart -m immediate` does), and starts it again. It
// returns when the server accepts connections. A server refuses to start while a process of the last one is left, and is asked
// again.
func (s *Server) Restart(ctx context.Context) error {
	if s.cluster == nil {
		return errors.New("pgtest: the server is not ours to restart")
	}
	if err := s.cluster.stop(); err != nil {
		return err
	}
	deadline := time.Now().Add(patience)
	for {
		err := s.cluster.start(ctx)
		if err == nil || ctx.Err() != nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// Close drops what Open and Database made, or ends the private server and removes its directory.
func (s *Server) Close() error {
	if s.cluster != nil {
		return s.cluster.remove()
	}
	var errs []error
	for _, name := range s.made {
		errs = append(errs, s.exec(context.Background(), "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)"))
	}
	s.made = nil
	return errors.Join(errs...)
}
