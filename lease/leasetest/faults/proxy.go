package faults

// This file is the network: a proxy that drops replies.

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stopbank/stopbank/lease/durable"
)

// proxy forwards bytes between clients and a server, until it is armed to drop a reply.
type proxy struct {
	to       string
	listener net.Listener
	armed    atomic.Bool
	dropped  atomic.Int64
	group    sync.WaitGroup
	mu       sync.Mutex // guards the fields below
	open     map[net.Conn]bool
	closed   bool
}

func newProxy(t testing.TB, to string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{to: to, listener: l, open: map[net.Conn]bool{}}
	p.group.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			p.group.Go(func() { p.serve(client) })
		}
	})
	return p
}

func (p *proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for conn := range p.open {
		_ = conn.Close()
	}
	p.mu.Unlock()
	p.group.Wait()
}

func (p *proxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.to)
	if err != nil {
		_ = client.Close()
		return
	}
	p.mu.Lock()
	if p.closed { // closed between Accept and here
		p.mu.Unlock()
		_, _ = client.Close(), server.Close()
		return
	}
	p.open[client], p.open[server] = true, true
	p.mu.Unlock()
	end := func() {
		_, _ = client.Close(), server.Close()
		p.mu.Lock()
		delete(p.open, client)
		delete(p.open, server)
		p.mu.Unlock()
	}
	p.group.Go(func() {
		defer end()
		carry(server, client, func() bool { return false })
	})
	defer end()
	carry(client, server, func() bool {
		lose := p.armed.CompareAndSwap(true, false)
		if lose {
			p.dropped.Add(1)
		}
		return lose
	})
}

// carry copies until an end closes, or until lose decides to drop the bytes just read and the connection.
func carry(to, from net.Conn, lose func() bool) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil || lose() {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// losing is a store whose replies the proxy drops at times, after the server has sent them. It counts the dropped replies of swaps
// that the server had applied, by reading through a connection without the proxy.
type losing struct {
	durable.Store
	past    durable.Store // the same store, without the proxy
	proxy   *proxy
	lose    func() bool
	applied int
}

func (l *losing) Swap(ctx context.Context, name string, old uint64, state []byte, index durable.Index) (uint64, error) {
	if name == "" || !l.lose() {
		return l.Store.Swap(ctx, name, old, state, index)
	}
	l.proxy.armed.Store(true)
	version, err := l.Store.Swap(ctx, name, old, state, index)
	l.proxy.armed.Store(false)
	if err != nil {
		if _, now, loadErr := l.past.Load(ctx, name); loadErr == nil && now != old {
			l.applied++
		}
	}
	return version, err
}
