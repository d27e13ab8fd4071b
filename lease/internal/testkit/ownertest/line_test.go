// SPDX-License-Identifier: Apache-2.0

// Bytes sent over a connection that is cut arrive when it is mended, and not before.

package ownertest

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

func TestLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // which also waits for the goroutines of the line
		l := NewLine(t)
		l.Dial = func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			go func() { // an echo
				_, _ = io.Copy(far, far)
				_ = far.Close()
			}()
			return near, nil
		}
		// says sends a text, of which nothing comes back while the line is cut.
		says := func(conn net.Conn, text string, cut bool) {
			t.Helper()
			if _, err := io.WriteString(conn, text); err != nil {
				t.Fatal(err)
			}
			_ = conn.SetReadDeadline(time.Now().Add(time.Hour))
			if n, err := conn.Read(make([]byte, 1)); cut && (n > 0 || !errors.Is(err, os.ErrDeadlineExceeded)) {
				t.Fatalf("over a line that is cut: %d bytes, %v", n, err)
			} else if !cut && err != nil {
				t.Fatal(err)
			}
			_ = conn.SetReadDeadline(time.Time{})
		}
		hears := func(conn net.Conn, want string) {
			t.Helper()
			got := make([]byte, len(want))
			if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
				t.Fatalf("%q, %v, want %q", got, err, want)
			}
		}
		first, _ := l.DialContext(t.Context(), "", "")
		says(first, "one", false)
		hears(first, "ne")
		l.Cut()
		second, _ := l.DialContext(t.Context(), "", "")
		says(first, "two", true)
		says(second, "two", true)
		l.Mend()
		hears(first, "two")
		hears(second, "two")
		_ = second.Close()
		says(first, "three", false)
		hears(first, "hree")
	})
}
