// SPDX-License-Identifier: Apache-2.0

// A connection that a proxy in front keeps is that of all its clients: what one request does to it may end none of the others.

package wardenhttp_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
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

// The last byte of a body comes as its client is cut off: net/http may read ahead already, and the connection is no other request's.
func TestALastByteBesideADeadline(t *testing.T) {
	for _, begun := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			g := newGuard(t, 1, 0)
			h := g.handle(t, wardenhttp.Config{Grace: time.Second}, func(w http.ResponseWriter, r *http.Request) {
				if begun {
					_, _ = io.WriteString(w, "begun")
				}
				_, _ = io.Copy(io.Discard, r.Body)
			})
			w := &patient{ResponseWriter: httptest.NewRecorder()}
			req := httptest.NewRequest(http.MethodPost, "/", io.MultiReader(pausing{}, iotest.DataErrReader(strings.NewReader("!"))))
			req.ContentLength = 1
			h.ServeHTTP(w, req)
			if w.until.IsZero() || w.Header().Get("Connection") != "close" && !(begun && w.written.Equal(time.Unix(1, 0))) {
				t.Errorf("H16: begun %t: a deadline at %v, and then %v, one for the answer at %v", begun, w.until, w.Header(), w.written)
			}
		})
	}
}

// A body that does not come keeps no slot and no connection: not while net/http waits for it before it sends an answer, nor after an
// answer, or behind one of the fallback's, when the time was up.
func TestABodyThatDoesNotComeKeepsNothing(t *testing.T) {
	much := strings.Repeat("x", 10_000)
	for name, c := range map[string]struct {
		cfg    wardenhttp.Config
		late   bool
		left   bool // a goroutine reads on
		status int  // 0: the connection ends
	}{
		"an answer":                 {wardenhttp.Config{Grace: 50 * time.Millisecond}, false, false, 0},
		"an answer beside a reader": {wardenhttp.Config{Grace: time.Minute}, false, true, http.StatusOK},
		"late":                      {wardenhttp.Config{Grace: 50 * time.Millisecond, Timeout: 50 * time.Millisecond}, true, false, http.StatusGatewayTimeout},
		"a fallback":                {wardenhttp.Config{Grace: time.Second, Timeout: 50 * time.Millisecond}, true, false, http.StatusOK},
		"a fallback, buffered":      {wardenhttp.Config{Grace: time.Second, Timeout: 50 * time.Millisecond, Buffered: true}, true, false, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			of := compartment(t, bulkhead.CompartmentConfig{Guaranteed: 1, MaxFallback: 1})
			c.cfg.Compartment = in(of)
			if c.late && c.status == http.StatusOK {
				c.cfg.Fallback = func(w http.ResponseWriter, _ *http.Request, _ error) bool {
					_, _ = io.WriteString(w, much)
					return true
				}
			}
			s := httptest.NewUnstartedServer(handle(t, nil, c.cfg, func(w http.ResponseWriter, r *http.Request) {
				switch {
				case c.late:
					<-r.Context().Done()
				case c.left:
					go func() { _, _ = io.Copy(io.Discard, r.Body) }()
					<-time.After(20 * time.Millisecond)
					w.WriteHeader(http.StatusOK)
				default:
					_, _ = io.WriteString(w, much)
				}
			}))
			closed := make(chan struct{}, 1)
			s.Config.ConnState = func(_ net.Conn, is http.ConnState) {
				if is == http.StateClosed {
					closed <- struct{}{}
				}
			}
			s.Start()
			defer s.Close()
			_, answers := raw(t, s, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n12345")
			resp, err := http.ReadResponse(answers, nil)
			if err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			if (err != nil) != (c.status == 0) || err == nil && resp.StatusCode != c.status {
				t.Errorf("H17: %v, %v; want %d", resp, err, c.status)
			}
			await(t, "the end of the connection", closed)
			fill(t, of, 1) // the slot is free
		})
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
