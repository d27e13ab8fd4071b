// SPDX-License-Identifier: Apache-2.0

// Clients that mean harm: bodies that are announced and never come, requests that are reset as they come, lines as long as the
// server reads them. What they leave behind is counted: connections, goroutines (by goleak), slots, bytes.

package wardenhttp_test

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// A rejection is told, and costs its goroutine no longer than a moment, however little of the announced body comes.
func TestRejectedUploadsAreAnsweredAndEnd(t *testing.T) {
	closed := make(chan struct{}, 100)
	s := httptest.NewUnstartedServer(newHandler(t, newGuard(t, 0, 0), func(http.ResponseWriter, *http.Request) {
		t.Error("H17: called")
	}))
	s.Config.ConnState = func(_ net.Conn, is http.ConnState) {
		if is == http.StateClosed {
			closed <- struct{}{}
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	for name, c := range map[string]struct{ head, piece string }{
		"one byte announced":       {"Content-Length: 1", ""},
		"as long as is waited for": {"Content-Length: 65536", "x"},
		"longer":                   {"Content-Length: 65537", "x"},
		"of unknown length":        {"Transfer-Encoding: chunked", "1\r\nx\r\n"},
		"with an expectation":      {"Content-Length: 7\r\nExpect: 100-continue", ""},
	} {
		conn, in := raw(t, s, "POST / HTTP/1.1\r\nHost: x\r\n"+c.head+"\r\n\r\n")
		go func() { // trickles until it cannot
			for err := error(nil); err == nil; _, err = io.WriteString(conn, c.piece) {
				<-time.After(10 * time.Millisecond)
			}
		}()
		resp := must(http.ReadResponse(in, nil))(t)
		resp.Body.Close()
		if resp.StatusCode != http.StatusServiceUnavailable || !resp.Close {
			t.Errorf("H17: %s: %s, close %v", name, resp.Status, resp.Close)
		}
		await(t, name+": the end of the connection", closed)
		_ = conn.Close()
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// HTTP/2 by hand: what no client sends.

// prior starts a server that speaks HTTP/2 without TLS, and connects to it.
func prior(t *testing.T, h http.Handler) net.Conn {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Config.HTTP2 = &http.HTTP2Config{WriteByteTimeout: 100 * time.Millisecond}
	s.Start()
	t.Cleanup(s.Close)
	c := must(net.Dial("tcp", s.Listener.Addr().String()))(t)
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(3 * patience))
	must(io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))(t)
	return c
}

// The types of frames, and flags (RFC 9113, 6).
const (
	frameData, frameHeaders, frameReset, frameSettings, frameGoAway, frameWindow = 0, 1, 3, 4, 7, 8
	endStream, endHeaders, ack                                                   = 1, 4, 1
)

func frame(kind, flags byte, stream uint32, payload []byte) []byte {
	b := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	return append(binary.BigEndian.AppendUint32(b, stream), payload...)
}

// fields are :method, :scheme http, :path / and :authority x (RFC 7541, appendix A).
func fields(post bool) []byte {
	method := byte(0x82)
	if post {
		method = 0x83
	}
	return []byte{method, 0x86, 0x84, 0x41, 1, 'x'}
}

// Streams that are reset as they are opened: the handlers at work are never more than the slots, none is left, and nothing is
// kept.
func TestRapidReset(t *testing.T) {
	const streams, slots = 5000, 2
	g := newGuard(t, slots, 4)
	var now, most atomic.Int64
	conn := prior(t, newHandler(t, g, func(_ http.ResponseWriter, r *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	before := heap()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(io.Discard, conn)
	}()
	write := func(b []byte) bool {
		_, err := conn.Write(b)
		return err == nil // the server may say that it is enough
	}
	ok := write(frame(frameSettings, 0, 0, nil))
	sent := 0
	for id := uint32(1); ok && sent < streams; id += 2 {
		ok = write(append(frame(frameHeaders, endHeaders, id, fields(true)), frame(frameReset, 0, id, []byte{0, 0, 0, 8})...))
		sent++
	}
	eventually(t, "a request", func() bool { return g.Limiter().Stats().Submitted > 0 }) // or it may not have read any
	_ = conn.Close()
	<-done
	g.wantEmpty(t)
	if m := most.Load(); m > slots {
		t.Errorf("%d handlers at once, of %d", m, slots)
	}
	s := g.Limiter().Stats()
	if t.Logf("%d streams: %+v", sent, s); s.Queued != 0 || s.Submitted == 0 {
		t.Errorf("%+v", s)
	}
	// the server still ends the handlers of a connection that is gone
	eventually(t, "H3: memory as before", func() bool { return heap()-before <= 8<<20 })
}

// One connection with more uploads than slots, none of which ends: all are cut off, and the connection lives.
func TestEndlessStreamsOfOneConnection(t *testing.T) {
	const streams, slots = 50, 4
	g := newGuard(t, slots, streams)
	conn := prior(t, g.handle(t, wardenhttp.Config{Grace: 20 * time.Millisecond}, func(_ http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); !errors.Is(err, wardenhttp.ErrSlowPeer) {
			t.Errorf("H15: %v", err)
		}
	}))
	out := frame(frameSettings, 0, 0, nil)
	for i := range uint32(streams) {
		out = append(out, frame(frameHeaders, endHeaders, 2*i+1, fields(true))...)
		out = append(out, frame(frameData, 0, 2*i+1, []byte("x"))...)
	}
	must(conn.Write(out))(t)
	answered := map[uint32]bool{}
	for len(answered) < streams {
		var head [9]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			t.Fatalf("H15: %d of %d answered: %v", len(answered), streams, err)
		}
		payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
		must(io.ReadFull(conn, payload))(t)
		switch id := binary.BigEndian.Uint32(head[5:]); head[3] {
		case frameHeaders:
			answered[id] = true
		case frameGoAway:
			t.Fatalf("H15: the connection was ended: %q", payload)
		case frameSettings:
			if head[4]&ack == 0 {
				_, _ = conn.Write(frame(frameSettings, ack, 0, nil))
			}
		}
	}
	g.wantEmpty(t)
	if s := g.Limiter().Stats(); s.Executed != streams || s.Queued != 0 {
		t.Errorf("H15: %+v", s)
	}
}

// Wide windows, and nobody who reads from the connection: a stream's end cannot be sent either. There WriteByteTimeout ends the
// connection, and with it the Writes.
func TestAConnectionThatIsNotRead(t *testing.T) {
	const streams = 3
	g := newGuard(t, streams, 0)
	failed := make(chan error, streams)
	var begun sync.WaitGroup
	begun.Add(streams)
	conn := prior(t, g.handle(t, wardenhttp.Config{Grace: 50 * time.Millisecond}, func(w http.ResponseWriter, _ *http.Request) {
		begun.Done()
		begun.Wait() // the first to write may be the last that the connection lets in
		var err error
		for err == nil {
			_, err = w.Write(make([]byte, 1<<20))
		}
		failed <- err
	}))
	out := frame(frameSettings, 0, 0, []byte{0, 4, 0x7f, 0xff, 0xff, 0xff})
	out = append(out, frame(frameWindow, 0, 0, []byte{0x7f, 0, 0, 0})...)
	for i := range uint32(streams) {
		out = append(out, frame(frameHeaders, endHeaders|endStream, 2*i+1, fields(false))...)
	}
	must(conn.Write(out))(t)
	for range streams {
		if err := <-failed; !errors.Is(err, wardenhttp.ErrSlowPeer) {
			t.Error(err)
		}
	}
	g.wantEmpty(t)
}
