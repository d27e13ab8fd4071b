// SPDX-License-Identifier: Apache-2.0

// What a request that may outlive its caller has of the caller's, and the moment from which on it touches none of it.

package wardenhttp

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/stopbank/stopbank/warden/internal/inflight"
)

// errLoanOver is the error of a body whose owner has got it back.
var errLoanOver = errors.New("wardenhttp: the request's caller is gone, and its body with it")

// loan is what a sent request has of its caller's: the body, and the hooks of a trace. After end none of it is in use, nor will be:
// servers, proxies and frameworks give its memory to other requests as soon as the caller returns. Headers, trailers and URL are
// copies. It is the context of what is sent, with the caller's values.
type loan struct {
	context.Context
	cancel func()
	caller *http.Request

	over  atomic.Bool
	using sync.RWMutex // held for reading while the base is in the caller's code, perhaps for long

	mu      sync.Mutex  // guards all below
	body    *lentBody   // the last one; nil: there is none
	dials   bool        // the base waits for a connection
	unwatch func() bool // of the caller's context, while the answer is read; nil: not watched
}

// lend returns the request to send in place of req, without its end, and what it has of req.
func lend(req *http.Request) (*http.Request, *loan) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(req.Context()))
	l := &loan{Context: ctx, cancel: cancel, caller: req}
	out := l.request(httptrace.WithClientTrace(l, &httptrace.ClientTrace{
		GetConn: func(string) { l.dialing(true) },
		GotConn: func(httptrace.GotConnInfo) { l.dialing(false) },
	}))
	out.Cancel = nil //nolint:staticcheck // it ends the caller's wait
	return out, l
}

// request returns the request to send in place of the caller's.
func (l *loan) request(ctx context.Context) *http.Request {
	req, out := l.caller, l.caller.Clone(ctx)
	if req.Body != nil && req.Body != http.NoBody {
		out.Body = l.lend(req.Body, out.Trailer)
	}
	if req.GetBody != nil {
		out.GetBody = func() (io.ReadCloser, error) {
			l.using.RLock()
			defer l.using.RUnlock()
			if l.over.Load() {
				return nil, errLoanOver
			}
			body, err := req.GetBody()
			if err != nil {
				return nil, err
			}
			return l.lend(body, out.Trailer), nil
		}
	}
	return out
}

func (l *loan) lend(body io.ReadCloser, trailer http.Header) *lentBody {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.body = &lentBody{loan: l, body: body, trailer: trailer, left: l.caller.ContentLength, close: sync.OnceValue(body.Close)}
	return l.body
}

// dialing records that the base waits for a connection, or has one. It gets none for a caller that is gone.
func (l *loan) dialing(is bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dials = is; is && l.over.Load() {
		l.cancel()
	}
}

// sent reports whether the base has taken all of the request that is the caller's.
func (l *loan) sent() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.dials && (l.body == nil || l.body.whole.Load())
}

// watch lets the answer end with the caller's context.
func (l *loan) watch() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over.Load() {
		l.unwatch = context.AfterFunc(l.caller.Context(), l.cancel)
	}
}

// end ends the loan, and waits for a Read of the body, which Close ends, as http.Request says.
func (l *loan) end() {
	l.over.Store(true)
	l.closeBody()
	l.using.Lock() // the last reader is gone
	defer l.using.Unlock()
	l.closeBody() // one that GetBody returned meanwhile
}

// closeBody closes the last body. Whoever has read it knows what was wrong with it.
func (l *loan) closeBody() {
	l.mu.Lock()
	body := l.body
	l.mu.Unlock()
	if body != nil {
		_ = body.close()
	}
}

// End is called when nothing more of the answer can come: what of the request was not read by then is not wanted. It does not
// wait: a Read may, for a client that waits for this answer.
func (l *loan) End(inflight.Outcome) {
	l.over.Store(true)
	l.cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unwatch != nil {
		l.unwatch()
	}
}

// Value returns the caller's values, with a trace that says nothing to a caller that is gone.
func (l *loan) Value(key any) any {
	v := l.Context.Value(key)
	if trace, ok := v.(*httptrace.ClientTrace); ok {
		return l.quiet(trace)
	}
	return v
}

// quiet returns a trace with hooks that do nothing after end.
func (l *loan) quiet(trace *httptrace.ClientTrace) *httptrace.ClientTrace {
	lent := new(httptrace.ClientTrace)
	from, to := reflect.ValueOf(trace).Elem(), reflect.ValueOf(lent).Elem()
	for i := range from.NumField() {
		hook := from.Field(i)
		if hook.IsNil() {
			continue
		}
		to.Field(i).Set(reflect.MakeFunc(hook.Type(), func(args []reflect.Value) (results []reflect.Value) {
			l.using.RLock()
			defer l.using.RUnlock()
			if !l.over.Load() {
				return hook.Call(args)
			}
			for i := range hook.Type().NumOut() {
				results = append(results, reflect.Zero(hook.Type().Out(i)))
			}
			return results
		}))
	}
	return lent
}

// lentBody is a body of the caller's.
type lentBody struct {
	loan    *loan
	body    io.Reader
	trailer http.Header  // of the request that is sent
	close   func() error // once
	left    int64        // bytes, as the request says; not above 0: unknown
	whole   atomic.Bool  // all of it was read,
	ended   atomic.Bool  // and its end
}

// Read reads the body until the loan is over. At the body's end the trailers are known.
func (b *lentBody) Read(p []byte) (int, error) {
	b.loan.using.RLock()
	defer b.loan.using.RUnlock()
	switch {
	case b.ended.Load():
		return 0, io.EOF // net/http looks for more than the length
	case b.loan.over.Load():
		return 0, b.late()
	}
	n, err := b.body.Read(p)
	if b.loan.over.Load() { // what it has read may be somebody else's by now
		return 0, b.late()
	}
	if b.left -= int64(n); err == nil && b.left == 0 && n > 0 { // a client over HTTP/2 may send all and no end
		if b.whole.Store(true); len(b.trailer) == 0 {
			err = io.EOF
		}
	}
	if errors.Is(err, io.EOF) {
		b.whole.Store(true)
	}
	if errors.Is(err, io.EOF) && !b.ended.Swap(true) && b.trailer != nil {
		clear(b.trailer)
		maps.Copy(b.trailer, b.loan.caller.Trailer.Clone())
	}
	return n, err
}

// late is the error of a Read after the loan: the other side has all of the body if that had its length, and works on.
func (b *lentBody) late() error {
	if b.whole.Load() {
		return io.EOF
	}
	return errLoanOver
}

// Close closes the body, once.
func (b *lentBody) Close() error { return b.close() }
