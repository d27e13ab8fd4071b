// SPDX-License-Identifier: Apache-2.0

// The server's side: which requests reach the handler, and the answer to the others.

package admissionhttp_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stopbank/stopbank/admission"
	"github.com/stopbank/stopbank/admission/admissionhttp"
)

// Clients that are rejected together get different delays.
func TestRetryAfterIsWholeSecondsAndSpread(t *testing.T) {
	for d, least := range map[time.Duration]int{
		0: 1, 1: 1, time.Second: 1, time.Second + 1: 2, 1500 * time.Millisecond: 2, time.Minute: 60, time.Hour: 3600,
	} {
		h := handlerOf(t, http.NotFoundHandler(), admissionhttp.HandlerConfig{Gate: new(admission.Gate), RetryAfter: d})
		delays := map[int]bool{}
		for range 200 {
			rec := answer(h)
			s, err := strconv.Atoi(rec.Header().Get("Retry-After"))
			if rec.Code != http.StatusServiceUnavailable || err != nil || s < least || s > 2*least {
				t.Fatalf("%v: status %d, Retry-After %q, want 503 and %d to %d", d, rec.Code, rec.Header().Get("Retry-After"), least, 2*least)
			}
			delays[s] = true
		}
		if len(delays) < 2 { // by chance once in 2^199
			t.Errorf("%v: all are %v", d, delays)
		}
	}
}

// An outer layer had described the content, for caches too.
func TestNoCacheKeepsARejection(t *testing.T) {
	rec := httptest.NewRecorder()
	for of := range strings.FieldsSeq(`Expires CDN-Cache-Control Surrogate-Control Cache-Control Etag Access-Control-Allow-Origin Content-Encoding
		Accept-Ranges Age Content-Digest Content-Disposition Content-Language Content-Length Content-Location Content-Md5 Content-Range
		Digest Edge-Control Edge-Cache-Tag Cache-Tag Last-Modified Pragma Repr-Digest Surrogate-Key X-Accel-Expires X-Accel-Redirect
		X-Lighttpd-Send-File X-Sendfile X-Sendfile2 X-LiteSpeed-Tag X-Reproxy-Url Cache-Groups Cache-Tags Unencoded-Digest Use-As-Dictionary Xkey Trailer:Etag`) {
		rec.Header().Set(of, "7")
	}
	newHandler(t, gate{new(admission.Gate)}, http.NotFound).ServeHTTP(rec, newRequest())
	got := rec.Header()
	got.Del("Retry-After")
	want := http.Header{
		"Access-Control-Allow-Origin": {"7"}, "Content-Encoding": {"7"}, "Cache-Control": {"no-store"},
		"Content-Type": {"text/plain; charset=utf-8"}, "X-Content-Type-Options": {"nosniff"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("A4: (-want +got)\n%s", diff)
	}
}

func TestRejectedHandlerAnswersInstead(t *testing.T) {
	rec := answer(handlerOf(t,
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("A4: the handler was called") }),
		admissionhttp.HandlerConfig{
			Gate:     new(admission.Gate), // the zero Gate admits nobody
			Rejected: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) }),
		}))
	if rec.Code != http.StatusTooManyRequests || rec.Header().Get("Retry-After") != "" {
		t.Errorf("A4: status %d, header %v, want 429 and nothing added", rec.Code, rec.Header())
	}
}

func TestAdmissionAllocatesLittle(t *testing.T) {
	h := newHandler(t, newGate(t, "server", 1), func(http.ResponseWriter, *http.Request) {})
	rec, req := httptest.NewRecorder(), newRequest()
	if got := testing.AllocsPerRun(100, func() { h.ServeHTTP(rec, req) }); got > 0 {
		t.Errorf("%v allocations, want none", got)
	}
}

func TestInvalidHandlerConfig(t *testing.T) {
	gate, someone := new(admission.Gate), http.NotFoundHandler()
	for _, c := range []struct {
		field string
		next  http.Handler
		cfg   admissionhttp.HandlerConfig
	}{
		{"next", nil, admissionhttp.HandlerConfig{Gate: gate}},
		{"next", http.HandlerFunc(nil), admissionhttp.HandlerConfig{Gate: gate}},
		{"HandlerConfig.Gate", someone, admissionhttp.HandlerConfig{}},
		{"HandlerConfig.RetryAfter", someone, admissionhttp.HandlerConfig{Gate: gate, RetryAfter: -1}},
		{"HandlerConfig.RetryAfter", someone, admissionhttp.HandlerConfig{Gate: gate, RetryAfter: time.Hour + 1}},
		{"HandlerConfig.Rejected", someone, admissionhttp.HandlerConfig{Gate: gate, Rejected: http.HandlerFunc(nil)}},
	} {
		h, err := admissionhttp.NewHandler(c.next, c.cfg)
		var invalid *admission.InvalidError
		if !errors.As(err, &invalid) || !errors.Is(err, admission.ErrInvalid) || invalid.Field != c.field || invalid.Allowed == "" {
			t.Errorf("%s: error %v", c.field, err)
		}
		if h != nil {
			t.Errorf("%s: a handler as well", c.field)
		}
	}
}

// A body that is too large is answered while its client waits, and the rest of it never comes.
func TestTooLargeABodyIsAnsweredAtOnce(t *testing.T) {
	s := httptest.NewServer(newHandler(t, newGate(t, "server", 1), func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, 1000)); err != nil {
			http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		}
	}))
	defer s.Close()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n%s", strings.Repeat("x", 2000))
	if err = c.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil { // it would wait for ever
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusRequestEntityTooLarge || !resp.Close {
		t.Errorf("%s, close %t", resp.Status, resp.Close)
	}
}
