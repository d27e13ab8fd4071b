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
	"sync"
	"sync/atomic"
	"time"
)

// blameless is the error of a body that its client broke off, sends too slowly, or makes longer than an outer handler allows. It
// matches context.Canceled too, as if the client had left: whoever sends it on does not blame the dependency for it.
type blameless struct{ error }

func (e blameless) Unwrap() error      { return e.error }
func (blameless) Is(target error) bool { return target == context.Canceled }

// innocent is the error of a request that fails for its client's fault, cannot be sent on, or was not sent because its time was up. It
// matches context.Canceled as blameless does, and no timeout, whatever has noticed first.
type innocent struct{ error }

func (e innocent) Is(target error) bool {
	return target == context.Canceled || target != context.DeadlineExceeded && target != os.ErrDeadlineExceeded && errors.Is(e.error, target)
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

// A trip is one request of a handler's to somebody else, whose end may be the fault of the handler's client. The zero trip is of no
// handler.
type trip struct {
	e           *exchange
	host        string // who is asked
	began       time.Time
	read, wrote time.Duration // what the handler had waited for its client before,
	had         int64         // and read of his body, in bytes
	broken      bool          // as the client was before: whoever is asked then does not wait for him
	sends       bool          // a body, which may be the client's
	answers     bool          // with a body, which may be on its way to the client
	body        *sentBody     // what is sent, once it is watched; nil: nothing
}

// sentBody is the body of a request that is sent.
type sentBody struct {
	io.ReadCloser
	ctx    context.Context       // of the request
	failed atomic.Pointer[error] // it could not be read, which says nothing about who is asked
	closed atomic.Bool           // nobody wants more of it
}

// Read notes an error, but the end of the time that there is for the request.
func (b *sentBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case err == nil, errors.Is(err, io.EOF), errors.Is(err, http.ErrBodyReadAfterClose), b.closed.Load(),
		errors.Is(err, context.DeadlineExceeded) && b.ctx.Err() != nil:
	default:
		b.failed.CompareAndSwap(nil, &err)
	}
	return n, err
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
		watched = &sentBody{ReadCloser: req.Body, ctx: req.Context()}
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
func tripOf(ctx context.Context, req *http.Request) trip {
	e, served := ctx.Value(exchangeKey{}).(*exchange)
	if !served {
		return trip{}
	}
	now, host := time.Now(), ""
	if req.URL != nil {
		host = req.URL.Host
	}
	had, _ := e.reads().progress()
	return trip{
		e: e, host: host, began: now, read: e.reads().awayAt(now), wrote: e.writes.awayAt(now), had: had, broken: e.broken(),
		sends: req.Body != nil && req.Body != http.NoBody,
	}
}

// end returns the error of the trip, as an innocent one if it is the fault of the client whose request is served. An answer that is a
// failure may be that too. What the client has made wrong before excuses no failure of another trip.
func (t trip) end(resp *http.Response, err error) error {
	switch {
	case t.e == nil, err == nil && resp == nil:
		return err
	case err == nil && !isFailure(resp.StatusCode):
		t.e.m.hosts.answered(t.host)
		return nil
	case err == nil && t.keeps(nil):
		t.e.wrong.CompareAndSwap(0, http.StatusRequestTimeout)
		return nil
	case err == nil:
		if !t.fault(nil) {
			t.e.wrong.Store(0)
		}
		return nil
	}
	text, fault := err.Error(), t.fault(err)
	if slices.ContainsFunc(refusals, func(begins string) bool { return strings.HasPrefix(text, begins) }) {
		t.e.wrong.Store(http.StatusBadRequest)
		fault = true
	}
	if t.keeps(err) {
		t.e.wrong.CompareAndSwap(0, http.StatusRequestTimeout)
	}
	if why := t.unsent(); why != nil {
		t.unpack(why)
		fault = true
	}
	if !fault {
		t.e.wrong.Store(0)
		return err
	}
	return innocent{err}
}

// fault reports whether the client broke off meanwhile, has sent what cannot be sent on, or keeps whoever waits for it; err is nil if
// the trip has an answer.
func (t trip) fault(err error) bool {
	var of blameless
	var known innocent
	return t.e != nil && (!t.broken && (t.sends && t.e.reads().clientFault() || t.answers && t.e.writes.clientFault()) ||
		errors.As(err, &of) || errors.As(err, &known) || t.keeps(err))
}

// keeps reports whether the client is what took the time, of which there must be some unless err says that there was too little. Who has
// answered when the body was whole has not lost patience for it, who is late then may have, and so may who breaks off then and has
// answered somebody else meanwhile: nobody who has crashed does.
func (t trip) keeps(err error) bool {
	least, late := time.Second, err != nil && !errors.Is(err, errStatus) && t.e.m.hosts.haveAnswered(t.host, t.began)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		least, late = 0, !strings.Contains(err.Error(), "timeout awaiting response headers") // which begins when all is sent
	}
	return t.sends && t.e.reads().keeps(least, t.began, t.read, late) || t.answers && t.e.writes.keeps(least, t.began, t.wrote, true)
}

// hosts are those that requests are sent to, and when each has answered last.
type hosts struct {
	mu   sync.Mutex // guards last
	last map[string]time.Time
}

// There are so many at most, and names of so many bytes: a client may choose whom a handler asks.
const mostHosts, longestHost = 256, 260

func (h *hosts) answered(host string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last == nil {
		h.last = map[string]time.Time{}
	}
	if _, known := h.last[host]; !known {
		if len(h.last) == mostHosts || len(host) > longestHost {
			return
		}
		host = strings.Clone(host) // of a URL
	}
	h.last[host] = time.Now()
}

// haveAnswered reports whether one has answered since then.
func (h *hosts) haveAnswered(host string, since time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last[host].After(since)
}

// unpack notes that a body that is made of the client's could not be sent: the client's is too long, or not what it should be.
func (t trip) unpack(why error) {
	var of blameless
	var tooLarge *http.MaxBytesError
	switch read, _ := t.e.reads().progress(); {
	case read == t.had, errors.As(why, &of): // it is made of something else, or the client broke off
	case errors.As(why, &tooLarge):
		t.e.wrong.CompareAndSwap(0, http.StatusRequestEntityTooLarge)
	default:
		t.e.wrong.CompareAndSwap(0, http.StatusBadRequest)
	}
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
