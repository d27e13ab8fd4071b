// SPDX-License-Identifier: Apache-2.0

package pgtest

// This file is a private server: found, made, started, stopped, removed.

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// patience bounds each step of a server's life. A step takes a second or two; machines that are shared take longer.
const patience = time.Minute

// cluster is a data directory and the server on it.
type cluster struct {
	bin      string // the directory of initdb and postgres
	dir      string // ours: holds data, the socket and the log
	owner    *owner // nil: this process's user
	durable  bool
	password string
	port     int
	server   *exec.Cmd
	ended    chan struct{} // closed when server has ended
}

// startCluster makes a new server and returns when it accepts connections.
func startCluster(ctx context.Context, durable bool) (*cluster, error) {
	bin, err := binaries(ctx)
	if err != nil {
		return nil, err
	}
	c := &cluster{bin: bin, durable: durable, password: rand.Text()}
	if c.owner, err = otherUser(); err != nil {
		return nil, err
	}
	if c.dir, err = os.MkdirTemp("", "stopbank-pg-"); err != nil {
		return nil, err
	}
	if err := c.make(ctx); err != nil {
		return nil, errors.Join(err, c.remove())
	}
	// The port was free a moment ago; if somebody else was quicker, another one is.
	for range 3 {
		if c.port, err = freePort(); err == nil {
			if err = c.start(ctx); err == nil {
				return c, nil
			}
		}
	}
	return nil, errors.Join(err, c.remove())
}

// binaries finds the directory of the server's programs: where pg_config says, or where Debian keeps them, or on the path.
func binaries(ctx context.Context) (string, error) {
	var dirs []string
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, string(bytes.TrimSpace(out)))
	}
	debian, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // the pattern is well formed
	dirs = append(dirs, debian...)
	if initdb, err := exec.LookPath("initdb"); err == nil {
		dirs = append(dirs, filepath.Dir(initdb))
	}
	for _, dir := range dirs {
		_, first := os.Stat(filepath.Join(dir, "initdb"))
		_, second := os.Stat(filepath.Join(dir, "postgres"))
		if first == nil && second == nil {
			return dir, nil
		}
	}
	return "", ErrNone
}

// make fills the data directory.
func (c *cluster) make(ctx context.Context) error {
	secret := filepath.Join(c.dir, "password")
	if err := os.WriteFile(secret, []byte(c.password), 0o600); err != nil {
		return err
	}
	for _, path := range []string{c.dir, secret} {
		if err := c.owner.own(path); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	initdb := c.command(ctx, "initdb", "-D", c.data(), "-U", "stopbank", "-A", "password", "--pwfile", secret, "-E", "UTF8",
		"--no-locale", "--no-sync", "--no-instructions")
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("pgtest: initdb: %w: %s", err, out)
	}
	return nil
}

func (c *cluster) data() string { return filepath.Join(c.dir, "data") }

// command is a program of the server, run as its user. The directory is ours because that user may not enter the current one.
func (c *cluster) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, name), args...)
	cmd.Dir, cmd.SysProcAttr = c.dir, c.owner.attributes()
	return cmd
}

// start runs the server and waits until it accepts connections. The server dies with this process, however that ends.
func (c *cluster) start(ctx context.Context) error {
	settings := map[string]string{
		"listen_addresses": "127.0.0.1", "port": strconv.Itoa(c.port), "unix_socket_directories": c.dir,
		"max_connections": "100", "shared_buffers": "64MB", "max_wal_size": "256MB",
		"fsync": onOff(c.durable), "synchronous_commit": "on", "max_prepared_transactions": "16",
	}
	args := []string{"-D", c.data()}
	for name, value := range settings {
		args = append(args, "-c", name+"="+value)
	}
	log, err := os.OpenFile(filepath.Join(c.dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	server, ended := c.command(context.WithoutCancel(ctx), "postgres", args...), make(chan struct{})
	server.Stdout, server.Stderr = log, log
	if err := server.Start(); err != nil {
		return fmt.Errorf("pgtest: postgres: %w", err)
	}
	go func() {
		defer close(ended)
		_ = server.Wait() // what it has to say is in its log
	}()
	c.server, c.ended = server, ended

	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, c.url())
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-ended:
			said, _ := os.ReadFile(log.Name())
			return fmt.Errorf("pgtest: postgres ended at once: %s", said)
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("pgtest: postgres does not answer: %w", err), c.stop())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// stop ends the server without leave to tidy up, and waits for its end: longer than it waits for its own processes, which nothing
// else ends, before it kills them.
func (c *cluster) stop() error {
	if c.server == nil {
		return nil
	}
	if err := c.server.Process.Signal(immediate); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-c.ended:
	case <-time.After(patience):
		_ = c.server.Process.Kill()
		<-c.ended
	}
	c.server = nil
	return nil
}

// remove ends the server and removes all that there was of it.
func (c *cluster) remove() error {
	err := c.stop()
	return errors.Join(err, os.RemoveAll(c.dir))
}

func (c *cluster) url() string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword("stopbank", c.password),
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port)),
		Path: "/postgres", RawQuery: "sslmode=disable"}
	return u.String()
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
