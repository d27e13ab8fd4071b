// SPDX-License-Identifier: Apache-2.0

package leasenats_test

// The tests start their servers in this process: a single one, or a cluster of three.

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/leasenats"
)

var ctx = context.Background()

// single starts a server with its files in dir. Port 0: a free one.
func single(t testing.TB, dir string, port int) *server.Server {
	t.Helper()
	if port == 0 {
		port = server.RANDOM_PORT
	}
	return start(t, &server.Options{Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: dir})
}

func start(t testing.TB, o *server.Options) *server.Server {
	t.Helper()
	o.NoLog, o.NoSigs = true, true
	s := must(server.NewServer(o))(t)
	s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the server does not start")
	}
	t.Cleanup(func() { stop(s) })
	return s
}

func stop(s *server.Server) {
	s.Shutdown()
	s.WaitForShutdown()
}

// nodes are the servers of a cluster with their options.
type nodes struct {
	servers []*server.Server
	options []server.Options
}

// cluster starts three servers and waits until they have a leader.
func cluster(t testing.TB) *nodes {
	t.Helper()
	ports := freePorts(t, 6)
	var routes []*url.URL
	for _, port := range ports[:3] {
		routes = append(routes, &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", port)})
	}
	n := &nodes{servers: make([]*server.Server, 3)}
	for i := range n.servers {
		n.options = append(n.options, server.Options{
			Host: "127.0.0.1", Port: ports[3+i], ServerName: fmt.Sprintf("s%d", i), JetStream: true, StoreDir: t.TempDir(),
			Cluster: server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: ports[i]}, Routes: routes, NoLog: true, NoSigs: true,
		})
		n.start(t, i)
	}
	eventually(t, "a leader of the cluster", func() bool {
		for _, s := range n.servers {
			if s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == len(n.servers) {
				return true
			}
		}
		return false
	})
	return n
}

func (n *nodes) start(t testing.TB, i int) {
	t.Helper()
	o := n.options[i]
	s := must(server.NewServer(&o))(t)
	s.Start()
	t.Cleanup(func() { stop(s) })
	n.servers[i] = s
}

// eventually polls until a condition holds; servers do not announce it.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within a minute", what)
		}
		time.Sleep(10 * time.Millisecond) // a remote server does not announce it
	}
}

func connect(t testing.TB, urls string, more ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(urls, append(more, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.RetryOnFailedConnect(true),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func openStore(t testing.TB, cfg leasenats.StoreConfig) durable.Store {
	t.Helper()
	var s durable.Store
	for try := 0; ; try++ {
		var err error
		if s, err = leasenats.OpenStore(ctx, cfg); err == nil {
			return s
		}
		if try > 5 || !is[*leasenats.UnreachableError](err) { // a cluster that has just begun
			t.Fatal(err)
		}
	}
}

func open(t testing.TB, store durable.Store, cfg lease.Config) lease.Ledger {
	t.Helper()
	return must(durable.New(durable.Config{Store: store, MaxRetries: cfg.MaxRetries, MaxBacklog: cfg.MaxBacklog,
		Observer: cfg.Observer}))(t)
}

// thorough is set for the long runs.
func thorough() bool { return os.Getenv("STOPBANK_THOROUGH") != "" }

func freePorts(t testing.TB, n int) (ports []int) {
	t.Helper()
	for range n {
		l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
		defer func() { _ = l.Close() }()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

func port(t testing.TB, s *server.Server) int {
	t.Helper()
	addr, ok := s.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatal(s.Addr())
	}
	return addr.Port
}

// is reports whether err is, or wraps, an E.
func is[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}

// must fails the test if err is set: x := must(f())(t).
func must[T any](v T, err error) func(fataler) T {
	return func(t fataler) T {
		t.Helper()
		noError(t, err)
		return v
	}
}

func noError(t fataler, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type fataler interface {
	Helper()
	Fatal(args ...any)
}
