// SPDX-License-Identifier: Apache-2.0

// Package proxy is a TCP proxy for tests that can lose what the server says.
package proxy

import (
	"net"
	"sync"
)

// Proxy passes connections on to a server. It must be closed.
type Proxy struct {
	listener net.Listener
	target   string
	group    sync.WaitGroup

	mu      sync.Mutex // guards what follows
	muted   bool
	armed   bool
	stalled chan struct{} // not nil: nothing passes until it is closed
	open    map[net.Conn]bool
	closed  bool
}

// New listens on a port of the loopback interface for connections to target.
func New(target string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: listener, target: target, open: map[net.Conn]bool{}}
	p.group.Go(p.accept)
	return p, nil
}

// Addr is host and port to connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Mute throws away what the server says from now on; what clients say still reaches it.
func (p *Proxy) Mute() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.muted = true
}

// Arm throws away the next thing that the server says, and cuts that connection.
func (p *Proxy) Arm() { p.arm(true) }

// Disarm calls that off, and reports whether it has happened.
func (p *Proxy) Disarm() (happened bool) { return !p.arm(false) }

func (p *Proxy) arm(now bool) (before bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, p.armed = p.armed, now
	return before
}

// Stall keeps what either side says from now on, until Flow lets it pass.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stalled == nil {
		p.stalled = make(chan struct{})
	}
}

// Flow lets everything pass that was kept, late as it is.
func (p *Proxy) Flow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flow()
}

func (p *Proxy) flow() {
	if p.stalled != nil {
		close(p.stalled)
		p.stalled = nil
	}
}

// Resume passes everything on again. Connections that are open are cut: parts of what they carried are missing.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.muted = false
	p.cut()
}

func (p *Proxy) cut() {
	for c := range p.open {
		_ = c.Close()
	}
}

// Close ends everything and waits for it.
func (p *Proxy) Close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	p.flow()
	p.cut()
	p.mu.Unlock()
	p.group.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.serve(client)
	}
}

func (p *Proxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		_ = client.Close()
		return
	}
	if !p.keep(client, server) { // closed since Accept
		_, _ = client.Close(), server.Close()
		return
	}
	p.group.Go(func() { p.pipe(server, client, false) })
	p.group.Go(func() { p.pipe(client, server, true) })
}

func (p *Proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	for _, c := range conns {
		p.open[c] = true
	}
	return true
}

// pipe copies until one side ends, and then ends both.
func (p *Proxy) pipe(to, from net.Conn, mutable bool) {
	defer func() {
		_, _ = to.Close(), from.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.open, to)
		delete(p.open, from)
	}()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		p.mu.Lock()
		lose, stalled, cut := mutable && p.muted, p.stalled, mutable && p.armed && n > 0
		p.armed = p.armed && !cut
		p.mu.Unlock()
		if cut {
			return
		}
		if stalled != nil {
			<-stalled
		}
		if n > 0 && !lose {
			if _, werr := to.Write(buffer[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
