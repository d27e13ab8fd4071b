// SPDX-License-Identifier: Apache-2.0

// Buffered handlers run on their own goroutine, and their answer is kept until they are done, so a client whose deadline
// passes is answered immediately. An answer for which there is no room is sent as it is written.

package wardenhttp

import (
	"bytes"
	"context"
	"errors"
	"log"
	"maps"
	"net/http"
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/internal/inflight"
	"github.com/stopbank/stopbank/warden/internal/timelimit"
)

// bufferedAnswer is an answer that has not been sent yet.
type bufferedAnswer struct {
	exchange *exchange
	header   http.Header
	done     chan struct{} // closed when the handler is done in time
	returned bool          // written before done is closed
	panicked any           // written before done is closed
	stack    []byte

	mu        sync.Mutex // guards all below
	status    int
	body      bytes.Buffer // its length is in Middleware.buffered
	streaming bool         // there was no room: what was kept has been sent, and the rest is sent as it is written
	abandoned bool         // the client was answered without the handler
	finished  bool         // the handler is done
	cause     error        // why the context had ended by then
}

// buffer calls the next handler and waits until it is done, its deadline passes or the client disconnects. Which of them came
// first is decided once.
func (e *exchange) buffer(w http.ResponseWriter, r *http.Request) {
	e.attach(w)
	defer e.detach()
	// a copy: the original's maps go on to outer handlers, while this handler may go on using them
	r = r.Clone(r.Context())
	if e.body != nil {
		e.body.copied = r.Trailer
	}
	k := &bufferedAnswer{exchange: e, header: w.Header().Clone(), done: make(chan struct{})}
	defer k.free()
	go k.run(e, r)
	select {
	case <-k.done:
	case <-r.Context().Done():
	}
	abandoned, cause := k.abandon(r.Context())
	if !abandoned {
		<-k.done
		cause = k.cause
		e.outer.MultipartForm, e.outer.Pattern = r.MultipartForm, r.Pattern
		if k.panicked != http.ErrAbortHandler || !timelimit.TimeIsUp(cause) { //nolint:errorlint // what net/http looks for
			k.repeatEnd()
		}
	}
	if k.streaming { // the handler is done
		k.sendHeader(e) // the trailers
		if timelimit.TimeIsUp(cause) {
			e.breakOff()
		}
		return
	}
	_, late := e.reads().state()
	switch {
	case timelimit.TimeIsUp(cause), errors.Is(late, context.DeadlineExceeded):
		e.outOfTime(w)
	case abandoned:
		e.answer(canceled(), cause)
	case k.status == 0 && errors.Is(late, ErrSlowPeer):
		e.answer(slowPeer(), late)
	default:
		k.send(e)
	}
}

// run calls the handler, and releases its slot when it is done.
func (k *bufferedAnswer) run(e *exchange, r *http.Request) {
	defer func() {
		v := recover()
		if v != nil {
			k.panicked, k.stack = v, debug.Stack()
		}
		if abandoned, _ := k.abandon(r.Context()); !abandoned {
			close(k.done)
			return
		}
		if r.MultipartForm != nil {
			_ = r.MultipartForm.RemoveAll() // as the server would
		}
		if v != nil && v != http.ErrAbortHandler { //nolint:errorlint // what net/http looks for
			logf(r, "wardenhttp: panic of a handler whose client was answered before: %v\n%s", v, k.stack)
		}
	}()
	inflight.Serve(e, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer k.finish(r.Context()) // before the slot is released, which ends the context
		defer e.reads().unwatch()
		e.next.ServeHTTP(w, r)
	}), k, r)
	k.returned = true
}

// finish records that the handler is done, and whether it was in time.
func (k *bufferedAnswer) finish(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.finished, k.cause = true, context.Cause(ctx)
	k.exchange.kept = k.status
}

// abandon ends the wait for the handler, unless it is done or has begun to answer. cause is that of the context's end, when the
// handler finished or now.
func (k *bufferedAnswer) abandon(ctx context.Context) (abandoned bool, cause error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.finished && !k.streaming {
		k.abandoned, k.cause = true, context.Cause(ctx)
	}
	return k.abandoned, k.cause
}

// repeatEnd repeats, on the request's own goroutine, the panic or runtime.Goexit of a handler that did not return.
func (k *bufferedAnswer) repeatEnd() {
	switch {
	case k.returned:
	case k.panicked == nil:
		runtime.Goexit()
	case k.panicked == http.ErrAbortHandler: //nolint:errorlint // what net/http looks for
		panic(k.panicked) //nolint:forbidigo // it is the handler's own
	default:
		panic(&bulkhead.PanicError{Value: k.panicked, Stack: k.stack}) //nolint:forbidigo // it is the handler's own
	}
}

// sendHeader puts the handler's headers, which began as those of the handlers around it, in their place.
func (k *bufferedAnswer) sendHeader(e *exchange) {
	clear(e.Header())
	maps.Copy(e.Header(), k.header)
}

// send writes the answer.
func (k *bufferedAnswer) send(e *exchange) {
	k.sendHeader(e)
	if k.status != 0 {
		e.WriteHeader(k.status)
	}
	if k.body.Len() > 0 {
		_, _ = e.Write(k.body.Bytes()) // on failure the client is gone
	}
}

// exchangeOf returns the exchange of the answer.
func (k *bufferedAnswer) exchangeOf() *exchange { return k.exchange }

// Header returns the headers of the answer.
func (k *bufferedAnswer) Header() http.Header { return k.header }

// WriteHeader keeps the first status.
func (k *bufferedAnswer) WriteHeader(status int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.setStatusLocked(status)
}

// setStatusLocked ignores informational statuses (1xx).
func (k *bufferedAnswer) setStatusLocked(status int) {
	if k.status == 0 && (status >= http.StatusOK || status < http.StatusContinue) { // net/http reports an invalid one
		k.status = status
	}
}

// Write keeps a copy of b. If there is no room for it, Write sends what was kept, and b, and from then on all that comes.
func (k *bufferedAnswer) Write(b []byte) (int, error) {
	held, streams, err := k.append(b)
	switch {
	case err != nil:
		return 0, err
	case held:
		return len(b), nil
	case streams:
		k.send(k.exchange)
		k.free()
	}
	return k.exchange.Write(b)
}

// append keeps a copy of b if there is room; otherwise streams is true, once: what was kept has to be sent now.
func (k *bufferedAnswer) append(b []byte) (held, streams bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.abandoned {
		return false, false, http.ErrHandlerTimeout
	}
	k.setStatusLocked(http.StatusOK)
	if k.streaming {
		return false, false, nil
	}
	m, n := k.exchange.m, int64(len(b))
	if m.buffered.Add(n) > int64(m.cfg.BufferTotal) || k.body.Len()+len(b) > m.cfg.BufferPerAnswer {
		m.buffered.Add(-n)
		k.streaming = true
		return false, true, nil
	}
	k.body.Write(b)
	return true, false, nil
}

// free gives back the memory of the answer.
func (k *bufferedAnswer) free() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.exchange.m.buffered.Add(-int64(k.body.Len()))
	k.body = bytes.Buffer{}
}

// logf writes to the server's error log.
func logf(r *http.Request, format string, args ...any) {
	if s := serverOf(r); s != nil && s.ErrorLog != nil {
		s.ErrorLog.Printf(format, args...)
		return
	}
	log.Printf(format, args...)
}
