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
)

// kept is an answer that has not been sent yet.
type kept struct {
	of       *exchange
	header   http.Header
	done     chan struct{} // closed when the handler is done in time
	returned bool          // written before done is closed
	panicked any           // written before done is closed
	stack    []byte

	mu     sync.Mutex // guards all below
	status int
	body   bytes.Buffer // its length is in Middleware.kept
	sent   bool         // there was no room: what was kept has been sent, and the rest is not kept
	left   bool         // the client was answered without the handler
	ended  bool         // the handler is done
	over   error        // why the context had ended by then; a cause, because an untrusted client's deadline shows as Canceled
}

// buffer calls the next handler and waits until it is done, its deadline passes or the client disconnects. Which of them came
// first is decided once.
func (e *exchange) buffer(w http.ResponseWriter, r *http.Request) {
	e.attach(w)
	defer e.detach()
	k := &kept{of: e, header: http.Header{}, done: make(chan struct{})}
	defer k.free()
	go k.run(e, r)
	select {
	case <-k.done:
	case <-r.Context().Done():
	}
	left, over := k.leave(r.Context())
	if !left {
		<-k.done
		e.asked.MultipartForm, e.asked.Pattern = r.MultipartForm, r.Pattern
		k.pass()
	}
	if k.sent { // nobody writes it any more
		maps.Copy(e.Header(), k.header) // the trailers
		return
	}
	_, late := e.in.state()
	switch {
	case errors.Is(over, context.DeadlineExceeded), errors.Is(late, context.DeadlineExceeded):
		e.outOfTime(w)
	case left:
		e.answer(canceled(), over)
	case k.status == 0 && errors.Is(late, ErrSlowPeer):
		e.answer(slowPeer(), late)
	default:
		k.send(e)
	}
}

// run calls the handler, and releases its slot when it is done.
func (k *kept) run(e *exchange, r *http.Request) {
	defer func() {
		v := recover()
		if v != nil {
			k.panicked, k.stack = v, debug.Stack()
		}
		if left, _ := k.leave(r.Context()); !left {
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
		defer k.end(r.Context()) // before the slot is released, which ends the context
		defer e.unwatch()
		e.h.next.ServeHTTP(w, r)
	}), k, r)
	k.returned = true
}

// end records that the handler is done, and whether it was in time.
func (k *kept) end(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ended, k.over = true, context.Cause(ctx)
}

// leave ends the wait for the handler, unless it is done or has begun to answer; over is the cause of the context's end, then or
// now.
func (k *kept) leave(ctx context.Context) (left bool, over error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.ended && !k.sent {
		k.left, k.over = true, context.Cause(ctx)
	}
	return k.left, k.over
}

// pass repeats the end of a handler that did not return: its panic or runtime.Goexit.
func (k *kept) pass() {
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

// send writes the answer.
func (k *kept) send(e *exchange) {
	maps.Copy(e.Header(), k.header)
	if k.status != 0 {
		e.WriteHeader(k.status)
	}
	if k.body.Len() > 0 {
		_, _ = e.Write(k.body.Bytes()) // on failure the client is gone
	}
}

// serves returns the exchange that k is an answer of.
func (k *kept) serves() *exchange { return k.of }

// Header returns the headers of the answer.
func (k *kept) Header() http.Header { return k.header }

// WriteHeader keeps the first status.
func (k *kept) WriteHeader(status int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.setStatus(status)
}

// setStatus ignores informational statuses (1xx). The caller holds mu.
func (k *kept) setStatus(status int) {
	if k.status == 0 && (status >= http.StatusOK || status < http.StatusContinue) { // net/http reports an invalid one
		k.status = status
	}
}

// Write keeps a copy of b. If there is no room for it, Write sends what was kept, and b, and from then on all that comes.
func (k *kept) Write(b []byte) (int, error) {
	held, begins, err := k.hold(b)
	switch {
	case err != nil:
		return 0, err
	case held:
		return len(b), nil
	case begins:
		k.send(k.of)
		k.free()
	}
	return k.of.Write(b)
}

// hold keeps a copy of b if there is room; otherwise begins is true, once.
func (k *kept) hold(b []byte) (held, begins bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.left {
		return false, false, http.ErrHandlerTimeout
	}
	k.setStatus(http.StatusOK)
	if k.sent {
		return false, false, nil
	}
	m, n := k.of.h.Middleware, int64(len(b))
	if m.kept.Add(n) > int64(m.cfg.BufferTotal) || k.body.Len()+len(b) > m.cfg.BufferPerAnswer {
		m.kept.Add(-n)
		k.sent = true
		return false, true, nil
	}
	k.body.Write(b)
	return true, false, nil
}

// free gives back the room of what was kept.
func (k *kept) free() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.of.h.kept.Add(-int64(k.body.Len()))
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
