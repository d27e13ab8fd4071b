//go:build linux

// The generator: an open loop of requests at drawn times, or a closed loop, over kept connections in one thread.

package main

import (
	"bytes"
	"math/rand/v2"
	"net"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// request is one request of a run: when it is due, and what became of it. Times are nanoseconds of the run.
type request struct {
	due, sent, done int64
	status          int // 0: no answer within the deadline
	critical        bool
}

// phase is a time of constant load, in requests per second.
type phase struct {
	rate   float64
	length time.Duration
}

// critical is the share of requests of that priority.
const criticalShare = 0.2

// schedule draws the requests of an open loop: exponential gaps, one in five critical. The same seed gives the same.
func schedule(phases []phase, seed uint64) []request {
	r := rand.New(rand.NewPCG(seed, 1))
	var all []request
	var begin float64
	for _, p := range phases {
		end := begin + float64(p.length)
		for at := begin; ; {
			if at += r.ExpFloat64() / p.rate * float64(time.Second); at >= end {
				break
			}
			all = append(all, request{due: int64(at), critical: r.Float64() < criticalShare})
		}
		begin = end
	}
	return all
}

// maxConns bounds the connections. A request that finds none is not sent, and counts as not answered.
const maxConns = 3000

// A conn is one connection, and the request under way on it.
type conn struct {
	fd         int
	connecting bool
	request    int // -1: none
	buf        [2048]byte
	n          int
}

// A generator sends requests to one server. It spins on a core of its own, so it is never late by more than what it does
// for a request, which it measures.
type generator struct {
	addr  unix.SockaddrInet4
	epoll int
	conns map[int]*conn // by descriptor
	idle  []*conn
	base  time.Time // of the times in requests

	plain, critical []byte // a request without its clocks
	events          [256]unix.EpollEvent
	looked          int64 // when giveUp last looked, in its own unit
	failed          error
}

func newGenerator(to *net.TCPAddr) (*generator, error) {
	g := &generator{conns: map[int]*conn{}}
	g.addr.Port = to.Port
	copy(g.addr.Addr[:], to.IP.To4())
	var err error
	if g.epoll, err = unix.EpollCreate1(0); err != nil {
		return nil, err
	}
	text := func(path string) []byte {
		return []byte("GET " + path + " HTTP/1.1\r\nHost: lab\r\n" + clockHeader + ": " + clocksAt(0, 0) + "\r\n\r\n")
	}
	g.plain, g.critical = text("/"), text("/critical")
	return g, nil
}

// clocksAt is the value of the clock header, 39 characters long.
func clocksAt(due, sent int64) string {
	pad := func(n int64) string {
		s := strconv.FormatInt(n, 10)
		return "0000000000000000000"[len(s):] + s
	}
	return pad(due) + " " + pad(sent)
}

// open sends the requests when they are due, and each is given up when its deadline has passed. each, if not nil, is
// called about every millisecond with the time of the run.
func (g *generator) open(all []request, each func(now time.Duration)) error {
	g.base = time.Now()
	next, oldest := 0, 0
	var called int64
	for oldest < len(all) && g.failed == nil {
		now := int64(time.Since(g.base))
		for next < len(all) && all[next].due <= now {
			g.send(all, next)
			next++
			now = int64(time.Since(g.base))
		}
		g.poll(all, nil)
		for oldest < next && (all[oldest].done != 0 || all[oldest].due+int64(deadline) < now) {
			oldest++
		}
		g.giveUp(all, now)
		if each != nil && now-called > int64(time.Millisecond) {
			called = now
			each(time.Duration(now))
		}
	}
	return g.failed
}

// closed keeps n requests under way, and counts those that are answered in the time length that follows the time skip. Between
// the two it calls begin.
func (g *generator) closed(n int, skip, length time.Duration, begin func() error) (perSecond float64, err error) {
	g.base = time.Now()
	all := make([]request, 0, 1<<18)
	again := func() {
		if len(all) < cap(all) {
			all = append(all, request{due: int64(time.Since(g.base))})
			g.send(all, len(all)-1)
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
		if r.done >= int64(skip) && r.done < int64(skip+length) {
			answered++
		}
	}
	return float64(answered) / length.Seconds(), g.failed
}

// send puts a request on a connection.
func (g *generator) send(all []request, i int) {
	var c *conn
	if n := len(g.idle); n > 0 {
		c, g.idle = g.idle[n-1], g.idle[:n-1]
	} else if len(g.conns) < maxConns {
		if c = g.connect(); c == nil {
			return
		}
	} else {
		return
	}
	c.request, c.n = i, 0
	if !c.connecting {
		g.write(c, all)
	}
}

func (g *generator) write(c *conn, all []request) {
	r := &all[c.request]
	text := g.plain
	if r.critical {
		text = g.critical
	}
	r.sent = int64(time.Since(g.base))
	base := g.base.UnixNano()
	copy(text[len(text)-4-39:], clocksAt(base+r.due, base+r.sent))
	if n, err := unix.Write(c.fd, text); n != len(text) || err != nil {
		g.drop(c)
	}
}

// connect opens a connection, nil if it cannot.
func (g *generator) connect() *conn {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		g.failed = err
		return nil
	}
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	// Reset instead of lingering: a run that gives up on thousands must not use up the ports.
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	c := &conn{fd: fd, request: -1}
	switch err := unix.Connect(fd, &g.addr); err {
	case nil:
	case unix.EINPROGRESS:
		c.connecting = true
	default:
		_ = unix.Close(fd)
		return nil
	}
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}
	if c.connecting {
		event.Events |= unix.EPOLLOUT
	}
	if err := unix.EpollCtl(g.epoll, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		g.failed = err
	}
	g.conns[fd] = c
	return c
}

// drop closes a connection; what it was used for gets no answer.
func (g *generator) drop(c *conn) {
	delete(g.conns, c.fd)
	_ = unix.Close(c.fd)
	if c.request < 0 { // it lies among the idle
		for i := range g.idle {
			if g.idle[i] == c {
				g.idle[i] = g.idle[len(g.idle)-1]
				g.idle = g.idle[:len(g.idle)-1]
				return
			}
		}
	}
}

// poll takes in what has arrived; answered is called for each answer.
func (g *generator) poll(all []request, answered func()) {
	n, err := unix.EpollWait(g.epoll, g.events[:], 0)
	if err != nil && err != unix.EINTR {
		g.failed = err
	}
	for _, e := range g.events[:max(n, 0)] {
		c := g.conns[int(e.Fd)]
		if c == nil {
			continue
		}
		if c.connecting && e.Events&unix.EPOLLOUT != 0 {
			c.connecting = false
			event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: e.Fd}
			_ = unix.EpollCtl(g.epoll, unix.EPOLL_CTL_MOD, c.fd, &event)
			g.write(c, all)
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
		status, whole := answer(c.buf[:c.n])
		if !whole || c.request < 0 {
			continue
		}
		r := &all[c.request]
		r.done, r.status = int64(time.Since(g.base)), status
		c.request = -1
		g.idle = append(g.idle, c)
		if answered != nil {
			answered()
		}
	}
}

// giveUp closes connections whose answer is overdue. It looks at all of them, so it does so only every few milliseconds.
func (g *generator) giveUp(all []request, now int64) {
	if now/int64(4*time.Millisecond) == g.looked {
		return
	}
	g.looked = now / int64(4*time.Millisecond)
	for _, c := range g.conns {
		if c.request >= 0 && all[c.request].due+int64(deadline) < now {
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

// answer is the status of a whole HTTP response with a Content-Length.
func answer(b []byte) (status int, whole bool) {
	head, body, found := bytes.Cut(b, []byte("\r\n\r\n"))
	if !found || len(head) < 12 {
		return 0, false
	}
	status, _ = strconv.Atoi(string(head[9:12]))
	_, rest, found := bytes.Cut(head, []byte("\r\nContent-Length: "))
	if !found {
		return status, true
	}
	digits, _, _ := bytes.Cut(rest, []byte("\r\n"))
	length, _ := strconv.Atoi(string(digits))
	return status, len(body) >= length
}
