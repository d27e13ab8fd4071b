// SPDX-License-Identifier: Apache-2.0

// How a request that has ended counts, here and where it is sent from: its time as the service's (H9), its client as not served (Q22,
// H30), its end as a failure (Q23, H31), and what a breaker is told (H14).

package wardenhttp_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// An auditor sees what a warden measures.
type auditor struct{ counted, abandoned uint64 }

func (a *auditor) Step(s monitor.Sample) decision.ControlDecision {
	a.counted += s.Service.Count
	a.abandoned += s.Service.Abandoned
	return decision.ControlDecision{Seq: 1, TargetConcurrency: 1}
}

// A fuse is a breaker that notes what it is told.
type fuse struct {
	mu   sync.Mutex
	open error
	told []error
}

func (f *fuse) Allow() (func(error), error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open != nil {
		return nil, f.open
	}
	return func(err error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.told = append(f.told, err)
	}, nil
}

// errAny is any error that is a result, and not that somebody has left.
var errAny = errors.New("any")

// An account is what is noted of a request: in the monitor, in the limiter's counters, and by a breaker.
type account struct {
	counted, abandoned, unserved, failed uint64
	told                                 error
}

// counts makes one request under a warden, which notes all but what a breaker is told, and one in a compartment with a breaker.
func counts(t *testing.T, want account, request func(t *testing.T, w *warden.Warden, c *bulkhead.Compartment)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a := new(auditor)
		w := must(warden.New(warden.Config{Controller: a, Limiter: limiter.Config{Initial: a.Step(monitor.Sample{})}}))(t)
		request(t, w, nil)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		w.SampleIfDue()
		s := w.Limiter().Stats()
		got := account{a.counted, a.abandoned, s.Abandoned, s.Failed, want.told}
		if got != want || s.Running != 0 || s.Executed != 1 {
			t.Errorf("H9, H30, H31: %+v, want %+v; %d run, %d have ended", got, want, s.Running, s.Executed)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		f := new(fuse)
		c := compartment(t, bulkhead.CompartmentConfig{Breaker: f})
		request(t, nil, c)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if len(f.told) != 1 || c.Snapshot().InFlight != 0 {
			t.Fatalf("H14: the breaker was told %v, %d in flight", f.told, c.Snapshot().InFlight)
		}
		if got := f.told[0]; !errors.Is(got, want.told) && (want.told != errAny || got == nil || bulkhead.IsExcluded(got)) {
			t.Errorf("H14: the breaker was told %v, want %v", got, want.told)
		}
	})
}

// maybe is Config.Compartment of requests that may have none.
func maybe(c *bulkhead.Compartment) func(*http.Request) *bulkhead.Compartment {
	if c == nil {
		return nil
	}
	return in(c)
}

// An act is something that a handler does. leave lets its client leave.
type act func(w http.ResponseWriter, r *http.Request, leave func())

func TestHowAHandledRequestCounts(t *testing.T) {
	writes := func(w http.ResponseWriter, _ *http.Request, _ func()) { _, _ = io.WriteString(w, "here") }
	says := func(status int) act {
		return func(w http.ResponseWriter, _ *http.Request, _ func()) { w.WriteHeader(status) }
	}
	flushes := func(w http.ResponseWriter, _ *http.Request, _ func()) { _ = http.NewResponseController(w).Flush() }
	reads := func(_ http.ResponseWriter, r *http.Request, _ func()) { _, _ = io.Copy(io.Discard, r.Body) }
	waits := func(_ http.ResponseWriter, r *http.Request, _ func()) { <-r.Context().Done() }
	left := func(_ http.ResponseWriter, r *http.Request, leave func()) { leave(); <-r.Context().Done() }
	panics := func(http.ResponseWriter, *http.Request, func()) { panic("on purpose") }
	aborts := func(http.ResponseWriter, *http.Request, func()) { panic(http.ErrAbortHandler) }
	exits := func(http.ResponseWriter, *http.Request, func()) { runtime.Goexit() }
	hijacks := func(w http.ResponseWriter, _ *http.Request, _ func()) {
		if c, _, err := http.NewResponseController(w).Hijack(); err != nil || c.Close() != nil {
			panic(err)
		}
	}
	bounded := wardenhttp.Config{Timeout: time.Second}
	buffered := wardenhttp.Config{Timeout: time.Second, Buffered: true}
	done, failed := account{counted: 1}, account{counted: 1, failed: 1, told: errAny}
	ended := account{abandoned: 1, unserved: 1, told: context.DeadlineExceeded}
	gone := account{abandoned: 1, unserved: 1, told: context.Canceled}
	for name, c := range map[string]struct {
		cfg  wardenhttp.Config
		says string // the client, of its time
		do   []act
		want account
	}{
		"returns":                    {want: done},
		"answers":                    {do: []act{writes}, want: done},
		"499":                        {do: []act{says(499)}, want: done},
		"501":                        {do: []act{says(501)}, want: done}, // there is no such method
		"500":                        {do: []act{says(500)}, want: account{counted: 1, failed: 1}},
		"503, buffered":              {cfg: buffered, do: []act{says(503)}, want: account{counted: 1, failed: 1}},
		"panics":                     {do: []act{panics}, want: failed},
		"panics, buffered":           {cfg: buffered, do: []act{panics}, want: failed},
		"panics in its answer":       {do: []act{writes, panics}, want: failed},
		"aborts":                     {do: []act{aborts}, want: failed},
		"exits":                      {do: []act{exits}, want: failed},
		"hijacks":                    {do: []act{hijacks}},
		"the client sends nothing":   {do: []act{reads}, want: account{told: context.Canceled}},
		"too late":                   {do: []act{waits}, want: ended},
		"too late, answers":          {do: []act{waits, writes}, want: account{counted: 1, told: context.DeadlineExceeded}},
		"too late, fails":            {do: []act{waits, says(502)}, want: ended},
		"timeout":                    {cfg: bounded, do: []act{waits}, want: ended},
		"timeout, buffered":          {cfg: buffered, do: []act{waits}, want: ended},
		"timeout, answers":           {cfg: bounded, do: []act{waits, writes}, want: account{counted: 1, told: context.DeadlineExceeded}},
		"a friend waits no longer":   {says: "1000", do: []act{waits}, want: ended},
		"a stranger waits longer":    {cfg: bounded, says: "4000", do: []act{waits}, want: ended},
		"a stranger waits no longer": {says: "1000", do: []act{waits}, want: gone},
		"left":                       {do: []act{left}, want: gone},
		"left, buffered":             {cfg: buffered, do: []act{left}, want: gone},
		"left, panics":               {do: []act{left, panics}, want: gone},
		"left, answers":              {do: []act{left, writes}, want: account{unserved: 1, told: context.Canceled}},
		"left, 204":                  {do: []act{left, says(204)}, want: account{unserved: 1, told: context.Canceled}},
		"left, noted":                {do: []act{left, says(499)}, want: gone},
		"left, fails":                {do: []act{left, says(502)}, want: gone},
		"left after events":          {do: []act{writes, left, writes}, want: account{told: context.Canceled}},
		"left after a header":        {do: []act{flushes, left}, want: account{told: context.Canceled}},
		"left after a status":        {do: []act{says(204), left}, want: account{told: context.Canceled}},
	} {
		t.Run(name, func(t *testing.T) {
			counts(t, c.want, func(t *testing.T, w *warden.Warden, of *bulkhead.Compartment) {
				ctx, leave := context.WithTimeout(t.Context(), time.Minute)
				defer leave()
				c.cfg.Compartment, c.cfg.Trusted = maybe(of), always(strings.HasPrefix(name, "a friend"))
				h := handle(t, w, c.cfg, func(w http.ResponseWriter, r *http.Request) {
					for _, do := range c.do {
						do(w, r, leave)
					}
				})
				req := newRequest()
				if name == "the client sends nothing" {
					req = httptest.NewRequest(http.MethodPost, "/", late{})
				}
				if c.says != "" {
					req.Header.Set("Warden-Timeout", c.says)
				}
				rec := httptest.NewRecorder()
				finish(func() { h.ServeHTTP(fakeWriter{rec, rec}, req.WithContext(ctx)) })
			})
		})
	}
}

// late is a body that comes when nobody waits for it any more, over what knows no deadlines.
type late struct{}

func (late) Read([]byte) (int, error) {
	time.Sleep(time.Hour)
	return 0, io.ErrUnexpectedEOF
}

func TestHowASentRequestCounts(t *testing.T) {
	type base func(r *http.Request, leave func()) (*http.Response, error)
	broken := errors.New("on purpose")
	body := func(s string) io.ReadCloser { return io.NopCloser(strings.NewReader(s)) }
	answers := func(status int) base {
		return func(*http.Request, func()) (*http.Response, error) { return respond(status, body("x")), nil }
	}
	empty := func(status int) base {
		return func(*http.Request, func()) (*http.Response, error) { return respond(status, http.NoBody), nil }
	}
	upgrades := func(status int) base { // with a body that can be written, which is a two-way stream after 101 only
		return func(*http.Request, func()) (*http.Response, error) {
			return respond(status, struct {
				io.ReadCloser
				io.Writer
			}{body(""), io.Discard}), nil
		}
	}
	left := func(then base) base {
		return func(r *http.Request, leave func()) (*http.Response, error) { leave(); return then(r, leave) }
	}
	breaks := func(*http.Request, func()) (*http.Response, error) {
		return respond(200, io.NopCloser(iotest.ErrReader(broken))), nil
	}
	fails := func(*http.Request, func()) (*http.Response, error) { return nil, broken }
	panics := func(*http.Request, func()) (*http.Response, error) { panic(broken) }
	hangs := func(r *http.Request, _ func()) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	read := func(resp *http.Response) { _, _ = io.ReadAll(resp.Body) }
	shut := func(resp *http.Response) { resp.Body.Close() }
	for name, c := range map[string]struct {
		base base
		end  func(*http.Response) // nil: it holds nothing by then
		want account
	}{
		"read":          {answers(200), read, account{counted: 1}},
		"closed":        {answers(200), shut, account{counted: 1}},
		"404":           {answers(404), read, account{counted: 1}},
		"429":           {answers(429), read, account{counted: 1}},
		"501":           {answers(501), read, account{counted: 1}},
		"505":           {answers(505), read, account{counted: 1}},
		"500":           {answers(500), read, account{counted: 1, failed: 1, told: errAny}},
		"503, closed":   {answers(503), shut, account{counted: 1, failed: 1, told: errAny}},
		"204":           {empty(204), nil, account{counted: 1}},
		"500, no body":  {empty(500), nil, account{counted: 1, failed: 1, told: errAny}},
		"101":           {upgrades(101), shut, account{}},
		"no upgrade":    {upgrades(200), shut, account{counted: 1}},
		"breaks":        {breaks, read, account{counted: 1, failed: 1, told: broken}},
		"fails":         {fails, nil, account{counted: 1, failed: 1, told: broken}},
		"panics":        {panics, nil, account{counted: 1, failed: 1, told: errAny}},
		"too late":      {hangs, nil, account{abandoned: 1, unserved: 1, told: context.DeadlineExceeded}},
		"left":          {left(hangs), nil, account{abandoned: 1, unserved: 1, told: context.Canceled}},
		"left, fails":   {left(fails), nil, account{abandoned: 1, unserved: 1, told: context.Canceled}},
		"left, read":    {left(answers(200)), read, account{told: context.Canceled}},
		"left, closed":  {left(answers(200)), shut, account{told: context.Canceled}},
		"left, no body": {left(empty(204)), nil, account{told: context.Canceled}},
	} {
		t.Run(name, func(t *testing.T) {
			counts(t, c.want, func(t *testing.T, w *warden.Warden, of *bulkhead.Compartment) {
				ctx, leave := context.WithTimeout(t.Context(), time.Minute)
				defer leave()
				rt := must(wardenhttp.NewTransport(w, wardenhttp.TransportConfig{
					Compartment: maybe(of), Base: roundTrip(func(r *http.Request) (*http.Response, error) { return c.base(r, leave) }),
				}))(t)
				var resp *http.Response
				finish(func() { resp, _ = rt.RoundTrip(newRequest().WithContext(ctx)) })
				held := w.Limiter().Stats().Running + of.Snapshot().InFlight // nil has none
				if held != number(c.end != nil) {
					t.Errorf("H8: %d slots with the headers", held)
				}
				if c.end != nil {
					c.end(resp)
				}
			})
		})
	}
}

// Whoever sends on a body that breaks learns nothing about whom it was sent to: no breaker opens.
func TestASentBodyThatBreaks(t *testing.T) {
	upstream := startServer(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }), false)
	c := compartment(t, bulkhead.CompartmentConfig{})
	client := &http.Client{Transport: sentIn(t, c, upstream.Client().Transport)}
	for _, body := range []io.Reader{iotest.ErrReader(errors.New("broken")), strings.NewReader("whole")} {
		_ = inquire(t.Context(), client, upstream.URL, body)
	}
	if s := c.Snapshot(); s.Outcomes["failed"] != 0 || s.Outcomes["succeeded"] != 1 || s.InFlight != 0 {
		t.Errorf("H31: %v, want one that succeeded and none that failed", s.Outcomes)
	}
}

// What an end is, package inflight knows and tests; here it reaches the warden, on a real connection: the slot is held until that is
// closed, and a client that closes it was served.
func TestAHijackedConnection(t *testing.T) {
	g, conns := newGuard(t, 1, 0), make(chan net.Conn, 1)
	s := startServer(t, newHandler(t, g, func(w http.ResponseWriter, _ *http.Request) {
		c, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = buf.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		_ = buf.Flush()
		conns <- c
	}), false)
	resp := send(t, s.Client(), http.MethodGet, s.URL, http.NoBody, "Connection", "Upgrade", "Upgrade", "x")
	wantStatus(t, s, http.StatusServiceUnavailable)
	g.wantInFlight(t, "H2: with the connection open", 1)
	resp.Body.Close()
	c := <-conns
	_, _ = io.Copy(io.Discard, c) // until the client is gone
	c.Close()
	g.wantEmpty(t)
	if s := g.Limiter().Stats(); s.Abandoned != 0 || s.Executed != 1 {
		t.Errorf("H30: %+v", s.Tally)
	}
}

// Work that goes on upstream for a client that has left is measured to its end, and its client was not served.
func TestDetachedWorkServesNobody(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		want := account{counted: 1, unserved: uint64(number(leaves))}
		if leaves {
			want.told = context.Canceled
		}
		counts(t, want, func(t *testing.T, w *warden.Warden, c *bulkhead.Compartment) {
			rt := wardenhttp.Detach(roundTrip(func(*http.Request) (*http.Response, error) {
				time.Sleep(2 * time.Second)
				return respond(http.StatusOK, newPayload("x")), nil
			}))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if leaves {
				time.AfterFunc(time.Second, cancel)
			}
			recorded(handle(t, w, wardenhttp.Config{Compartment: maybe(c)}, func(w http.ResponseWriter, r *http.Request) {
				if take(rt, newRequest().WithContext(r.Context())) != nil {
					w.WriteHeader(http.StatusBadGateway)
				}
			}), newRequest().WithContext(ctx))
		})
	}
}
