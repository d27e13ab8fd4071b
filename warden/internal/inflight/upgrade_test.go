// SPDX-License-Identifier: Apache-2.0

// Connections that outlive their handler: what they can do, through one gate, two in a row, or one on either side.

package inflight_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// An upgrade like WebSocket's, with a gate on either side: both hold until their end of the connection is closed, also
// when one direction, or the handler, is at its end.
func TestUpgradeHoldsOnBothSidesUntilClosed(t *testing.T) {
	server, client := newGate(1), newGate(1)
	o := newTakeover()
	s := startServer(t, o.around(newHandler(server, func(w http.ResponseWriter, _ *http.Request) {
		c, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = buf.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = buf.Flush()
		o.conns <- c
		go func() { // echoes until the client has ended its direction; closes when it is told to
			_, _ = io.Copy(c, buf)
			_ = c.(interface{ CloseWrite() error }).CloseWrite()
		}()
	})), false)

	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	resp, err := through(client, s).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	stream, ok := resp.Body.(io.ReadWriteCloser)
	if resp.StatusCode != http.StatusSwitchingProtocols || !ok {
		t.Fatalf("H2: %s with a %T", resp.Status, resp.Body)
	}
	await(t, "the end of the handler", o.done)
	server.wantInFlight(t, "after the handler", 1)
	in := bufio.NewReader(stream)
	for _, line := range []string{"one\n", "two\n"} {
		if _, err := io.WriteString(stream, line); err != nil {
			t.Fatal(err)
		}
		if got, err := in.ReadString('\n'); got != line || err != nil {
			t.Fatalf("H2: echo %q of %q: %v", got, line, err)
		}
	}
	// net/http's body has CloseWrite since Go 1.26; before, the server ends the other direction.
	if err := stream.(interface{ CloseWrite() error }).CloseWrite(); errors.Is(err, http.ErrNotSupported) {
		_ = (<-o.conns).(interface{ CloseWrite() error }).CloseWrite()
	} else if err != nil {
		t.Errorf("H2: CloseWrite: %v", err)
	}
	if rest, err := io.ReadAll(in); len(rest) > 0 || err != nil {
		t.Errorf("H2: rest %q: %v", rest, err)
	}
	client.wantInFlight(t, "after io.EOF", 1)
	server.wantInFlight(t, "after io.EOF", 1)
	stream.Close()
	stream.Close()
	client.wantEmpty(t)
	server.wantInFlight(t, "after the client's Close", 1)
	_ = (<-o.conns).Close()
	server.wantEmpty(t)
}

// A connection that went through two gates is in flight in both.
func TestHijackThroughTwoGates(t *testing.T) {
	outer, inner := newGate(1), newGate(1)
	o := newTakeover()
	h := newHandler(inner, func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(c, answer)
		o.conns <- c
	})
	s := startServer(t, o.around(newHandler(outer, h.ServeHTTP)), false)
	wantStatus(t, s, http.StatusNoContent)
	await(t, "the end of the handler", o.done)
	for _, g := range []*gate{outer, inner} {
		g.wantInFlight(t, "after the handler", 1)
	}
	_ = (<-o.conns).Close()
	outer.wantEmpty(t)
	inner.wantEmpty(t)
}

// What TCP can do beyond a net.Conn is still there: ending one direction, and copying without a buffer of our own.
func TestHijackedConnectionKeepsItsAbilities(t *testing.T) {
	g := newGate(1)
	o := newTakeover()
	s, l := startCounting(t, newHandler(g, func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		o.conns <- c
	}))
	client, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: loopback\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	c := <-o.conns
	if n, err := io.Copy(c, io.LimitReader(strings.NewReader("from the server"), 1<<20)); n != 15 || err != nil {
		t.Errorf("H7: copied %d: %v", n, err)
	}
	half, ok := c.(interface{ CloseWrite() error })
	if !ok {
		t.Fatalf("H7: %T has no CloseWrite", c)
	}
	if err := half.CloseWrite(); err != nil {
		t.Errorf("H7: CloseWrite: %v", err)
	}
	if got, err := io.ReadAll(client); string(got) != "from the server" || err != nil {
		t.Errorf("H7: the client read %q: %v", got, err)
	}
	if _, err := io.WriteString(client, "from the client"); err != nil {
		t.Errorf("H7: the other direction: %v", err)
	}
	_ = client.(*net.TCPConn).CloseWrite()
	var got strings.Builder
	if n, err := io.Copy(&got, c); got.String() != "from the client" || n != 15 || err != nil {
		t.Errorf("H7: the server read %q: %v", got.String(), err)
	}
	if in, out := l.in.Load(), l.out.Load(); in != 15 || out != 15 {
		t.Errorf("H7: %d and %d bytes went through the connection's own copying, want 15 each", in, out)
	}
	g.wantInFlight(t, "with both directions ended", 1)
	_ = c.Close()
	g.wantEmpty(t)
}

func TestHijackedConnectionWithoutCloseWriteSaysSo(t *testing.T) {
	g := newGate(1)
	c := takeFake(t, g, &fakeConn{close: func() error { return nil }})
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); !errors.Is(err, http.ErrNotSupported) {
		t.Errorf("H7: CloseWrite: %v", err)
	}
	_ = c.Close()
	g.wantEmpty(t)
}
