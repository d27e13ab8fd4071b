// SPDX-License-Identifier: Apache-2.0

// What a breaker is told of a request, and what a client is told of an open one.

package wardenhttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

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

func TestBreakerIsToldOfTheHandler(t *testing.T) {
	late := errors.New("late") // stands for a *bulkhead.TimeoutError
	for name, c := range map[string]struct {
		next func(cancel func(), r *http.Request)
		want error // errAny means whichever, but one that is a result
	}{
		"returns":  {func(func(), *http.Request) {}, nil},
		"panics":   {func(func(), *http.Request) { panic("on purpose") }, errAny},
		"exits":    {func(func(), *http.Request) { runtime.Goexit() }, errAny},
		"canceled": {func(cancel func(), _ *http.Request) { cancel() }, context.Canceled},
		"too late": {func(_ func(), r *http.Request) { <-r.Context().Done() }, late},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := new(fuse)
			c2 := compartment(t, bulkhead.CompartmentConfig{Breaker: f, Timeout: time.Minute})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			h := inCompartment(t, wardenhttp.Config{Compartment: in(c2)}, func(_ http.ResponseWriter, r *http.Request) {
				c.next(cancel, r)
			})
			finish(func() { h.ServeHTTP(httptest.NewRecorder(), newRequest().WithContext(ctx)) })
			f.check(t, name, c.want, late)
			if s := c2.Snapshot(); s.InFlight != 0 {
				t.Errorf("%s: %+v", name, s)
			}
		})
	}
}

var errAny = errors.New("any")

// check looks at the one thing that the breaker was told.
func (f *fuse) check(t *testing.T, name string, want, late error) {
	t.Helper()
	if len(f.told) != 1 {
		t.Errorf("%s: told %d times", name, len(f.told))
		return
	}
	switch got := f.told[0]; {
	case want == errAny && got != nil && !bulkhead.IsExcluded(got):
	case want == late && errors.Is(got, bulkhead.ErrTimeout):
	case errors.Is(got, want):
	default:
		t.Errorf("%s: told %v", name, got)
	}
}

func TestBreakerIsToldOfTheDependency(t *testing.T) {
	failed := errors.New("on purpose")
	read := func(resp *http.Response) { _, _ = io.ReadAll(resp.Body) }
	shut := func(resp *http.Response) { resp.Body.Close() }
	for name, c := range map[string]struct {
		base roundTrip
		end  func(*http.Response)
		want error
	}{
		"read": {func(*http.Request) (*http.Response, error) {
			return respond(200, newPayload("x")), nil
		}, read, nil},
		"closed": {func(*http.Request) (*http.Response, error) {
			return respond(200, newPayload("x")), nil
		}, shut, nil},
		"404": {func(*http.Request) (*http.Response, error) {
			return respond(404, newPayload("x")), nil
		}, read, nil},
		"500, read": {func(*http.Request) (*http.Response, error) {
			return respond(500, newPayload("x")), nil
		}, read, errAny},
		"503, closed": {func(*http.Request) (*http.Response, error) {
			return respond(503, newPayload("x")), nil
		}, shut, errAny},
		"500, without body": {func(*http.Request) (*http.Response, error) { return respond(500, http.NoBody), nil }, nil, errAny},
		"error":             {func(*http.Request) (*http.Response, error) { return nil, failed }, nil, failed},
		"panic":             {func(*http.Request) (*http.Response, error) { panic(failed) }, nil, errAny},
		"upgraded": {func(*http.Request) (*http.Response, error) {
			return respond(101, upgradedBody()), nil
		}, shut, nil},
		"body fails": {func(*http.Request) (*http.Response, error) {
			return respond(200, io.NopCloser(iotest.ErrReader(failed))), nil
		}, read, failed},
		"too late": {
			func(r *http.Request) (*http.Response, error) { <-r.Context().Done(); return nil, r.Context().Err() },
			nil, bulkhead.ErrTimeout,
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := new(fuse)
			c2 := compartment(t, bulkhead.CompartmentConfig{Breaker: f, Timeout: time.Minute})
			rt := must(wardenhttp.NewTransport(nil, wardenhttp.TransportConfig{Base: c.base, Compartment: in(c2)}))(t)
			var resp *http.Response
			finish(func() { resp, _ = rt.RoundTrip(newRequest()) })
			if c.end != nil {
				if s := c2.Snapshot(); s.InFlight != 1 {
					t.Errorf("%s: %+v with the headers", name, s)
				}
				c.end(resp)
			}
			f.check(t, name, c.want, nil)
			if s := c2.Snapshot(); s.InFlight != 0 {
				t.Errorf("%s: %+v", name, s)
			}
		})
	}
}

func TestOpenBreakerIs503(t *testing.T) {
	c := compartment(t, bulkhead.CompartmentConfig{Breaker: &fuse{open: errors.New("open")}})
	rec := httptest.NewRecorder()
	inCompartment(t, wardenhttp.Config{Compartment: in(c)}, func(http.ResponseWriter, *http.Request) {
		t.Error("H5: called")
	}).ServeHTTP(rec, newRequest())
	if rec.Code != http.StatusServiceUnavailable || !strings.Contains(rec.Body.String(), `"reason":"breaker_open"`) {
		t.Errorf("H5: %d %s", rec.Code, rec.Body)
	}
	rt := must(wardenhttp.NewTransport(nil, wardenhttp.TransportConfig{Compartment: in(c), Base: struct{ http.RoundTripper }{}}))(t)
	var open *decision.Rejection
	if _, err := rt.RoundTrip(newRequest()); !errors.As(err, &open) || open.Reason != bulkhead.BreakerOpen {
		t.Error(err)
	}
}
