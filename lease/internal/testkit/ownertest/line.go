// SPDX-License-Identifier: Apache-2.0

// The network of one member: connections that can be silenced without being closed.

package ownertest

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"
)

// Line dials for one member. While it is cut, nothing arrives in either direction, no connection is closed, and new
// connections are silent too. When mended, it delivers everything sent meanwhile. All methods are safe for concurrent use.
type Line struct {
	// Dial connects to the engine; nil: over the network. A network in memory lets the test run in virtual time. Set it
	// before DialContext is called.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu      sync.Mutex // guards all below
	ends    map[net.Conn]bool
	mended  chan struct{} // open while the line is cut
	late    func() time.Duration
	rate    int       // of the member's downlink, in bytes a second; 0: it has no bound
	free    time.Time // when the downlink is free
	drops   bool      // the next message down is lost
	dropped int
	left    int    // messages up until it breaks; 0: it does not
	after   bool   // the last of them arrives
	broken  bool   // nothing arrives any more
	told    func() // that it is broken
	closed  bool
	group   sync.WaitGroup
}

// NewLine returns a Line that is closed at the end of the test.
func NewLine(t testing.TB) *Line {
	l := &Line{ends: map[net.Conn]bool{}, mended: make(chan struct{})}
	close(l.mended)
	t.Cleanup(func() {
		l.Mend()
		l.mu.Lock()
		l.closed = true
		l.closeLocked()
		l.mu.Unlock()
		l.group.Wait()
	})
	return l
}

func (l *Line) closeLocked() {
	for conn := range l.ends {
		_ = conn.Close()
	}
}

// Drop loses the next message that comes down, and closes its connection.
func (l *Line) Drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drops = true
}

// Dropped is how many messages Drop has lost.
func (l *Line) Dropped() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dropped
}

// Break ends the line for ever, like the death of its member, at the nth message that is sent from now on: before that arrives,
// or after: when its answer would, or a little later. Then it calls told.
func (l *Line) Break(n int, after bool, told func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left, l.after, l.told = n, after, told
}

func (l *Line) breakLocked() {
	if !l.closed {
		l.closed = true
		l.closeLocked()
		l.told()
	}
}

// passes reports whether what is on its way from a connection arrives.
func (l *Line) passes(from net.Conn, down bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.broken && down:
		l.breakLocked()
	case !l.broken && !down && l.left > 0:
		if l.left--; l.left > 0 {
			return true
		}
		if l.broken = true; !l.after {
			l.breakLocked()
			return false
		}
		time.AfterFunc(100*time.Millisecond, func() { // some messages have no answer
			l.mu.Lock()
			defer l.mu.Unlock()
			l.breakLocked()
		})
		return true
	}
	if down && l.drops {
		l.drops = false
		l.dropped++
		_ = from.Close()
		return false
	}
	return !l.broken
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

// Late delays what is sent from now on, each time by what by returns: in its order over one connection, while other
// connections overtake it. So answers come late, and so do statements, also after the member has given them up. Nil: nothing
// is late.
func (l *Line) Late(by func() time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late = by
}

// Slow lets so many bytes a second reach the member from now on, over all its connections together. 0: as many as come.
func (l *Line) Slow(bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rate = bytes
}

// delay blocks as long as Late says, and what comes down as long as Slow does.
func (l *Line) delay(bytes int, down bool) {
	l.mu.Lock()
	late, busy := l.late, time.Duration(0)
	if down && l.rate > 0 {
		if now := time.Now(); l.free.Before(now) {
			l.free = now
		}
		l.free = l.free.Add(time.Duration(bytes) * time.Second / time.Duration(l.rate))
		busy = time.Until(l.free)
	}
	l.mu.Unlock()
	if late != nil {
		time.Sleep(late())
	}
	if busy > time.Millisecond { // a shorter one is not worth a sleep
		time.Sleep(busy)
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
	dial := l.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	far, err := dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	client, near := net.Pipe()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.broken {
		_, _, _ = far.Close(), near.Close(), client.Close()
		return nil, net.ErrClosed
	}
	for _, conn := range []net.Conn{near, far} {
		l.ends[conn] = true
	}
	l.group.Go(func() { l.carry(near, far, false) })
	l.group.Go(func() { l.carry(far, near, true) })
	return client, nil
}

// carry forwards data until one of the connections is closed. What is on the way does not keep its sender waiting, as in a
// network.
func (l *Line) carry(from, to net.Conn, down bool) {
	sent := make(chan []byte, 1<<10)
	l.group.Go(func() {
		defer close(sent)
		for {
			buffer := make([]byte, 4<<10)
			n, err := from.Read(buffer)
			if n > 0 {
				sent <- buffer[:n]
			}
			if err != nil {
				return
			}
		}
	})
	var failed error
	for data := range sent {
		l.delay(len(data), down)
		if l.Wait(); failed == nil && l.passes(from, down) {
			if _, failed = to.Write(data); failed != nil {
				_ = from.Close()
			}
		}
	}
	l.Wait()
	_, _ = from.Close(), to.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.ends, from)
}
