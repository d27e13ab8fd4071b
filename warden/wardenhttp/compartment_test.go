// SPDX-License-Identifier: Apache-2.0

// Requests in compartments: who is asked, and what is known inside.

package wardenhttp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/timelimit"
	"github.com/stopbank/stopbank/warden/monitor"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// compartment is the one of a set that cfg describes; it has one slot unless cfg says otherwise.
func compartment(t testing.TB, cfg bulkhead.CompartmentConfig) *bulkhead.Compartment {
	t.Helper()
	cfg.Name = "shop"
	cfg.Guaranteed = max(1, cfg.Guaranteed)
	set := must(bulkhead.New(bulkhead.Config{Total: cfg.Guaranteed, Compartments: []bulkhead.CompartmentConfig{cfg}}))(t)
	return set.Compartment("shop")
}

func in(c *bulkhead.Compartment) func(*http.Request) *bulkhead.Compartment {
	return func(*http.Request) *bulkhead.Compartment { return c }
}

func inCompartment(t testing.TB, cfg wardenhttp.Config, next http.HandlerFunc) http.Handler {
	t.Helper()
	m := must(wardenhttp.New(nil, cfg))(t)
	return m.Handler(next)
}

func TestCompartmentIsAskedInstead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := compartment(t, bulkhead.CompartmentConfig{Guaranteed: 2, MaxQueue: 1, Tenants: bulkhead.TenantsConfig{Max: 1}})
		cfg := wardenhttp.Config{
			Timeout: time.Millisecond, // who has to wait, does not wait long
			Compartment: func(r *http.Request) *bulkhead.Compartment {
				if r.URL.Path == "/unknown" {
					return nil
				}
				return c.Tenant(r.Header.Get("Tenant"))
			},
		}
		var inner http.Handler
		ask := func(path, tenant string) *httptest.ResponseRecorder {
			r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
			r.Header.Set("Tenant", tenant)
			rec := httptest.NewRecorder()
			inner.ServeHTTP(rec, r)
			return rec
		}
		inner = inCompartment(t, cfg, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/outer" { // here the tenant a has its one slot
				if c.Snapshot().InFlight != 1 {
					t.Errorf("H1: %+v", c.Snapshot())
				}
				if _, err := bulkhead.Do(r.Context(), c.Tenant("a"), func(context.Context) (int, error) {
					return 0, nil
				}); !wardenhttp.WriteError(w, c, err) {
					t.Errorf("H1: from inside: %v", err)
				}
				if rec := ask("/", "a"); rec.Code != http.StatusGatewayTimeout ||
					!strings.Contains(rec.Body.String(), `"reason":"deadline_exceeded"`) {
					t.Errorf("H1: the same tenant: %d %s", rec.Code, rec.Body)
				}
				if rec := ask("/", "b"); rec.Code != http.StatusOK {
					t.Errorf("H1: another tenant: %d %s", rec.Code, rec.Body)
				}
			}
		})
		if rec := ask("/unknown", "a"); rec.Code != http.StatusInternalServerError {
			t.Errorf("H1: unknown compartment: %d %s", rec.Code, rec.Body)
		}
		if rec := ask("/outer", "a"); rec.Code != http.StatusInternalServerError ||
			!strings.Contains(rec.Body.String(), `"reason":"reentry"`) {
			t.Errorf("H1: re-entry: %d %s", rec.Code, rec.Body)
		}
		if s := c.Snapshot(); s.InFlight != 0 || s.Queued != 0 || s.Finished != 2 {
			t.Errorf("H1: %+v", s)
		}
	})
}

// A full compartment is 503, a tenant that has used up its share 429.
func TestTenantIsTold429(t *testing.T) {
	for _, shared := range []bool{false, true} {
		cfg := bulkhead.CompartmentConfig{Guaranteed: 2}
		if shared {
			cfg.MaxQueue, cfg.Tenants.Max = 1, 1
		}
		c := compartment(t, cfg).Tenant("a")
		running, free := make(chan struct{}, 3), make(chan struct{})
		release := sync.OnceFunc(func() { close(free) })
		defer release() // also if the test breaks off
		s := startServer(t, inCompartment(t, wardenhttp.Config{Compartment: in(c)}, func(http.ResponseWriter, *http.Request) {
			running <- struct{}{}
			<-free
		}), false)
		var busy sync.WaitGroup
		answers := make(chan *http.Response, 3)
		occupy := func() {
			busy.Go(func() {
				if resp, err := post(t, s); err == nil {
					resp.Body.Close()
					answers <- resp
				}
			})
		}
		want := http.StatusServiceUnavailable
		if occupy(); shared { // its slot, and its queue
			want = http.StatusTooManyRequests
		}
		<-running
		occupy()
		if shared {
			for c.Snapshot().Queued == 0 {
				runtime.Gosched()
			}
		} else {
			<-running
		}
		occupy() // one of them is rejected: the newcomer, or in a queue that stands the one that was there
		if resp := <-answers; resp.StatusCode != want || resp.Header.Get("Retry-After") == "" {
			t.Errorf("H5: %s %v, want %d", resp.Status, resp.Header, want)
		}
		release()
		busy.Wait()
	}
}

func TestQueueTimeoutIs504(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := compartment(t, bulkhead.CompartmentConfig{MaxQueue: 1, MaxWait: time.Second})
		_, permit, err := c.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer permit.Release(nil)
		rec := httptest.NewRecorder()
		inCompartment(t, wardenhttp.Config{Compartment: in(c)}, nil).ServeHTTP(rec, newRequest())
		if rec.Code != http.StatusGatewayTimeout ||
			!strings.Contains(rec.Body.String(), `"reason":"timeout_queued","request_id":`) {
			t.Errorf("H5: %d %s", rec.Code, rec.Body)
		}
	})
}

// A parent is a context that knows how many are derived from it.
type parent struct {
	context.Context
	derived atomic.Int32
}

func (p *parent) AfterFunc(func()) func() bool {
	p.derived.Add(1)
	return func() bool { p.derived.Add(-1); return true }
}

// What was made of the context for a deadline is given up with the slot, or without one.
func TestDeadlineInACompartmentLeavesNothing(t *testing.T) {
	done, cancel := context.WithCancel(t.Context())
	defer cancel()
	ctx := &parent{Context: done}
	c := compartment(t, bulkhead.CompartmentConfig{})
	var inside *http.Request
	var h http.Handler
	h = inCompartment(t, wardenhttp.Config{Timeout: time.Hour, Compartment: in(c)}, func(_ http.ResponseWriter, r *http.Request) {
		inside = r
		if due, _, ok := timelimit.Due(r.Context()); !ok || time.Until(due) > time.Hour {
			t.Errorf("%v %v", due, ok)
		}
		before := ctx.derived.Load()
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, newRequest().WithContext(ctx))
		if got := ctx.derived.Load(); rec.Code != http.StatusServiceUnavailable || got != before {
			t.Errorf("rejected with %d: %d contexts, %d before", rec.Code, got, before)
		}
	})
	h.ServeHTTP(httptest.NewRecorder(), newRequest().WithContext(ctx))
	if got := ctx.derived.Load(); got != 0 || !errors.Is(inside.Context().Err(), context.Canceled) {
		t.Errorf("%d contexts left, the handler's: %v", got, inside.Context().Err())
	}
}

// net/http removes the files of the request that it knows.
func TestUploadedFilesAreRemoved(t *testing.T) {
	c := compartment(t, bulkhead.CompartmentConfig{})
	name := make(chan string, 1)
	s := startServer(t, inCompartment(t, wardenhttp.Config{Compartment: in(c)}, func(_ http.ResponseWriter, r *http.Request) {
		if err := r.ParseMultipartForm(1); err != nil {
			t.Error(err)
			name <- ""
			return
		}
		f, err := r.MultipartForm.File["file"][0].Open()
		if err != nil {
			t.Error(err)
			name <- ""
			return
		}
		defer f.Close()
		name <- f.(*os.File).Name()
	}), false)
	var form bytes.Buffer
	upload := multipart.NewWriter(&form)
	part := must(upload.CreateFormFile("file", "big"))(t)
	_, _ = part.Write(make([]byte, 64<<10))
	_ = upload.Close()
	req := must(http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, &form))(t)
	req.Header.Set("Content-Type", upload.FormDataContentType())
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	file := <-name
	s.Close() // the server has finished with the request
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: %v", file, err)
	}
}

// Requests in compartments take the samples of the warden whose decisions rule them.
func TestCompartmentsUnderAWarden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := must(
			bulkhead.New(bulkhead.Config{Total: 10, Compartments: []bulkhead.CompartmentConfig{{Name: "shop", Guaranteed: 10}}}),
		)(t)
		w := must(
			warden.New(warden.Config{ApplyTo: set, Controller: constant{decision.ControlDecision{Seq: 1, TargetConcurrency: 0}}}),
		)(t)
		m := must(wardenhttp.New(w, wardenhttp.Config{Compartment: in(set.Compartment("shop"))}))(t)
		h := m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		for i, want := range []int{http.StatusOK, http.StatusServiceUnavailable} {
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, newRequest())
			if rec.Code != want || w.Stats().ByRequests != uint64(i) {
				t.Errorf("request %d: %d, %+v", i, rec.Code, w.Stats())
			}
			time.Sleep(time.Second)
		}
		if s := w.Limiter().Stats(); s.Submitted != 0 {
			t.Errorf("the warden itself was asked: %+v", s)
		}
	})
}

func TestCompartmentAllocatesLittle(t *testing.T) {
	c := compartment(t, bulkhead.CompartmentConfig{})
	h := inCompartment(t, wardenhttp.Config{Compartment: in(c)}, func(http.ResponseWriter, *http.Request) {})
	rec, req := httptest.NewRecorder(), newRequest()
	for name, c := range map[string]struct {
		w    http.ResponseWriter
		most float64
	}{
		"nothing to hijack": {rec, 6},
		"a Hijacker":        {fakeWriter{rec, rec}, 7},
	} {
		if got := testing.AllocsPerRun(100, func() { h.ServeHTTP(c.w, req) }); got > c.most {
			t.Errorf("H10: %s: %v allocations, want at most %v", name, got, c.most)
		}
	}
}

// In a compartment the request that is sent knows it, and is another one: the caller's is not changed.
func TestSentInACompartment(t *testing.T) {
	c := compartment(t, bulkhead.CompartmentConfig{})
	req := newRequest()
	rt := must(wardenhttp.NewTransport(nil, wardenhttp.TransportConfig{Compartment: in(c),
		Base: roundTrip(func(r *http.Request) (*http.Response, error) {
			if _, _, err := c.Acquire(r.Context()); r == req || !errors.Is(err, decision.ErrReentry) {
				t.Errorf("H8: the same request %v, from inside: %v", r == req, err)
			}
			return respond(http.StatusOK, newPayload("x")), nil
		})}))(t)
	resp, err := rt.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	var rejection *warden.Rejection
	if _, err := rt.RoundTrip(newRequest()); !errors.As(err, &rejection) || rejection.Reason != decision.QueueOverflow {
		t.Errorf("H8: while the body is unread: %v", err)
	}
	resp.Body.Close()
	if resp.Body.Close(); c.Snapshot().InFlight != 0 || c.Snapshot().Finished != 1 {
		t.Errorf("H8: %+v", c.Snapshot())
	}
}

// The base says only that time is up, in its own words; the caller learns whose time it was.
func TestTimeoutOfASentRequestIsACompartments(t *testing.T) {
	for name, base := range map[string]func(ctx context.Context) error{
		"context.DeadlineExceeded": context.Context.Err,
		"wrapped":                  func(ctx context.Context) error { return fmt.Errorf("h2: %w", ctx.Err()) },
		"the cause":                context.Cause,
	} {
		synctest.Test(t, func(t *testing.T) {
			c := compartment(t, bulkhead.CompartmentConfig{Timeout: time.Second})
			rt := must(wardenhttp.NewTransport(nil, wardenhttp.TransportConfig{Compartment: in(c),
				Base: roundTrip(func(r *http.Request) (*http.Response, error) {
					<-r.Context().Done()
					return nil, base(r.Context())
				})}))(t)
			client := &http.Client{Transport: rt}
			req := must(
				http.NewRequestWithContext(warden.WithRequestID(t.Context(), "r1"), http.MethodGet, "http://orders/", nil),
			)(t)
			resp, err := client.Do(req)
			if resp != nil {
				resp.Body.Close()
			}
			want := bulkhead.TimeoutError{Compartment: c.Name(), After: time.Second, RequestID: "r1"}
			var timeout *bulkhead.TimeoutError
			if !errors.As(err, &timeout) || *timeout != want || !errors.Is(err, context.DeadlineExceeded) || !os.IsTimeout(err) {
				t.Errorf("H5: %s: %v", name, err)
			}
			rec := httptest.NewRecorder()
			if !wardenhttp.WriteError(rec, c, err) || rec.Code != http.StatusGatewayTimeout {
				t.Errorf("H5: %s: answered %d", name, rec.Code)
			}

			// The caller's own deadline is nobody's Timeout.
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond*500)
			defer cancel()
			resp, err = rt.RoundTrip(newRequest().WithContext(ctx))
			if resp != nil {
				resp.Body.Close()
			}
			if !errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) {
				t.Errorf("H5: %s: of the caller: %v", name, err)
			}
			if s := c.Snapshot(); s.Outcomes["timeout_running"] != 1 || s.InFlight != 0 {
				t.Errorf("H5: %s: %+v", name, s)
			}
		})
	}
}

// slowBody has nothing to read before its request's time is up, and then fails with what over says.
type slowBody struct {
	ctx  context.Context
	over func(context.Context) error
}

func (b slowBody) Read([]byte) (int, error) { <-b.ctx.Done(); return 0, b.over(b.ctx) }
func (slowBody) Close() error               { return nil }

// HTTP/1 says context.Cause, HTTP/2 says Err: both reach the caller as the compartment's error.
func TestTimeoutOfABodyIsACompartments(t *testing.T) {
	for name, over := range map[string]func(context.Context) error{
		"HTTP/1": context.Cause,
		"HTTP/2": context.Context.Err,
		"other":  func(ctx context.Context) error { return fmt.Errorf("other: %w", ctx.Err()) },
	} {
		synctest.Test(t, func(t *testing.T) {
			c := compartment(t, bulkhead.CompartmentConfig{Timeout: time.Second})
			rt := must(wardenhttp.NewTransport(nil, wardenhttp.TransportConfig{Compartment: in(c),
				Base: roundTrip(func(r *http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: http.StatusOK, Body: slowBody{r.Context(), over}}, nil
				})}))(t)
			read := func(ctx context.Context) error {
				resp, err := rt.RoundTrip(newRequest().WithContext(ctx))
				if err != nil {
					return err
				}
				defer resp.Body.Close()
				_, err = resp.Body.Read(make([]byte, 1))
				return err
			}
			want := bulkhead.TimeoutError{Compartment: c.Name(), After: time.Second}
			var timeout *bulkhead.TimeoutError
			if err := read(t.Context()); !errors.As(err, &timeout) || *timeout != want {
				t.Errorf("H5: %s: %v", name, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			if err := read(ctx); !errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) {
				t.Errorf("H5: %s: of the caller: %v", name, err)
			}
			if s := c.Snapshot(); s.Outcomes["timeout_running"] != 1 || s.InFlight != 0 {
				t.Errorf("H5: %s: %+v", name, s)
			}
		})
	}
}

// Where a warden measures the compartments, a hijacked connection is no execution of theirs, and one that its client left is no
// whole one.
func TestCompartmentsAreToldHowARequestEnded(t *testing.T) {
	set := must(
		bulkhead.New(bulkhead.Config{Total: 9, Compartments: []bulkhead.CompartmentConfig{{Name: "shop", Guaranteed: 9}}}),
	)(t)
	sampler := must(monitor.New())(t)
	recorder := sampler.Recorder()
	set.Feed(recorder)
	ctx, leave := context.WithCancel(t.Context())
	h := inCompartment(t, wardenhttp.Config{Compartment: in(set.Compartment("shop"))}, func(
		w http.ResponseWriter, r *http.Request,
	) {
		switch r.Method {
		case http.MethodPut:
			if c, _, err := http.NewResponseController(w).Hijack(); err != nil || c.Close() != nil {
				t.Error(err)
			}
		case http.MethodDelete:
			leave()
		}
	})
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete} {
		rec := httptest.NewRecorder()
		h.ServeHTTP(fakeWriter{rec, rec}, httptest.NewRequest(method, "/", http.NoBody).WithContext(ctx))
	}
	if v := sampler.Sample().Parts[0].Service; v.Count != 1 || v.Abandoned != 1 || v.Running != 0 {
		t.Errorf("H1: %d whole, %d abandoned, %d running", v.Count, v.Abandoned, v.Running)
	}
}
