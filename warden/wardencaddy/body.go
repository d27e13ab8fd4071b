// SPDX-License-Identifier: Apache-2.0

// The body of a request on its way through reverse_proxy, whose buffers are for the next requests as soon as it is closed.

package wardencaddy

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
)

// uploadVar is the variable of a request that has its upload.
const uploadVar = "stopbank.upload"

// upload is the body as the client sends it.
type upload struct {
	io.ReadCloser
	closed atomic.Bool
	lent   bool // to an attempt; else reverse_proxy has all of it, and may send it again
}

// Close closes the body.
func (u *upload) Close() error {
	u.closed.Store(true)
	return u.ReadCloser.Close()
}

// attempt returns the body of an attempt to send the request, in place of reverse_proxy's: of a body that request_buffers holds
// in part, each Close would give the memory to other requests, though a Read may be in it and the next attempt reads it again.
func (u *upload) attempt(body io.ReadCloser) io.ReadCloser {
	if u.lent = u.lent || !u.closed.Load(); u.lent {
		return &attempt{Reader: body, upload: u}
	}
	return body
}

// attempt is the body of one attempt. Its Close leaves the buffer to the garbage collector.
type attempt struct {
	io.Reader
	upload *upload
	begun  atomic.Bool // the next attempt would not have all of it
}

// Read reads the body unless an earlier attempt has read of it.
func (a *attempt) Read(p []byte) (int, error) {
	first := !a.begun.Swap(true)
	if a.upload.closed.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := a.Reader.Read(p)
	if first && n == 0 && errors.Is(err, io.EOF) {
		a.begun.Store(false) // it is empty for each attempt
	}
	return n, err
}

// Close ends the upload if some of it was read.
func (a *attempt) Close() error {
	if a.begun.Load() {
		return a.upload.Close()
	}
	return nil
}
