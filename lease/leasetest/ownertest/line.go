package ownertest

// This file is the network of one member: connections that can be silenced without being closed.

import (
	"context"
	"net"
	"sync"
	"testing"
)

// Line dials for one member. While it is cut, nothing arrives in either direction, no connection is closed, and new connections are
// silent too. When mended, it delivers everything sent meanwhile. Connections go through a loopback address: they are ordinary TCP
// connections with deadlines. All methods are safe for concurrent use.
type Line struct {
	mu     sync.Mutex // guards all below
	ends   map[net.Conn]bool
	mended chan struct{} // open while the line is cut
	closed bool
	group  sync.WaitGroup
}

// NewLine returns a Line that is closed at the end of the test.
func NewLine(t testing.TB) *Line {
	l := &Line{ends: map[net.Conn]bool{}, mended: make(chan struct{})}
	close(l.mended)
	t.Cleanup(func() {
		l.Mend()
		l.mu.Lock()
		l.closed = true
		for conn := range l.ends {
			_ = conn.Close()
		}
		l.mu.Unlock()
		l.group.Wait()
	})
	return l
}

// Cut silences the line.
func (l *Line) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.mended:
		l.mended = make(chan struct{})
	default:
	}
}

// Mend resumes delivery.
func (l *Line) Mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.mended:
	default:
		close(l.mended)
	}
}

// Wait blocks while the line is cut.
func (l *Line) Wait() {
	l.mu.Lock()
	mended := l.mended
	l.mu.Unlock()
	<-mended
}

// DialContext connects to address through the line.
func (l *Line) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	var dialer net.Dialer
	far, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		_ = far.Close()
		return nil, err
	}
	defer listener.Close()
	client, err := dialer.DialContext(ctx, "tcp", listener.Addr().String())
	if err != nil {
		_ = far.Close()
		return nil, err
	}
	near, err := listener.Accept()
	if err != nil {
		_, _ = far.Close(), client.Close()
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_, _, _ = far.Close(), near.Close(), client.Close()
		return nil, net.ErrClosed
	}
	for _, conn := range []net.Conn{near, far} {
		l.ends[conn] = true
	}
	l.group.Go(func() { l.carry(near, far) })
	l.group.Go(func() { l.carry(far, near) })
	return client, nil
}

// carry forwards data until one of the connections is closed.
func (l *Line) carry(from, to net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		l.Wait()
		if n > 0 {
			if _, failed := to.Write(buffer[:n]); failed != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	_, _ = from.Close(), to.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.ends, from)
}
