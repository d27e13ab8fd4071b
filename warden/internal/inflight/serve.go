// SPDX-License-Identifier: Apache-2.0

// The server's side: a handler and the connections that it hijacks are one request, which ends with the last of them.

package inflight

import (
	"net/http"
	"sync/atomic"
)

// Serve calls next, and ends the permit when the request has ended: when next is done, whichever way, and the connection
// that it hijacked, if it did, has been closed. A panic or runtime.Goexit passes through with its stack whole. The
// outcome's error is set when next is done; what happens on a hijacked connection afterwards is not judged.
//
// The ResponseWriter that next gets is w where there is nothing to hijack, as in HTTP/2. Where there is, it works with
// [http.ResponseController], and is an http.Hijacker, io.ReaderFrom (sendfile) and io.StringWriter, and an http.Flusher if
// w is; the deprecated http.CloseNotifier is not passed on. A hijacked connection is a net.Conn with CloseWrite, and not a
// *net.TCPConn or *tls.Conn.
//
// Serve makes one small allocation, two where there is something to hijack, and one for a hijacked connection.
func Serve[P Permit](permit P, next http.Handler, w http.ResponseWriter, r *http.Request) {
	s := &served[P]{held: held[P]{permit: permit}, err: errAborted}
	s.join()
	ctx := contextOf(r)
	defer func() {
		s.err = under(ctx, s.err) // net/http cancels it only afterwards: if it has ended, the client is gone or time is up
		s.leave(false)
	}()
	next.ServeHTTP(watch(w, s), r)
	s.err = nil
}

// A request has parts: its handler, and each connection that was hijacked. The last to leave ends the permit, and a part
// leaves once.
type request interface {
	join()
	leave(upgraded bool)
}

// served is a request with its permit.
type served[P Permit] struct {
	held     held[P]
	err      error        // how the handler ended; written before it leaves
	upgraded atomic.Bool  // a connection was part of it
	parts    atomic.Int32 // orders all of this before the end
}

func (s *served[P]) join() { s.parts.Add(1) }

func (s *served[P]) leave(upgraded bool) {
	if upgraded {
		s.upgraded.Store(true)
	}
	if s.parts.Add(-1) == 0 {
		s.held.end(Outcome{Err: s.err, Upgraded: s.upgraded.Load()})
	}
}
