// SPDX-License-Identifier: Apache-2.0

// The request's body as its handler reads it, and what of it is left unread.

package wardenhttp

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"reflect"
	"sync"
)

// upload is the request's body as the handler reads it.
type upload struct {
	io.ReadCloser
	reads   direction
	trailer http.Header // of the request; its server fills it in at the end
	copied  http.Header // to be filled in then too, if not nil
	// held for reading while ReadCloser is in use: after the exchange, its memory may be another request's
	mu sync.RWMutex
}

// Read reads the body under the client's time limit.
func (u *upload) Read(b []byte) (n int, err error) {
	u.mu.RLock()
	defer u.mu.RUnlock()
	began, err := u.reads.beginWait()
	if err == nil {
		n, err = u.ReadCloser.Read(b)
		err = u.reads.endWait(began, int64(n), err)
	}
	if errors.Is(err, io.EOF) {
		u.reads.e.stream.Load().Asked()
		maps.DeleteFunc(u.trailer, noTrailer) // net/http adds whatever comes
		if u.copied != nil {
			maps.Copy(u.copied, u.trailer)
		}
		return n, err
	}
	if err != nil && u.reads.clientFault() {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			u.reads.e.wrong.Store(http.StatusRequestEntityTooLarge) // for an outer handler
		}
		return n, blameless{err}
	}
	return n, err
}

// Close ends reading. The body itself is its server's, which closes it when the handler is done, and waits for the client then.
func (u *upload) Close() error {
	u.reads.shutDown()
	return nil
}

// unread reports whether net/http, over HTTP/1, waits for more of r's body. Only then is a deadline for the rest one for that, see
// [direction.stop]: an outer handler may have read the body, or put another one in its place.
func unread(r *http.Request) bool {
	of := reflect.TypeOf(r.Body)
	if r.ProtoMajor != 1 || r.ContentLength == 0 || of == nil || of.Kind() != reflect.Pointer || of.Elem().PkgPath() != "net/http" {
		return false
	}
	switch name := of.Elem().Name(); {
	case name == "body" && r.ContentLength > 0:
		_, end := r.Body.Read(nil)
		return end == nil
	case name == "body", name == "expectContinueReader": // a Read of nothing may wait for a chunk, or ask the client for the body
		return r.Form == nil
	}
	return false
}

// rested reports whether net/http waits for more of a body that nobody reads.
func (e *exchange) rested() bool {
	if e.body == nil || !e.body.mu.TryLock() {
		return false
	}
	defer e.body.mu.Unlock()
	return unread(e.outer)
}

// closeUnread closes the connection after an answer that does not need the body, if the rest of that is long: net/http would read
// up to 256 KiB of it before it sends the answer. So it does if nobody may read the body any more. (http.MaxBytesReader tells net/http
// so, but only without a ResponseWriter around its own.)
func (e *exchange) closeUnread(status int) {
	bytes, eof := e.reads().progress()
	_, over := e.reads().state()
	long := e.outer.ContentLength < 0 || e.outer.ContentLength-bytes > maxUnread || status == http.StatusRequestEntityTooLarge
	if e.closes = e.reads().isCut() || !eof && (over != nil || long && status >= http.StatusMultipleChoices); e.closes {
		e.Header().Set("Connection", "close")
	}
	e.drains = !e.closes && !eof
}
