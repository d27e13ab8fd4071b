// SPDX-License-Identifier: Apache-2.0

// A connection that a proxy in front keeps is that of all its clients: what one request does to it may end none of the others.

package wardenhttp_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// An outer handler has read the body, and net/http reads ahead: a deadline for that body, after a stranger's time or beside a fallback
// that is slow, would end the next requests of the connection too.
func TestNobodyElsesRequestEnds(t *testing.T) {
	outer := map[string]func(r *http.Request){
		"a form": func(r *http.Request) { _ = r.ParseForm() },
		"a body that was looked at": func(r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(b))
		},
	}
	slow := func(w http.ResponseWriter, r *http.Request, _ error) bool {
		select {
		case <-time.After(600 * time.Millisecond): // longer than a short body is waited for
		case <-r.Context().Done():
			return false
		}
		w.WriteHeader(http.StatusOK)
		return true
	}
	rejects := compartment(t, bulkhead.CompartmentConfig{MaxFallback: 1, Breaker: &fuse{open: errors.New("open")}})
	serves := in(compartment(t, bulkhead.CompartmentConfig{Guaranteed: 1}))
	for name, cfg := range map[string]wardenhttp.Config{
		"late":                 {Compartment: serves},
		"late, buffered":       {Compartment: serves, Buffered: true},
		"done, a short grace":  {Compartment: serves, Grace: time.Millisecond},
		"rejected, a fallback": {Compartment: in(rejects), Fallback: slow},
	} {
		for who, reads := range outer {
			for _, chunked := range []bool{false, true} {
				h := handle(t, nil, cfg, func(_ http.ResponseWriter, r *http.Request) {
					if r.Header.Get("Warden-Timeout") != "" {
						<-r.Context().Done()
					}
					_, _ = r.Body.Read(make([]byte, 1)) // and does not see the end
				})
				s := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					reads(r)
					h.ServeHTTP(w, r)
					time.Sleep(5 * time.Millisecond) // as for an access log
				}), false)
				for i := range 3 {
					var body io.Reader = strings.NewReader("a=1")
					if chunked {
						body = io.MultiReader(body)
					}
					headers := []string{"Content-Type", "application/x-www-form-urlencoded"}
					if i == 0 && strings.HasPrefix(name, "late") {
						headers = append(headers, "Warden-Timeout", "20")
					}
					resp := send(t, s.Client(), http.MethodPost, s.URL, body, headers...)
					_, _ = io.Copy(io.Discard, resp.Body)
					if resp.Body.Close(); (resp.StatusCode != http.StatusOK) != (len(headers) > 2) {
						t.Errorf("H16: %s, %s, chunked %t: request %d: %s", name, who, chunked, i, resp.Status)
					}
				}
			}
		}
	}
}

// What still writes to a connection that was hijacked does as under net/http: nothing.
func TestAWriteAfterAHijack(t *testing.T) {
	g, over := newGuard(t, 1, 0), make(chan http.ResponseWriter, 1)
	s := startServer(t, newHandler(t, g, func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		c.Close()
		over <- w
	}), false)
	req := must(http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodPost, s.URL, strings.NewReader("hello")))(t)
	if resp, err := s.Client().Do(req); err == nil {
		resp.Body.Close()
		t.Errorf("H7: %s", resp.Status)
	}
	w := <-over
	g.wantEmpty(t)
	http.Error(w, "too late", http.StatusBadGateway)
	if n := g.Limiter().Stats().Failed; n > 0 {
		t.Errorf("H31: %d failed", n)
	}
}
