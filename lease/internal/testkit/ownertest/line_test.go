// SPDX-License-Identifier: Apache-2.0

// Bytes sent over a connection that is cut arrive when it is mended, and not before.

package ownertest

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestLine(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t, goleak.IgnoreCurrent()) })
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { // an echo
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	t.Cleanup(func() { _ = server.Close() })
	l := NewLine(t)
	dial := func() net.Conn {
		conn, err := l.DialContext(t.Context(), "tcp", server.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	say := func(conn net.Conn, what string) {
		if _, err := conn.Write([]byte(what)); err != nil {
			t.Fatal(err)
		}
	}
	hear := func(conn net.Conn, want string) {
		t.Helper()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
			t.Fatalf("%q, %v, want %q", got, err, want)
		}
	}
	first := dial()
	say(first, "one")
	hear(first, "one")
	l.Cut()
	second := dial()
	for _, conn := range []net.Conn{first, second} {
		say(conn, "two")
		if err := conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if n, err := conn.Read(make([]byte, 1)); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("over a line that is cut: %d bytes, %v", n, err)
		}
		if err := conn.SetReadDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	l.Mend()
	for _, conn := range []net.Conn{first, second} {
		hear(conn, "two")
	}
	_ = second.Close()
	say(first, "three")
	hear(first, "three")
}
