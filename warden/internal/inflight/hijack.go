// SPDX-License-Identifier: Apache-2.0

// Hijacking: the ResponseWriter that notices it, and the connection that is part of its request until it is closed.

package inflight

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
)

// watch returns a ResponseWriter whose connection joins r when it is hijacked. What http.ResponseController could not
// hijack is returned as it is.
func watch(w http.ResponseWriter, r request) http.ResponseWriter {
	if !reaches[http.Hijacker](w) {
		return w
	}
	watched := &writer{w, r}
	if reaches[http.Flusher](w) {
		return flusher{watched}
	}
	return watched
}

// reaches reports whether w, or a ResponseWriter that it wraps, is a T. http.ResponseController looks in the same places;
// to look at w alone would let it find a Hijack behind our back.
func reaches[T any](w http.ResponseWriter) bool {
	for {
		if _, ok := w.(T); ok {
			return true
		}
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return false
		}
		w = u.Unwrap()
	}
}

// writer is a ResponseWriter that can be hijacked.
type writer struct {
	http.ResponseWriter
	request request
}

// Unwrap is for http.ResponseController, which finds there whatever is not here.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// ReadFrom keeps sendfile: io.Copy finds the original's ReadFrom, if it has one.
func (w *writer) ReadFrom(r io.Reader) (int64, error) { return io.Copy(w.ResponseWriter, r) }

// WriteString keeps the original's WriteString, if it has one.
func (w *writer) WriteString(s string) (int, error) { return io.WriteString(w.ResponseWriter, s) }

// Hijack hands out a connection that is part of the request until it is closed. It joins before anybody else can have it,
// so the request cannot end in between.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.request.join()
	handedOut := false
	defer func() {
		if !handedOut {
			w.request.leave(false)
		}
	}()
	c, buf, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil || c == nil {
		return c, buf, err
	}
	handedOut = true
	return &conn{Conn: c, request: w.request}, buf, nil
}

// flusher is a writer that can be flushed.
type flusher struct{ *writer }

// Flush is FlushError for code that looks for an http.Flusher.
func (w flusher) Flush() { _ = w.FlushError() }

// FlushError is what http.ResponseController calls.
func (w flusher) FlushError() error { return http.NewResponseController(w.ResponseWriter).Flush() }

// conn is a hijacked connection. It refers to the request alone: a long connection does not keep its ResponseWriter.
type conn struct {
	net.Conn
	request request
	closed  atomic.Bool // set by the first Close, whose part it is to leave
}

// Close closes the connection, and then it is no longer part of the request. A later call, or one while the first is
// still busy, does not count.
func (c *conn) Close() error {
	if c.closed.CompareAndSwap(false, true) {
		defer c.request.leave(true)
	}
	return c.Conn.Close()
}

// CloseWrite ends one direction, if the connection can; it remains part of the request.
func (c *conn) CloseWrite() error { return closeWrite(c.Conn) }

// ReadFrom keeps splice: io.Copy finds the connection's ReadFrom, if it has one.
func (c *conn) ReadFrom(r io.Reader) (int64, error) { return io.Copy(c.Conn, r) }

// WriteTo is ReadFrom in the other direction.
func (c *conn) WriteTo(w io.Writer) (int64, error) { return io.Copy(w, c.Conn) }

// closeWrite ends the writing direction of a two-way stream, or says, as net/http's own does, that it cannot be done.
func closeWrite(stream any) error {
	if s, ok := stream.(interface{ CloseWrite() error }); ok {
		return s.CloseWrite()
	}
	return fmt.Errorf("inflight: CloseWrite: %w", http.ErrNotSupported)
}
