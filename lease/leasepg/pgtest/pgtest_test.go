// SPDX-License-Identifier: Apache-2.0

package pgtest_test

// This file starts servers, crashes them, ends them, and looks for what is left behind.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/stopbank/stopbank/lease/leasepg/pgtest"
)

// child, set, makes this test binary one that opens a server, says where, and waits to be killed.
const child = "STOPBANK_PGTEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(child) == "" {
		os.Exit(m.Run())
	}
	s, err := pgtest.Open(context.Background(), false)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(s.URL())
	select {}
}

func ask(t *testing.T, at, sql string) (answer string, err error) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), at)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close(t.Context()) }()
	err = conn.QueryRow(t.Context(), sql).Scan(&answer)
	return answer, err
}

// private makes the temporary directory one that another user may enter, and skips where no server is installed.
func private(t *testing.T) (dir string) {
	t.Helper()
	t.Setenv("STOPBANK_POSTGRES_URL", "")
	dir = t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("TMPDIR", dir)
	return dir
}

func empty(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestPrivateServer(t *testing.T) {
	dir := private(t)
	s, err := pgtest.Open(t.Context(), true)
	if there := pgtest.Available(t.Context()); (there == nil) != (err == nil) {
		t.Errorf("available: %v; opened: %v", there, err)
	}
	if errors.Is(err, pgtest.ErrNone) && !pgtest.Required() {
		empty(t, dir)
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	if !s.Private() {
		t.Error("not private")
	}
	for _, q := range []struct{ sql, want string }{
		{"SHOW fsync", "on"}, {"SHOW synchronous_commit", "on"}, {"SHOW listen_addresses", "127.0.0.1"},
	} {
		if got, err := ask(t, s.URL(), q.sql); err != nil || got != q.want {
			t.Errorf("%s: %s, %v, want %s", q.sql, got, err, q.want)
		}
	}
	before, err := ask(t, s.URL(), "SELECT pg_postmaster_start_time()::text")
	if err != nil {
		t.Fatal(err)
	}
	other, err := s.Database(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	after, err := ask(t, s.URL(), "SELECT pg_postmaster_start_time()::text")
	if err != nil || after == before {
		t.Errorf("started at %s and %s, %v", before, after, err)
	}
	if _, err := ask(t, other, "SELECT 'there'"); err != nil {
		t.Errorf("the other database, after the restart: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := ask(t, s.URL(), "SELECT 'there'"); err == nil {
		t.Error("the server answers after its end")
	}
	empty(t, dir)
}

// A server dies with its test, also when that is killed.
func TestNoServerOutlivesItsProcess(t *testing.T) {
	private(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), child+"=1"), os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewScanner(out)
	if !said.Scan() {
		_ = cmd.Wait()
		if pgtest.Required() {
			t.Fatal("no server")
		}
		t.Skip(pgtest.ErrNone)
	}
	at := said.Text()
	pid, err := ask(t, at, "SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)")
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	for { // the test's own deadline bounds this
		if _, err := os.Stat("/proc/" + pid); errors.Is(err, os.ErrNotExist) {
			break
		}
	}
}

// A server that others keep lends a database and gets it back.
func TestServerOfOthers(t *testing.T) {
	private(t)
	theirs, err := pgtest.Open(t.Context(), false)
	if errors.Is(err, pgtest.ErrNone) && !pgtest.Required() {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := theirs.Close(); err != nil {
			t.Error(err)
		}
	}()
	t.Setenv("STOPBANK_POSTGRES_URL", theirs.URL())
	s, err := pgtest.Open(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	if s.Private() || s.Restart(t.Context()) == nil {
		t.Error("taken for a private one")
	}
	const databases = "SELECT count(*)::text FROM pg_database WHERE datname LIKE 'stopbank%'"
	if n, err := ask(t, s.URL(), databases); err != nil || n != "2" {
		t.Errorf("%s databases, %v, want theirs and ours", n, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if n, err := ask(t, theirs.URL(), databases); err != nil || n != "1" {
		t.Errorf("%s databases, %v, want theirs alone", n, err)
	}
}
