// The server's side: what a handler may do, and when its request ends.

package admissionhttp_test

import (
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stopbank/stopbank/admission"
	"github.com/stopbank/stopbank/admission/admissionhttp"
)

func TestA4_RejectedRequestNeverReachesTheHandler(t *testing.T) {
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		g := newGate(t, "server", 1)
		entered, finish := make(chan struct{}), make(chan struct{})
		var calls atomic.Int32
		s := serve(newHandler(t, g, func(w http.ResponseWriter, _ *http.Request) {
			if calls.Add(1) == 1 {
				close(entered)
				<-finish
			}
			w.WriteHeader(http.StatusAccepted)
		}))

		first := make(chan error, 1)
		go func() {
			resp, err := post(t, s)
			if err == nil {
				err = resp.Body.Close()
			}
			first <- err
		}()
		await(t, "the first request", entered)
		for range 3 {
			resp := wantStatus(t, s, http.StatusServiceUnavailable)
			if got := resp.Header.Get("Retry-After"); got != "1" {
				t.Errorf("Retry-After: %q, want 1", got)
			}
			if got := resp.Header.Get("Content-Type"); !strings.HasPrefix(got, "text/plain") {
				t.Errorf("Content-Type: %q, want text/plain", got)
			}
		}
		if got := calls.Load(); got != 1 {
			t.Errorf("the handler was called %d times, want 1", got)
		}
		close(finish)
		if err := <-first; err != nil {
			t.Error(err)
		}
		g.wantEmpty(t)
		wantStatus(t, s, http.StatusAccepted)
		if _, rejected, _, _ := g.counts(); rejected != 3 {
			t.Errorf("%d rejected, want 3", rejected)
		}
	})
}

func TestRetryAfterIsWholeSecondsAndAtLeastOne(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                         "1",
		1:                         "1",
		time.Second:               "1",
		time.Second + 1:           "2",
		1500 * time.Millisecond:   "2",
		time.Minute:               "60",
		time.Duration(1<<63 - 1):  "9223372037",
		9223372036 * time.Second:  "9223372036",
		math.MaxInt64 - time.Hour: "9223368437",
	} {
		h, err := admissionhttp.NewHandler(http.NotFoundHandler(), admissionhttp.HandlerConfig{Gate: new(admission.Gate), RetryAfter: d})
		if err != nil {
			t.Fatal(err)
		}
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
		if rec.Code != http.StatusServiceUnavailable || rec.Header().Get("Retry-After") != want {
			t.Errorf("%v: status %d, Retry-After %q, want 503 and %q", d, rec.Code, rec.Header().Get("Retry-After"), want)
		}
	}
}

func TestA4_RejectedHandlerAnswersInstead(t *testing.T) {
	h, err := admissionhttp.NewHandler(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler was called") }),
		admissionhttp.HandlerConfig{
			Gate:     new(admission.Gate), // the zero Gate admits nobody
			Rejected: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) }),
		})
	if err != nil {
		t.Fatal(err)
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	if rec.Code != http.StatusTooManyRequests || rec.Header().Get("Retry-After") != "" {
		t.Errorf("status %d, header %v, want 429 and nothing added", rec.Code, rec.Header())
	}
}

func TestA10_ClosedGateRejectsAndLetsTheRestEnd(t *testing.T) {
	g := newGate(t, "server", 1)
	entered, finish := make(chan struct{}), make(chan struct{})
	s := startServer(t, newHandler(t, g, func(http.ResponseWriter, *http.Request) {
		close(entered)
		<-finish
	}), false)
	first := make(chan error, 1)
	go func() {
		resp, err := post(t, s)
		if err == nil {
			err = resp.Body.Close()
		}
		first <- err
	}()
	await(t, "the first request", entered)
	g.Close()
	wantStatus(t, s, http.StatusServiceUnavailable)
	close(finish)
	if err := <-first; err != nil {
		t.Errorf("the request in flight: %v", err)
	}
	g.wantEmpty(t)
	wantStatus(t, s, http.StatusServiceUnavailable)
	if got := g.Stats().RejectedClosed; got != 2 {
		t.Errorf("%d rejected as closed, want 2", got)
	}
}

func TestA2_HandlerReleasesHoweverItEnds(t *testing.T) {
	ends := map[string]func(http.ResponseWriter, *http.Request){
		"returns":          func(http.ResponseWriter, *http.Request) {},
		"panics":           func(http.ResponseWriter, *http.Request) { panic("on purpose") },
		"aborts":           func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"exits":            func(http.ResponseWriter, *http.Request) { runtime.Goexit() },
		"panics half way":  func(w http.ResponseWriter, _ *http.Request) { startBody(w); panic("on purpose") },
		"exits half way":   func(w http.ResponseWriter, _ *http.Request) { startBody(w); runtime.Goexit() },
		"client goes away": func(w http.ResponseWriter, r *http.Request) { startBody(w); <-r.Context().Done() },
	}
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		for name, end := range ends {
			t.Run(name, func(t *testing.T) {
				g := newGate(t, "server", 1)
				s := serve(newHandler(t, g, func(w http.ResponseWriter, r *http.Request) {
					g.wantInFlight(t, "in the handler", 1)
					end(w, r)
				}))
				for range 2 { // the second request needs the place of the first
					if resp, err := post(t, s); err == nil {
						if resp.StatusCode == http.StatusServiceUnavailable {
							t.Error("rejected")
						}
						resp.Body.Close()
					}
					g.wantEmpty(t)
				}
				if admitted, rejected, _, _ := g.counts(); admitted != 2 || rejected != 0 {
					t.Errorf("%d admitted, %d rejected, want 2 and 0", admitted, rejected)
				}
			})
		}
	})
}

// startBody sends the header and a first piece of the body, so that the client has a response.
func startBody(w http.ResponseWriter) {
	_, _ = io.WriteString(w, "begin")
	_ = http.NewResponseController(w).Flush()
}

func TestA2_PanicKeepsItsStack(t *testing.T) {
	g := newGate(t, "server", 1)
	h := newHandler(t, g, explode)
	defer func() {
		if v := recover(); v != "on purpose" {
			t.Errorf("recovered %v", v)
		}
		if stack := string(debug.Stack()); !strings.Contains(stack, "admissionhttp_test.explode(") {
			t.Errorf("the stack does not show who panicked:\n%s", stack)
		}
		g.wantEmpty(t)
	}()
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", http.NoBody))
}

func explode(http.ResponseWriter, *http.Request) { panic("on purpose") }

// A writer whose Unwrap panics does so after admission.
func TestA2_HostileWriterReleases(t *testing.T) {
	g := newGate(t, "server", 1)
	h := newHandler(t, g, func(http.ResponseWriter, *http.Request) {})
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
		g.wantEmpty(t)
	}()
	h.ServeHTTP(hostileWriter{httptest.NewRecorder()}, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
}

type hostileWriter struct{ http.ResponseWriter }

func (hostileWriter) Unwrap() http.ResponseWriter { panic("on purpose") }

func TestA1_HandlersNeverExceedTheLimit(t *testing.T) {
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		const limit, clients, requests = 3, 12, 20
		g := newGate(t, "server", limit)
		var now, calls atomic.Int64
		s := serve(newHandler(t, g, func(http.ResponseWriter, *http.Request) {
			calls.Add(1)
			if n := now.Add(1); n > limit {
				t.Errorf("%d handlers at once", n)
			}
			runtime.Gosched()
			now.Add(-1)
		}))
		var answered [600]atomic.Int64
		done := make(chan error, clients)
		for range clients {
			go func() {
				for range requests {
					resp, err := post(t, s)
					if err != nil {
						done <- err
						return
					}
					answered[resp.StatusCode].Add(1)
					resp.Body.Close()
				}
				done <- nil
			}()
		}
		for range clients {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		g.wantEmpty(t)
		admitted, rejected, _, _ := g.counts()
		ok, refused := int(answered[http.StatusOK].Load()), int(answered[http.StatusServiceUnavailable].Load())
		if ok != admitted || int(calls.Load()) != admitted || refused != rejected || ok+refused != clients*requests {
			t.Errorf("%d ok, %d calls, %d admitted; %d refused, %d rejected; of %d", ok, calls.Load(), admitted, refused, rejected, clients*requests)
		}
	})
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
