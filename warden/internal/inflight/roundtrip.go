// SPDX-License-Identifier: Apache-2.0

// The client's side: a request is in flight until nothing more of its response can come.

package inflight

import (
	"context"
	"io"
	"net/http"
)

// RoundTrip sends the request through base, and ends the permit when
//
//   - base returns an error, no response or no body, panics or calls runtime.Goexit;
//   - or the response has come and can have no body: its Body is http.NoBody, its status is 204 or 304, or the request
//     was a HEAD;
//   - or a Read of the response's body returns an error, io.EOF included;
//   - or the body is closed.
//
// After 101 (Switching Protocols) the body is an io.ReadWriteCloser, with CloseWrite, and only Close ends the permit: the
// end of what the other side sends is not the end of what this side does. Informational responses end nothing.
//
// RoundTrip blocks as long as base does, does not modify the request and allocates one small body.
func RoundTrip[P Permit](permit P, base http.RoundTripper, req *http.Request) (*http.Response, error) {
	ctx := contextOf(req)
	failure, status, follows := errAborted, 0, false
	defer func() {
		if !follows {
			permit.End(Outcome{Err: under(ctx, failure), Status: status})
		}
	}()
	resp, err := base.RoundTrip(req)
	failure = err
	if err != nil || resp == nil {
		return resp, err
	}
	status = resp.StatusCode
	if bodiless(req, resp) {
		return resp, nil
	}
	follows = true
	if stream, ok := resp.Body.(io.ReadWriteCloser); ok && status == http.StatusSwitchingProtocols {
		resp.Body = &upgraded[P]{ReadWriteCloser: stream, held: held[P]{permit: permit}}
	} else {
		resp.Body = &body[P]{ReadCloser: resp.Body, held: held[P]{permit: permit}, ctx: ctx, status: status}
	}
	return resp, nil
}

// bodiless reports whether resp has nothing to read. Only HTTP/1 marks that with http.NoBody; the method and the status
// (RFC 9110, 6.4.1) say it for HTTP/2 too.
func bodiless(req *http.Request, resp *http.Response) bool {
	return resp.Body == nil || resp.Body == http.NoBody || req.Method == http.MethodHead ||
		resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusNotModified
}

// body is a response's body.
type body[P Permit] struct {
	io.ReadCloser
	held   held[P]
	ctx    context.Context
	status int
}

// Read ends the permit when there is no more to read, before the caller knows.
func (b *body[P]) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch err {
	case nil:
	case io.EOF:
		b.end(nil)
	default:
		b.end(err)
	}
	return n, err
}

// Close closes the body and then ends the permit.
func (b *body[P]) Close() error {
	defer b.end(nil)
	return b.ReadCloser.Close()
}

func (b *body[P]) end(err error) { b.held.end(Outcome{Err: under(b.ctx, err), Status: b.status}) }

// upgraded is the two-way stream after 101.
type upgraded[P Permit] struct {
	io.ReadWriteCloser
	held held[P]
}

// Close closes the stream and then ends the permit.
func (u *upgraded[P]) Close() error {
	defer u.held.end(Outcome{Status: http.StatusSwitchingProtocols, Upgraded: true})
	return u.ReadWriteCloser.Close()
}

// CloseWrite ends the writing direction, if the stream can.
func (u *upgraded[P]) CloseWrite() error { return closeWrite(u.ReadWriteCloser) }
