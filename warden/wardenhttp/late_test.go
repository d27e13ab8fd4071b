// SPDX-License-Identifier: Apache-2.0

// Answers for which the time was up (H16): nobody takes half a one for whole, and no cache keeps one.

package wardenhttp_test

import (
	"compress/gzip"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// An answer in the middle of which the time was up breaks off, if it was not whole by what it says of its length, or is a stream.
func TestAnAnswerThatWasCutBreaksOff(t *testing.T) {
	const long = 50 * time.Millisecond
	around := func(w http.ResponseWriter, name string) http.ResponseWriter {
		switch name {
		case "no deadlines":
			return struct{ http.ResponseWriter }{w} // such as an access log's
		case "a compressor":
			return lengthless{w}
		}
		return w
	}
	for name, c := range map[string]struct {
		cfg     wardenhttp.Config
		request http.Header
		method  string
		header  http.Header
		flush   bool
		whole   bool
		wrapped string
	}{
		"the service's time":    {cfg: wardenhttp.Config{Timeout: long}},
		"half of it was sent":   {cfg: wardenhttp.Config{Timeout: long}, flush: true},
		"a stranger's":          {request: http.Header{"Warden-Timeout": {"50"}}},
		"the task's deadline":   {cfg: wardenhttp.Config{Task: dueIn(long)}},
		"a length that is more": {cfg: wardenhttp.Config{Timeout: long}, header: http.Header{"Content-Length": {"5"}}},
		"no deadlines":          {cfg: wardenhttp.Config{Timeout: long}, wrapped: "no deadlines"},
		"beyond a buffer":       {cfg: wardenhttp.Config{Timeout: long, Buffered: true, BufferPerAnswer: 2}},
		"a length taken back":   {cfg: wardenhttp.Config{Timeout: long}, header: http.Header{"Content-Length": {"4"}}, wrapped: "a compressor", whole: true},
		"a whole length":        {cfg: wardenhttp.Config{Timeout: long}, header: http.Header{"Content-Length": {"4"}}, whole: true},
		"no body":               {cfg: wardenhttp.Config{Timeout: long}, method: http.MethodHead, whole: true},
		"a stream":              {cfg: wardenhttp.Config{Task: dueIn(long)}, header: http.Header{"Content-Type": {"text/event-stream"}}, flush: true, whole: true},
	} {
		t.Run(name, func(t *testing.T) {
			protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
				var runs atomic.Int32
				h := newGuard(t, 1, 0).handle(t, c.cfg, func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/before" {
						return
					}
					runs.Add(1)
					maps.Copy(w.Header(), c.header)
					_, _ = io.WriteString(w, "half")
					if c.flush {
						_ = http.NewResponseController(w).Flush()
					}
					<-r.Context().Done()
				})
				s := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(around(w, c.wrapped), r) }))
				before := must(s.Client().Get(s.URL + "/before"))(t) // on a connection that is used again, net/http may send a request twice
				before.Body.Close()
				req := must(http.NewRequestWithContext(t.Context(), c.method, s.URL, http.NoBody))(t)
				maps.Copy(req.Header, c.request)
				resp, err := s.Client().Do(req)
				if err == nil {
					_, err = io.ReadAll(resp.Body)
					resp.Body.Close()
				}
				if n := runs.Load(); (err == nil) != c.whole || n != 1 && c.wrapped != "no deadlines" { // which has no Flush either
					t.Errorf("H16: %v, and the handler ran %d times", err, n)
				}
			})
		})
	}
}

// lengthless takes the length back, as what compresses does.
type lengthless struct{ http.ResponseWriter }

func (w lengthless) WriteHeader(status int) {
	w.Header().Del("Content-Length")
	w.ResponseWriter.WriteHeader(status)
}

func (w lengthless) Write(b []byte) (int, error) {
	w.Header().Del("Content-Length")
	return w.ResponseWriter.Write(b)
}

func (w lengthless) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// A client that reads nothing keeps no slot by what there is of a cut answer.
func TestACutAnswerWaitsForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, began := newGuard(t, 1, 0), time.Now()
		g.handle(t, wardenhttp.Config{Timeout: time.Second}, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "half")
			<-r.Context().Done()
		}).ServeHTTP(&deaf{ResponseRecorder: httptest.NewRecorder()}, newRequest())
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("H15: the slot was held for %v", took)
		}
		g.wantEmpty(t)
	})
}

// deaf is a client's connection to which nothing more can be written: a Flush ends with the deadline.
type deaf struct {
	*httptest.ResponseRecorder
	until time.Time
}

func (d *deaf) SetWriteDeadline(at time.Time) error { d.until = at; return nil }
func (d *deaf) SetReadDeadline(time.Time) error     { return nil }

func (d *deaf) FlushError() error {
	if d.until.IsZero() {
		d.until = time.Now().Add(time.Hour)
	}
	time.Sleep(time.Until(d.until))
	return os.ErrDeadlineExceeded
}

// An answer that a stranger's too little time has changed at once, such as a page without what nobody could give, is the stranger's: no
// cache keeps it, or it breaks off. A failure beside it is the handler's own.
func TestAnAnswerInTooLittleTimeIsKeptByNoCache(t *testing.T) {
	asks := map[string]func(t *testing.T) http.RoundTripper{
		"a service that foresees it": func(t *testing.T) http.RoundTripper {
			return newTransport(t, newGuard(t, 1, 0), answering(http.StatusGatewayTimeout, "Warden-Rejected", "deadline_exceeded"))
		},
		"a retry that would come too late": func(t *testing.T) http.RoundTripper {
			return newRetry(t, newCaller(t, generous), wardenhttp.RetryConfig{Base: answering(http.StatusServiceUnavailable, "Retry-After", "2")})
		},
	}
	for name, asked := range asks {
		for _, begun := range []bool{false, true} {
			for _, status := range []int{http.StatusOK, http.StatusInternalServerError} {
				synctest.Test(t, func(t *testing.T) {
					asked, g := asked(t), newGuard(t, 1, 0)
					h := newHandler(t, g, func(w http.ResponseWriter, r *http.Request) {
						w.Header().Set("Cache-Control", "public")
						if begun {
							w.WriteHeader(status)
						}
						if resp, err := asked.RoundTrip(newRequest().WithContext(r.Context())); err == nil {
							resp.Body.Close()
						}
						if !begun {
							w.WriteHeader(status)
						}
						_, _ = io.WriteString(w, "less")
					})
					rec := &deaf{ResponseRecorder: httptest.NewRecorder()}
					h.ServeHTTP(rec, newRequest("Warden-Timeout", "50"))
					if cut := time.Unix(1, 0).Equal(rec.until); cut != begun || !begun && rec.Header().Get("Cache-Control") != "no-store" {
						t.Errorf("H16: %s, begun %t: %d, cut %t, %v", name, begun, rec.Code, cut, rec.Header())
					}
					if n := g.Limiter().Stats().Failed; (n > 0) != (!begun && status == http.StatusInternalServerError) {
						t.Errorf("H31: %s, begun %t: %d, %d failed", name, begun, rec.Code, n)
					}
				})
			}
		}
	}
}

// answering answers everything alike.
func answering(status int, header ...string) http.RoundTripper {
	return roundTrip(func(*http.Request) (*http.Response, error) { return respond(status, http.NoBody, header...), nil })
}

// A proxy that gives its answer up when the time is up, as httputil's does, leaves its client what there was of it, or all of ours: whoever
// gets nothing takes the server for dead, and sends the request again.
func TestAProxyThatGivesUp(t *testing.T) {
	upstream := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "8")
		_, _ = io.WriteString(w, "half")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}), false)
	begins := proxyTo(t, upstream.URL, nil)
	for name, c := range map[string]struct {
		h        http.HandlerFunc
		buffered bool
		status   int
		whole    bool
	}{
		"it has begun":           {begins.ServeHTTP, false, http.StatusOK, false},
		"buffered, it has begun": {begins.ServeHTTP, true, http.StatusGatewayTimeout, true},
		"it begins too late": {func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			w.WriteHeader(http.StatusOK)
			panic(http.ErrAbortHandler)
		}, false, http.StatusGatewayTimeout, true},
		"it does not begin": {func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			panic(http.ErrAbortHandler)
		}, false, http.StatusGatewayTimeout, true},
	} {
		t.Run(name, func(t *testing.T) {
			protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
				s := serve(newMiddleware(t, newGuard(t, 10, 0), wardenhttp.Config{Buffered: c.buffered}).Handler(c.h))
				for range 5 { // the proxy and the timer are as fast as each other
					resp := send(t, s.Client(), http.MethodPost, s.URL, http.NoBody, "Warden-Timeout", "100") // it is not sent again
					_, err := io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
					if resp.StatusCode != c.status || (err == nil) != c.whole {
						t.Errorf("H16: %s, %v", resp.Status, err)
					}
				}
			})
		})
	}
}

// What a handler, or a compressor around it, writes after the time is up is an answer in the service's own time, and 504 in a
// stranger's. No cache keeps either.
func TestALateAnswerIsKeptByNoCache(t *testing.T) {
	writes := func(w http.ResponseWriter) { w.WriteHeader(http.StatusGone) }
	compresses := func(w http.ResponseWriter) { _ = gzip.NewWriter(w).Close() }
	for name, c := range map[string]struct {
		says string // the client
		late func(http.ResponseWriter)
		want int
	}{
		"the service's time":           {"", writes, http.StatusGone},
		"the service's, of compressor": {"", compresses, http.StatusOK},
		"a stranger's":                 {"50", writes, http.StatusGatewayTimeout},
		"a stranger's, of compressor":  {"50", compresses, http.StatusGatewayTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := wardenhttp.Config{Timeout: time.Second / 10}
			s := startServer(t, newGuard(t, 1, 0).handle(t, cfg, func(w http.ResponseWriter, r *http.Request) {
				for _, name := range []string{"Cache-Control", "CDN-Cache-Control", "Expires", "Surrogate-Control", "Edge-Control"} {
					w.Header().Set(name, "max-age=7")
				}
				<-r.Context().Done()
				c.late(w)
			}), false)
			var said []string
			vary := ""
			if c.says != "" {
				said, vary = []string{"Warden-Timeout", c.says}, "Warden-Timeout"
			}
			resp, _ := get(t, s, said...)
			h := resp.Header
			if resp.StatusCode != c.want || h.Get("Cache-Control") != "no-store" || h.Get("Vary") != vary ||
				h.Get("CDN-Cache-Control")+h.Get("Expires")+h.Get("Surrogate-Control")+h.Get("Edge-Control") != "" {
				t.Errorf("H16: %s, %v", resp.Status, h)
			}
		})
	}
}
