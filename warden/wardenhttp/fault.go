// SPDX-License-Identifier: Apache-2.0

// What a client has made wrong, of which those learn nothing whom its request is sent on to.

package wardenhttp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stopbank/stopbank/warden/internal/patience"
)

// blameless is the error of a body that its client broke off, sends too slowly, or makes longer than an outer handler allows. It
// matches context.Canceled too, as if the client had left: whoever sends it on does not blame the dependency for it.
type blameless struct{ error }

func (e blameless) Unwrap() error      { return e.error }
func (blameless) Is(target error) bool { return target == context.Canceled }

// innocent is the error of a request that fails for its client's fault, cannot be sent on, or was not sent because its time was up. It
// matches context.Canceled as blameless does, unless it was made for nobody's request, and no timeout, whatever has noticed first.
type innocent struct {
	error
	served bool
}

func (e innocent) Is(target error) bool {
	if target == context.Canceled && e.served {
		return true
	}
	return target != context.DeadlineExceeded && target != os.ErrDeadlineExceeded && errors.Is(e.error, target)
}

func (e innocent) As(target any) bool {
	_, tells := reflect.TypeOf(target).Elem().MethodByName("Timeout")
	return !tells && errors.As(e.error, target)
}

// refusals is how net/http begins to say that a request cannot be sent for what is in it: a trailer whose name is none, or over HTTP/2
// an Upgrade, a URL without a path, a host that is none, or more headers than the other side takes. The errors have no types.
var refusals = []string{ //nolint:gochecknoglobals // constant
	"net/http: invalid ", "http: invalid Host", "idna: ", "http2: idna: ", "http2: invalid ", "http2: request header list larger ",
}

func refusedUnsent(err error) bool {
	text := err.Error()
	return slices.ContainsFunc(refusals, func(begins string) bool { return strings.HasPrefix(text, begins) })
}

// A trip is one request to somebody else, whose end may be the fault of the client whose request is served. The zero trip is of none.
type trip struct {
	patience.Trip
	e      *exchange // of HTTP; nil: it is served otherwise, or there is none
	had    int64     // read of the client's body before, in bytes
	broken bool      // as the client was before: whoever is asked then does not wait for him
	both   bool      // sides may wait for the other: nobody knows who does
	body   *sentBody // what is sent, once it is watched; nil: nothing
}

// sentBody is the body of a request that is sent.
type sentBody struct {
	io.ReadCloser
	ctx    context.Context       // of the request
	began  time.Time             // of sending it
	failed atomic.Pointer[error] // it could not be read, which says nothing about who is asked
	closed atomic.Bool           // nobody wants more of it
	reads  patience.Clock
}

// Read notes an error, but the end of the time that there is for the request.
func (b *sentBody) Read(p []byte) (int, error) {
	b.reads.Begin(time.Now())
	n, err := b.ReadCloser.Read(p)
	b.reads.End(time.Now(), false)
	switch {
	case err == nil, errors.Is(err, io.EOF), errors.Is(err, http.ErrBodyReadAfterClose), b.closed.Load(),
		errors.Is(err, context.DeadlineExceeded) && b.ctx.Err() != nil:
	default:
		b.failed.CompareAndSwap(nil, &err)
	}
	return n, err
}

// kept reports whether who is asked has waited for the body in most of the last second, or of all. Nobody knows of a body that is not
// watched.
func (b *sentBody) kept() bool {
	if b == nil {
		return true
	}
	now := time.Now()
	w := b.reads.By(now)
	return w.Lately || 2*w.Took >= now.Sub(b.began)
}

// Close closes the body.
func (b *sentBody) Close() error {
	b.closed.Store(true)
	return b.ReadCloser.Close()
}

// watch returns the trip of the request to send, whose body is watched, and that request.
func (t trip) watch(req *http.Request) (trip, *http.Request) {
	if req.Body == nil || req.Body == http.NoBody {
		return t, req
	}
	watched, is := req.Body.(*sentBody)
	if !is {
		watched = &sentBody{ReadCloser: req.Body, ctx: req.Context(), began: time.Now()}
		req = req.WithContext(req.Context())
		req.Body = watched
	}
	t.body = watched
	return t, req
}

// unsent returns why the body could not be sent; nil: it could, so far.
func (t trip) unsent() error {
	if t.body == nil {
		return nil
	}
	if err := t.body.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// tripOf begins the trip of req in this context.
func tripOf(ctx context.Context, req *http.Request) (t trip) {
	host := ""
	if req.URL != nil {
		host = req.URL.Host
	}
	if t.Trip = patience.Begin(ctx, host); t.Served == nil {
		return t
	}
	t.Sends = req.Body != nil && req.Body != http.NoBody
	if e, is := t.Served.(*exchange); is {
		t.e, t.broken = e, e.broken()
		t.had, _ = e.reads().progress()
		t.both = isStream(req.Header) || req.ContentLength <= 0 && e.outer != nil && e.outer.ProtoMajor > 1
	}
	return t
}

// end returns the error of the trip, as an innocent one if it is the fault of the client whose request is served, or not sent for what is
// in it. An answer that is a failure may be that too. What the client has made wrong before excuses no failure of another trip.
func (t trip) end(resp *http.Response, err error) error {
	refused := err != nil && refusedUnsent(err)
	switch {
	case err == nil && resp == nil:
		return nil
	case err == nil && !isFailure(resp.StatusCode):
		if resp.StatusCode < http.StatusBadRequest {
			patience.Answered(t.Host)
		}
		return nil
	case t.Served == nil && refused:
		return innocent{err, false}
	case t.Served == nil:
		return err
	}
	kept := t.keeps(err)
	fault := t.fault(err) || kept || refused
	if refused {
		t.Fault(http.StatusBadRequest)
	}
	if kept {
		t.Fault(http.StatusRequestTimeout)
	}
	if why := t.unsent(); why != nil && err != nil {
		t.unpack(why)
		fault = true
	}
	if !fault {
		t.Fault(0)
	}
	if !fault || err == nil {
		return err
	}
	return innocent{err, true}
}

// fault reports whether the client broke off meanwhile, or has sent what cannot be sent on; err is nil if the trip has an answer.
func (t trip) fault(err error) bool {
	var of blameless
	var known innocent
	return t.e != nil && !t.broken && (t.Sends && t.e.reads().clientFault() || t.Answers && t.e.writes.clientFault()) ||
		errors.As(err, &of) || errors.As(err, &known)
}

// keeps reports whether the client is what took the time. Who has answered when the body was whole has not lost patience for it, who is
// late then may have, and so may who breaks off then and has answered somebody else meanwhile: nobody who has crashed does. Where each side
// may wait for the other, that is asked of all.
func (t trip) keeps(err error) bool {
	var known innocent
	if errors.As(err, &known) {
		return false // it has been asked
	}
	t.Sends = t.Sends && t.body.kept()
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return t.Keeps(true, !strings.Contains(err.Error(), "timeout awaiting response headers")) && (!t.both || t.Excuse()) // which begins when all is sent
	case t.Keeps(false, false):
		return !t.both || t.Excuse()
	case err == nil, errors.Is(err, errStatus):
		return false
	}
	return t.Keeps(false, true) && t.Excuse()
}

// unpack notes that a body that is made of the client's could not be sent: the client's is too long, or not what it should be.
func (t trip) unpack(why error) {
	if t.e == nil {
		return
	}
	var of blameless
	var tooLarge *http.MaxBytesError
	switch read, _ := t.e.reads().progress(); {
	case read == t.had, errors.As(why, &of): // it is made of something else, or the client broke off
	case errors.As(why, &tooLarge):
		t.Fault(http.StatusRequestEntityTooLarge)
	default:
		t.Fault(http.StatusBadRequest)
	}
}

// Fault is patience.Served's.
func (e *exchange) Fault(status int) {
	if status == 0 {
		e.wrong.Store(0)
		return
	}
	e.wrong.CompareAndSwap(0, int32(status)) //nolint:gosec // a status of HTTP
}

// Waits is patience.Served's.
func (e *exchange) Waits(now time.Time) (body, answer patience.Waits) {
	return e.reads().waits(now), e.writes.waits(now)
}

// broken reports whether the client broke off, or was cut off because it was too slow.
func (e *exchange) broken() bool { return e.reads().clientFault() || e.writes.clientFault() }

// noTrailer reports whether nobody sends a trailer on: its name is none (RFC 9110, 5.6.2), or says how the message is sent, which an
// upstream over HTTP/2 takes for a fault of the proxy's. net/http's servers take any.
func noTrailer(name string, _ []string) bool {
	switch name {
	case "", "Connection", "Content-Length", "Host", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade":
		return true
	}
	return strings.ContainsFunc(name, func(c rune) bool {
		return c <= ' ' || c > '~' || strings.ContainsRune("\"(),/:;<=>?@[\\]{}", c)
	})
}

// unprintable reports whether a header's value has characters beside those of ASCII's text.
func unprintable(value string) bool {
	return strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c > '~' })
}
