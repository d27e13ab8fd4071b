// SPDX-License-Identifier: Apache-2.0

// Requests in flight: a permit is held until a handler and the connections that it hijacked, or a response's body, have ended.

package admissionhttp

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/stopbank/stopbank/admission"
)

// request is an admitted request whose connection can be hijacked. Its parts are the handler and each hijacked connection; the
// last that ends releases the permit.
type request struct {
	permit admission.Permit
	parts  atomic.Int32
}

func (r *request) end() {
	if r.parts.Add(-1) == 0 {
		r.permit.Release()
	}
}

// find returns the T that [http.ResponseController] would use: w, or a ResponseWriter that it wraps.
func find[T any](w http.ResponseWriter) (found T, ok bool) {
	for {
		if found, ok = w.(T); ok {
			return found, true
		}
		wrapper, wraps := w.(interface{ Unwrap() http.ResponseWriter })
		if !wraps {
			return found, false
		}
		w = wrapper.Unwrap()
	}
}

// writer is the ResponseWriter of a handler that may hijack. ReadFrom (sendfile) and WriteString keep the original's.
type writer struct {
	http.ResponseWriter
	hijacker http.Hijacker
	request  *request
}

func (w *writer) Unwrap() http.ResponseWriter         { return w.ResponseWriter }
func (w *writer) ReadFrom(r io.Reader) (int64, error) { return io.Copy(w.ResponseWriter, r) }
func (w *writer) WriteString(s string) (written int, _ error) {
	return io.WriteString(w.ResponseWriter, s)
}

// WriteHeader closes the connection after a 413, which does not wait for the rest of the body then. [http.MaxBytesReader] tells
// net/http so, but only without a ResponseWriter around its own.
func (w *writer) WriteHeader(status int) {
	if status == http.StatusRequestEntityTooLarge {
		w.Header().Set("Connection", "close")
	}
	w.ResponseWriter.WriteHeader(status)
}

// Hijack returns a connection that is part of the request, from before anybody has it until it is closed.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c := &conn{request: w.request}
	c.request.parts.Add(1)
	defer func() {
		if c.Conn == nil { // it failed, or panicked
			c.request.end()
		}
	}()
	hijacked, buf, err := w.hijacker.Hijack()
	if hijacked == nil || err != nil {
		return hijacked, buf, err
	}
	c.Conn = hijacked
	return c, buf, nil
}

// flusher is a writer that can be flushed, also by an [http.ResponseController], which prefers FlushError.
type flusher struct{ *writer }

func (w flusher) Flush()            { _ = w.FlushError() }
func (w flusher) FlushError() error { return http.NewResponseController(w.ResponseWriter).Flush() }

// conn is a hijacked connection. It does not refer to the ResponseWriter, which it may outlive by days.
type conn struct {
	net.Conn
	request *request
	closed  atomic.Bool
}

// Close closes the connection. The first call ends its part of the request, once the connection is closed.
func (c *conn) Close() error {
	if !c.closed.Swap(true) {
		defer c.request.end()
	}
	return c.Conn.Close()
}

func (c *conn) CloseWrite() error                      { return closeWrite(c.Conn) }
func (c *conn) ReadFrom(r io.Reader) (int64, error)    { return io.Copy(c.Conn, r) } // splice
func (c *conn) WriteTo(w io.Writer) (n int64, _ error) { return io.Copy(w, c.Conn) }

// body is a response's body. It is over when there is no more to read, or when it is closed.
type body struct {
	io.ReadCloser
	permit admission.Permit
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.permit.Release() // before the caller knows
	}
	return n, err
}

func (b *body) Close() error {
	defer b.permit.Release()
	return b.ReadCloser.Close()
}

// stream is what the body is after 101 (Switching Protocols): the end of one direction is not the end of the request.
type stream struct {
	io.ReadWriteCloser
	permit admission.Permit
}

func (s *stream) Close() error {
	defer s.permit.Release()
	return s.ReadWriteCloser.Close()
}

func (s *stream) CloseWrite() error { return closeWrite(s.ReadWriteCloser) }

// closeWrite ends the writing direction of a connection, if it has two.
func closeWrite(c any) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return http.ErrNotSupported
}
