// SPDX-License-Identifier: Apache-2.0

//go:build linux

// The load generator: an open loop with random arrivals, or a closed loop, over kept connections in one thread.

package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// request is one request of a run, with its intended time and its outcome. Times are nanoseconds since the start of the run.
type request struct {
	due, sent, done int64
	status          int // 0: no response before the client left
	critical, heavy bool
	counted         bool // also counted by the server
}

// criticalShare is the fraction of critical requests.
const criticalShare = 0.2

// schedule draws the requests of an open loop: exponential gaps, one in five critical, one in ten heavy. The requests of length,
// after warm, are counted; the requests of tail follow them, so that the last counted ones meet the same load. Equal seeds give
// equal schedules.
func schedule(rate float64, warm, length, tail time.Duration, seed uint64) []request {
	r := rand.New(rand.NewPCG(seed, 1))
	var all []request
	for at := time.Duration(0); ; {
		if at += time.Duration(r.ExpFloat64() / rate * float64(time.Second)); at >= warm+length+tail {
			return all
		}
		all = append(all, request{
			due: int64(at), critical: r.Float64() < criticalShare, heavy: r.Float64() < heavyShare, counted: at >= warm &&
				at < warm+length,
		})
	}
}

// The number of connections is bounded. A request without a free connection is not sent and counts as not answered.
const (
	maxConns   = 3000
	maxConnsH2 = 8
	maxStreams = 250 // requests in flight on one HTTP/2 connection; net/http's limit
)

// A conn is a connection with its requests in flight.
type conn struct {
	fd         int
	connecting bool
	waiting    []int          // requests that wait for the connection
	under      map[uint32]int // requests by stream; HTTP/1 has one at a time, as stream 0
	buf        []byte
	n          int // unread bytes in buf

	status, left int    // HTTP/1: the status of the response being read, or 0, and the missing bytes of its body
	frames       frames // HTTP/2
}

func (c *conn) load() int { return len(c.waiting) + len(c.under) }

// A generator sends requests to one server. On a core of its own it spins, so its lateness is bounded by the work for one
// request; otherwise it sleeps up to a millisecond. It records its lateness.
type generator struct {
	addr     unix.SockaddrInet4
	http2    bool
	shared   bool          // shares its core with the server
	patience time.Duration // time until a client leaves
	epoll    int
	conns    map[int]*conn // by file descriptor
	idle     []*conn       // HTTP/1
	base     time.Time     // start of the run

	texts  map[kind]text
	events [256]unix.EpollEvent
	looked int64 // time of giveUp's last scan, in its own unit
	idling bool  // nothing was in flight then, and nothing was sent since
	failed error
}

// kind is a kind of request.
type kind struct{ critical, heavy bool }

func (k kind) path() string {
	path := "/"
	if k.critical {
		path += "critical/"
	}
	if k.heavy {
		path += "heavy"
	}
	return path
}

// text is the encoded request, with the position of the value of overdueHeader, which has a constant length.
type text struct {
	bytes []byte
	at    int
}

const noTime = "0000000000000000000"

func newText(b []byte) text { return text{b, bytes.Index(b, []byte(noTime))} }

func newGenerator(to *net.TCPAddr, knows string, patience time.Duration, shared bool) (*generator, error) {
	g := &generator{http2: knows == h2, shared: shared, patience: patience, conns: map[int]*conn{}, texts: map[kind]text{}}
	g.addr.Port = to.Port
	copy(g.addr.Addr[:], to.IP.To4())
	var err error
	if g.epoll, err = unix.EpollCreate1(0); err != nil {
		return nil, err
	}
	for _, k := range []kind{{false, false}, {false, true}, {true, false}, {true, true}} {
		switch common := " HTTP/1.1\r\nHost: lab\r\n" + overdueHeader + ": " + noTime + "\r\n"; knows {
		case h2:
			g.texts[k] = newText(headersFrame(k.path()))
		case post:
			body := `{"some":"hundred bytes of a body which the handler reads when it gets to it, and no sooner than that"}`
			g.texts[k] = newText(fmt.Appendf(nil, "POST %s%sContent-Length: %d\r\n\r\n%s", k.path(), common, len(body), body))
		default:
			g.texts[k] = newText([]byte("GET " + k.path() + common + "\r\n"))
		}
	}
	return g, nil
}

// open sends the requests at their times; each client leaves when its patience ends. each, if not nil, is called about every
// millisecond with the time of the run. Clients with more patience than mostDrain leave that long after the last request.
func (g *generator) open(all []request, each func(now time.Duration)) error {
	g.base = time.Now()
	next, oldest := 0, 0
	var called int64
	end := int64(0)
	if len(all) > 0 {
		end = all[len(all)-1].due + int64(min(g.patience, mostDrain))
	}
	for oldest < len(all) && g.failed == nil {
		now := int64(time.Since(g.base))
		if next == len(all) && (g.idling || now > end) {
			break
		}
		for next < len(all) && all[next].due <= now {
			g.send(all, next)
			next++
			now = int64(time.Since(g.base))
		}
		g.poll(all, nil)
		for oldest < next && (all[oldest].done != 0 || all[oldest].overdue(g.patience) < now) {
			oldest++
		}
		g.giveUp(all, now)
		if each != nil && now-called > int64(time.Millisecond) {
			called = now
			each(time.Duration(now))
		}
	}
	g.looked = -1 // scan again for the last clients
	g.giveUp(all, int64(time.Since(g.base)))
	return g.failed
}

// mostDrain is how long the generator waits for the last answers.
const mostDrain = 20 * time.Second

// overdue is the time at which the client of a request leaves.
func (r *request) overdue(patience time.Duration) int64 { return r.due + int64(patience) }

// closed keeps n requests in flight, and counts the responses during length, after skip. It calls begin between the two.
func (g *generator) closed(n int, skip, length time.Duration, begin func() error) (perSecond float64, err error) {
	g.base = time.Now()
	all := make([]request, 0, 1<<18)
	again := func() {
		if i := len(all); i < cap(all) {
			all = append(all, request{due: int64(time.Since(g.base)), heavy: i%int(1/heavyShare) == 0})
			g.send(all, i)
		}
	}
	for range n {
		again()
	}
	begun := false
	for now := time.Duration(0); now < skip+length && g.failed == nil; now = time.Since(g.base) {
		if now >= skip && !begun {
			begun = true
			if err := begin(); err != nil {
				return 0, err
			}
		}
		g.poll(all, again)
	}
	answered := 0
	for _, r := range all {
		if r.status != 0 && r.done >= int64(skip) && r.done < int64(skip+length) {
			answered++
		}
	}
	return float64(answered) / length.Seconds(), g.failed
}

// send sends a request on a connection.
func (g *generator) send(all []request, i int) {
	c := g.free()
	g.idling = false
	switch {
	case c == nil:
	case c.connecting:
		c.waiting = append(c.waiting, i)
	default:
		g.write(c, all, i)
	}
}

// free returns a connection that can take a request; nil if there is none.
func (g *generator) free() (c *conn) {
	if !g.http2 {
		if n := len(g.idle); n > 0 {
			c, g.idle = g.idle[n-1], g.idle[:n-1]
			return c
		}
		if len(g.conns) < maxConns {
			return g.connect()
		}
		return nil
	}
	if len(g.conns) < maxConnsH2 {
		return g.connect()
	}
	for _, other := range g.conns {
		if other.load() < maxStreams && (c == nil || other.load() < c.load()) {
			c = other
		}
	}
	return c
}

func (g *generator) write(c *conn, all []request, i int) {
	r := &all[i]
	t := g.texts[kind{r.critical, r.heavy}]
	r.sent = int64(time.Since(g.base))
	value := noTime
	if r.counted {
		value = strconv.FormatInt(g.base.UnixNano()+r.overdue(g.patience), 10)
	}
	copy(t.bytes[t.at:], value)
	stream := uint32(0)
	if g.http2 {
		stream = c.frames.begin(t.bytes)
	}
	c.under[stream] = i
	g.put(c, t.bytes)
}

// put writes all of b, or drops the connection.
func (g *generator) put(c *conn, b []byte) {
	if n, err := unix.Write(c.fd, b); n != len(b) || err != nil {
		g.drop(c)
	}
}

// connect opens a connection; nil if that fails.
func (g *generator) connect() *conn {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		g.failed = err
		return nil
	}
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	// Reset instead of lingering: thousands of abandoned connections must not exhaust the ports.
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	c := &conn{fd: fd, under: map[uint32]int{}, buf: make([]byte, 4096)}
	if g.http2 {
		c.buf = make([]byte, 1<<16)
		c.frames = newFrames()
	}
	switch err := unix.Connect(fd, &g.addr); err {
	case nil, unix.EINPROGRESS:
		c.connecting = true // until poll reports that it is writable
	default:
		_ = unix.Close(fd)
		return nil
	}
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT, Fd: int32(fd)}
	if err := unix.EpollCtl(g.epoll, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		g.failed = err
	}
	g.conns[fd] = c
	return c
}

// connected sends the requests that waited for the connection.
func (g *generator) connected(c *conn, all []request) {
	c.connecting = false
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(c.fd)}
	if err := unix.EpollCtl(g.epoll, unix.EPOLL_CTL_MOD, c.fd, &event); err != nil {
		g.failed = err
	}
	if g.http2 {
		g.put(c, preface())
	}
	now := int64(time.Since(g.base))
	for _, i := range c.waiting {
		if g.conns[c.fd] == c && all[i].overdue(g.patience) >= now {
			g.write(c, all, i)
		}
	}
	c.waiting = nil
}

// drop closes a connection. Its requests in flight get no response.
func (g *generator) drop(c *conn) {
	if g.conns[c.fd] != c {
		return
	}
	delete(g.conns, c.fd)
	_ = unix.Close(c.fd)
	for i := range g.idle {
		if g.idle[i] == c {
			g.idle[i] = g.idle[len(g.idle)-1]
			g.idle = g.idle[:len(g.idle)-1]
			return
		}
	}
}

// poll reads responses; answered, if not nil, is called for each.
func (g *generator) poll(all []request, answered func()) {
	wait := 0
	if g.shared {
		wait = 1
	}
	n, err := unix.EpollWait(g.epoll, g.events[:], wait)
	if err != nil && err != unix.EINTR {
		g.failed = err
	}
	for _, e := range g.events[:max(n, 0)] {
		c := g.conns[int(e.Fd)]
		if c == nil {
			continue
		}
		if c.connecting && e.Events&unix.EPOLLOUT != 0 {
			g.connected(c, all)
			continue
		}
		m, err := unix.Read(c.fd, c.buf[c.n:])
		if m <= 0 || err != nil {
			if err != unix.EAGAIN {
				g.drop(c)
			}
			continue
		}
		c.n += m
		done := func(stream uint32, status int) {
			i, ok := c.under[stream]
			if !ok {
				return
			}
			delete(c.under, stream)
			all[i].done, all[i].status = int64(time.Since(g.base)), status
			if !g.http2 {
				g.idle = append(g.idle, c)
			}
			if answered != nil {
				answered()
			}
		}
		if g.http2 {
			reply, err := c.frames.take(c, done)
			if len(reply) > 0 {
				g.put(c, reply)
			}
			if err != nil {
				g.drop(c)
			}
		} else if status, ok := c.answer(); ok {
			done(0, status)
		}
	}
}

// giveUp ends overdue requests. It scans all connections, so it runs only every few milliseconds.
func (g *generator) giveUp(all []request, now int64) {
	if now/int64(4*time.Millisecond) == g.looked {
		return
	}
	g.looked = now / int64(4*time.Millisecond)
	g.idling = true
	for _, c := range g.conns {
		g.idling = g.idling && c.load() == 0
		for stream, i := range c.under {
			if all[i].overdue(g.patience) >= now {
				continue
			}
			delete(c.under, stream)
			if g.http2 {
				g.put(c, resetFrame(stream))
			} else {
				g.drop(c)
			}
		}
		if !g.http2 && len(c.waiting) > 0 && all[c.waiting[0]].overdue(g.patience) < now {
			g.drop(c)
		}
	}
}

func (g *generator) close() {
	for _, c := range g.conns {
		_ = unix.Close(c.fd)
	}
	_ = unix.Close(g.epoll)
}

// answer parses an HTTP/1 response with a Content-Length, whose head must fit the buffer. ok: it is complete.
func (c *conn) answer() (status int, ok bool) {
	if c.status == 0 {
		head, body, found := bytes.Cut(c.buf[:c.n], []byte("\r\n\r\n"))
		if !found || len(head) < 12 {
			return 0, false
		}
		c.status, _ = strconv.Atoi(string(head[9:12]))
		_, rest, _ := bytes.Cut(head, []byte("\r\nContent-Length: "))
		digits, _, _ := bytes.Cut(rest, []byte("\r\n"))
		c.left, _ = strconv.Atoi(string(digits))
		c.left -= len(body)
	} else {
		c.left -= c.n
	}
	c.n = 0
	if c.left > 0 {
		return 0, false
	}
	status, c.status = c.status, 0
	return status, true
}
