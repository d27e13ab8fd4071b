// SPDX-License-Identifier: Apache-2.0

package leasepg_test

// This file holds L16: a commit that the server carries out late, after its context ended and others were sent, moves no position
// back.

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// holdingProxy forwards connections to a server. After arm it holds back what the next client to say something says from then on,
// until that client gives up, and until release.
type holdingProxy struct {
	network, to string
	listener    net.Listener
	serving     sync.WaitGroup
	release     func()

	mu    sync.Mutex // guards armed
	armed bool
	holds chan struct{} // closed when something is held back
	free  chan struct{} // closed by release
	late  chan struct{} // closed when the server has done what was held back, and has ended that connection
}

func newHoldingProxy(t *testing.T, network, to string) *holdingProxy {
	t.Helper()
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	p := &holdingProxy{network: network, to: to, listener: l, holds: make(chan struct{}), free: make(chan struct{}),
		late: make(chan struct{})}
	p.release = sync.OnceFunc(func() { close(p.free) })
	t.Cleanup(func() { // the pools are closed by then
		_ = l.Close()
		p.release()
		p.serving.Wait()
	})
	p.serving.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			p.serving.Go(func() { p.serve(client) })
		}
	})
	return p
}

func (p *holdingProxy) arm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = true
}

// chosen reports whether what was just read is the first to be held back.
func (p *holdingProxy) chosen() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.armed
	p.armed = false
	return was
}

func (p *holdingProxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial(p.network, p.to)
	if err != nil {
		return
	}
	defer server.Close()
	var replies sync.WaitGroup
	replies.Go(func() {
		_, _ = io.Copy(client, server)
		_, _ = io.Copy(io.Discard, server) // if the client has hung up, until the server has ended
		_ = client.(*net.TCPConn).CloseWrite()
	})
	buffer := make([]byte, 32<<10)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			break
		}
		said := buffer[:n]
		if p.chosen() {
			close(p.holds)
			bye := make([]byte, 64) // the driver takes its leave when its request to cancel was answered: that cancels nothing any more
			n, _ := client.Read(bye)
			<-p.free
			said = append(said, bye[:n]...)
			defer close(p.late)
		}
		if _, err := server.Write(said); err != nil {
			break
		}
	}
	_ = server.(interface{ CloseWrite() error }).CloseWrite()
	replies.Wait()
}

// The drain of a partition cancels a commit and sends a higher one on another connection; then the server carries the first one
// out. The position stays where the second one put it, and the partition can be opened under the ledger that was compacted to it.
func TestLateCommitMovesNothingBack(t *testing.T) {
	direct := migrated(t, 2)
	at := direct.Config().ConnConfig
	network, to := pgconn.NetworkAddress(at.Host, at.Port)
	proxy := newHoldingProxy(t, network, to)
	u := must(url.Parse(need(t).URL()))(t)
	u.Host = proxy.listener.Addr().String()
	pool := connect(t, u.String(), 2, "default_query_exec_mode=exec") // a statement is one message, and nothing prepares it

	o := outbox(t, direct, 1)
	name := o.Partitions()[0]
	ledger := ledgerIn(t, open(t, direct))
	p := must(reopened(t, pool, strings.TrimSuffix(name, "/0"), 1).Open(t.Context(), name, ledger))(t)
	s := p.Source
	first, _ := take(t, s)
	for i := range 15 {
		put(t, direct, o, record("a", i))
	}
	records := next(t, s, first, 15)
	lower, higher := records[4].Offset+1, records[14].Offset+1

	proxy.arm()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-proxy.holds
		cancel()
	}()
	if err := s.Commit(ctx, lower); !errors.Is(err, context.Canceled) {
		t.Fatalf("L16: the commit that is held back: %v", err)
	}
	noError(t, s.Commit(t.Context(), higher))
	noError(t, ledger.Compact(t.Context(), higher))
	proxy.release()
	<-proxy.late

	again, err := o.Open(t.Context(), name, ledger)
	if err != nil {
		t.Fatalf("L16: the partition cannot be opened after the late commit: %v", err)
	}
	if floor, _ := take(t, again.Source); floor != higher {
		t.Errorf("L16: the position is %d after the late commit, want %d", floor, higher)
	}
}
