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

func TestCompartmentIsAskedInstead(t *testing.T) {
	c := compartment(t, bulkhead.CompartmentConfig{})
	h := handle(t, nil, wardenhttp.Config{Compartment: func(r *http.Request) *bulkhead.Compartment {
		if r.URL.Path == "/unknown" {
			return nil
		}
		return c
	}}, func(http.ResponseWriter, *http.Request) {
		if s := c.Snapshot(); s.InFlight != 1 {
			t.Errorf("H1: %+v", s)
		}
	})
	for path, want := range map[string]int{"/": http.StatusOK, "/unknown": http.StatusInternalServerError} {
		if rec := recorded(h, httptest.NewRequest(http.MethodGet, path, http.NoBody)); rec.Code != want {
			t.Errorf("H1: %s: %d %s", path, rec.Code, rec.Body)
		}
	}
	if s := c.Snapshot(); s.InFlight != 0 || s.Finished != 1 {
		t.Errorf("H1: %+v", s)
	}
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
	ctx, c := &parent{Context: done}, compartment(t, bulkhead.CompartmentConfig{})
	var inside *http.Request
	var h http.Handler
	h = handle(t, nil, wardenhttp.Config{Timeout: time.Hour, Compartment: in(c)}, func(_ http.ResponseWriter, r *http.Request) {
		inside = r
		if due, _, ok := timelimit.Due(r.Context()); !ok || time.Until(due) > time.Hour {
			t.Errorf("%v %v", due, ok)
		}
		before := ctx.derived.Load()
		rec := recorded(h, newRequest().WithContext(ctx))
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
	s := startServer(t, handle(t, nil, wardenhttp.Config{Compartment: in(c)}, func(_ http.ResponseWriter, r *http.Request) {
		_ = r.ParseMultipartForm(1) // in files
		f, _, err := r.FormFile("file")
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
	resp := send(t, s.Client(), http.MethodPost, s.URL, &form, "Content-Type", upload.FormDataContentType())
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
		set := must(bulkhead.New(bulkhead.Config{Total: 10, Compartments: []bulkhead.CompartmentConfig{{Name: "shop", Guaranteed: 10}}}))(t)
		none := constant{decision.ControlDecision{Seq: 1, TargetConcurrency: 0}}
		w := must(warden.New(warden.Config{ApplyTo: set, Controller: none}))(t)
		h := handle(t, w, wardenhttp.Config{Compartment: in(set.Compartment("shop"))}, func(http.ResponseWriter, *http.Request) {})
		for i, want := range []int{http.StatusOK, http.StatusServiceUnavailable} {
			rec := recorded(h, newRequest())
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

// The base, or the body of its answer, says only that time is up, in its own words: HTTP/1 says context.Cause, HTTP/2 says Err. The
// caller learns whose time it was; his own deadline is nobody's Timeout.
func TestTimeoutOfASentRequestIsACompartments(t *testing.T) {
	for name, over := range map[string]func(ctx context.Context) error{
		"context.DeadlineExceeded": context.Context.Err,
		"wrapped":                  func(ctx context.Context) error { return fmt.Errorf("h2: %w", ctx.Err()) },
		"the cause":                context.Cause,
	} {
		for _, answers := range []bool{false, true} {
			bubble(t, fmt.Sprintf("%s, answered %t", name, answers), func(t *testing.T) {
				c := compartment(t, bulkhead.CompartmentConfig{Timeout: time.Second})
				client := &http.Client{Transport: sentIn(t, c, roundTrip(func(r *http.Request) (*http.Response, error) {
					if answers {
						return respond(http.StatusOK, slowBody{r.Context(), over}), nil
					}
					<-r.Context().Done()
					return nil, over(r.Context())
				}))}
				ctx := warden.WithRequestID(t.Context(), "r1")
				err := inquire(ctx, client, "http://orders/", http.NoBody)
				want := bulkhead.TimeoutError{Compartment: c.Name(), After: time.Second, RequestID: "r1"}
				var timeout *bulkhead.TimeoutError
				if !errors.As(err, &timeout) || *timeout != want || !errors.Is(err, context.DeadlineExceeded) || !os.IsTimeout(err) {
					t.Errorf("H5: %v", err)
				}
				rec := httptest.NewRecorder()
				if !wardenhttp.WriteError(rec, c, err) || rec.Code != http.StatusGatewayTimeout {
					t.Errorf("H5: answered %d", rec.Code)
				}
				ctx, cancel := context.WithTimeout(ctx, time.Second/2)
				defer cancel()
				err = inquire(ctx, client, "http://orders/", http.NoBody)
				if !errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) {
					t.Errorf("H5: of the caller: %v", err)
				}
				if s := c.Snapshot(); s.Outcomes["timeout_running"] != 1 || s.InFlight != 0 {
					t.Errorf("H5: %+v", s)
				}
			})
		}
	}
}

// slowBody has nothing to read before its request's time is up, and then fails with what over says.
type slowBody struct {
	ctx  context.Context
	over func(context.Context) error
}

func (b slowBody) Read([]byte) (int, error) { <-b.ctx.Done(); return 0, b.over(b.ctx) }
func (slowBody) Close() error               { return nil }

// Where a warden measures the compartments, a hijacked connection is no execution of theirs, and one that its client left is no
// whole one.
func TestCompartmentsAreToldHowARequestEnded(t *testing.T) {
	set := must(bulkhead.New(bulkhead.Config{Total: 9, Compartments: []bulkhead.CompartmentConfig{{Name: "shop", Guaranteed: 9}}}))(t)
	sampler := must(monitor.New())(t)
	recorder := sampler.Recorder()
	set.Feed(recorder)
	ctx, leave := context.WithCancel(t.Context())
	h := handle(t, nil, wardenhttp.Config{Compartment: in(set.Compartment("shop"))}, func(w http.ResponseWriter, r *http.Request) {
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
