// The client's side: what is sent, and when a request ends.

package wardenhttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// through is a client of s whose requests go through g.
func through(t *testing.T, g *guard, s *httptest.Server) *http.Client {
	t.Helper()
	return &http.Client{Transport: newTransport(t, g, s.Client().Transport)}
}

func send(t *testing.T, c *http.Client, method, url string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func TestH8_RejectedRequestIsNotSent(t *testing.T) {
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		var arrived atomic.Int32
		s := serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			arrived.Add(1)
			startBody(w)
		}))
		g := newGuard(t, 1, 0)
		client := through(t, g, s)
		first := send(t, client, http.MethodPost, s.URL)
		for range 3 {
			sent := newPayload("a body")
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, sent)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client.Do(req)
			if resp != nil {
				t.Fatalf("a response: %v", resp.Status)
			}
			var rejected *warden.Rejection
			var outer *url.Error
			if !errors.Is(err, warden.ErrRejected) || !errors.As(err, &rejected) || !errors.As(err, &outer) {
				t.Fatalf("error %v", err)
			}
			if rejected.Reason != limiter.PressureHigh || rejected.Task.Name != req.URL.Host {
				t.Errorf("%v", rejected)
			}
			if got := sent.closes.Load(); got != 1 {
				t.Errorf("the request's body was closed %d times, want 1", got)
			}
		}
		first.Body.Close()
		g.wantEmpty(t)
		last := send(t, client, http.MethodPost, s.URL)
		last.Body.Close()
		if got := arrived.Load(); got != 2 {
			t.Errorf("%d requests arrived, want 2", got)
		}
		g.wantEmpty(t)
	})
}

func TestH8_ClosedLimiterSendsNothing(t *testing.T) {
	g := newGuard(t, 1, 0)
	g.Limiter().Close()
	rt := newTransport(t, g, roundTrip(func(*http.Request) (*http.Response, error) {
		t.Error("sent")
		return nil, errors.New("sent")
	}))
	var rejected *warden.Rejection
	if _, err := rt.RoundTrip(newRequest()); !errors.As(err, &rejected) || rejected.Reason != limiter.Closed {
		t.Errorf("error %v", err)
	}
}

// What ends a request, on real connections. Each case ends the response that it gets; before, it is in flight although
// its headers have come.
func TestH8_ResponseHoldsUntilItsBodyEnds(t *testing.T) {
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		for name, end := range map[string]func(*testing.T, *http.Response, context.CancelFunc, func()){
			"read to the end": func(t *testing.T, r *http.Response, _ context.CancelFunc, finish func()) {
				finish()
				if got, err := io.ReadAll(r.Body); string(got) != "begin, end" || err != nil {
					t.Errorf("read %q: %v", got, err)
				}
			},
			"closed unread": func(_ *testing.T, r *http.Response, _ context.CancelFunc, _ func()) { r.Body.Close() },
			"closed half read": func(t *testing.T, r *http.Response, _ context.CancelFunc, _ func()) {
				if _, err := io.ReadFull(r.Body, make([]byte, 3)); err != nil {
					t.Error(err)
				}
				r.Body.Close()
			},
			"canceled while reading": func(t *testing.T, r *http.Response, cancel context.CancelFunc, _ func()) {
				if _, err := io.ReadFull(r.Body, make([]byte, 5)); err != nil {
					t.Error(err)
				}
				failed := make(chan error)
				go func() {
					_, err := io.ReadAll(r.Body)
					failed <- err
				}()
				cancel()
				if err := <-failed; !errors.Is(err, context.Canceled) {
					t.Errorf("read: %v", err)
				}
			},
			"broken by the server": func(t *testing.T, r *http.Response, _ context.CancelFunc, finish func()) {
				finish()
				if _, err := io.ReadAll(r.Body); err == nil {
					t.Error("read to the end")
				}
			},
			"closed twice": func(_ *testing.T, r *http.Response, _ context.CancelFunc, _ func()) {
				r.Body.Close()
				r.Body.Close()
			},
			"closed while reading": func(_ *testing.T, r *http.Response, _ context.CancelFunc, _ func()) {
				var all sync.WaitGroup
				all.Go(func() { _, _ = io.ReadAll(r.Body) })
				all.Go(func() { r.Body.Close() })
				all.Go(func() { r.Body.Close() })
				all.Wait()
			},
		} {
			t.Run(name, func(t *testing.T) {
				finished := make(chan struct{})
				finish := sync.OnceFunc(func() { close(finished) })
				s := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					startBody(w)
					select {
					case <-finished:
					case <-r.Context().Done():
						return
					}
					if name == "broken by the server" {
						panic(http.ErrAbortHandler)
					}
					_, _ = io.WriteString(w, ", end")
				}))
				g := newGuard(t, 1, 0)
				client := through(t, g, s)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				g.wantInFlight(t, "with the headers", 1)
				end(t, resp, cancel, finish)
				g.wantInFlight(t, "after the end", 0)
				g.wantEmpty(t)
				resp.Body.Close()
				finish()
				again := send(t, client, http.MethodPost, s.URL)
				again.Body.Close()
				g.wantEmpty(t)
			})
		}
	})
}

func TestH8_InformationalResponsesEndNothing(t *testing.T) {
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		s := serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for range 2 {
				w.WriteHeader(http.StatusEarlyHints)
			}
			_, _ = io.WriteString(w, "hello")
		}))
		g := newGuard(t, 1, 0)
		hints := 0
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(int, textproto.MIMEHeader) error {
				hints++
				g.wantInFlight(t, "at the hint", 1)
				return nil
			},
		})
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := through(t, g, s).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		g.wantInFlight(t, "with the headers", 1)
		if hints != 2 || resp.StatusCode != http.StatusOK {
			t.Errorf("%d hints, then %s", hints, resp.Status)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Error(err)
		}
		g.wantEmpty(t)
	})
}

// A client that follows redirects has closed a response before it asks for the next one's place.
func TestH8_RedirectReleasesBeforeTheNextRequest(t *testing.T) {
	s := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hops := len(r.URL.Path); hops < 4 {
			http.Redirect(w, r, r.URL.Path+"x", http.StatusFound)
		}
	}), false)
	g := newGuard(t, 1, 0)
	resp := send(t, through(t, g, s), http.MethodGet, s.URL+"/")
	resp.Body.Close()
	g.wantEmpty(t)
	if started, refused, _, _ := g.counts(); started != 4 || refused != 0 || resp.StatusCode != http.StatusOK {
		t.Errorf("%d started, %d refused, then %s", started, refused, resp.Status)
	}
}

func TestRequestIsPassedOnUnchanged(t *testing.T) {
	for _, limit := range []int{0, 1} {
		g := newGuard(t, limit, 0)
		req := httptest.NewRequest(http.MethodPost, "/path?q=1", newPayload("body"))
		req.Header.Set("X", "y")
		before := *req
		header := req.Header.Clone()
		rt := newTransport(t, g, roundTrip(func(r *http.Request) (*http.Response, error) {
			if r != req {
				t.Error("another request was sent")
			}
			return respond(http.StatusOK, http.NoBody), nil
		}))
		if _, err := rt.RoundTrip(req); (err != nil) != (limit == 0) {
			t.Errorf("limit %d: %v", limit, err)
		}
		if !reflect.DeepEqual(*req, before) || !reflect.DeepEqual(req.Header, header) {
			t.Errorf("limit %d: the request was changed", limit)
		}
	}
}

func TestCloseIdleConnectionsReachesTheBase(t *testing.T) {
	base := &idler{}
	client := &http.Client{Transport: newTransport(t, newGuard(t, 1, 0), base)}
	client.CloseIdleConnections()
	if base.closed != 1 {
		t.Errorf("called %d times, want 1", base.closed)
	}
	client.Transport = newTransport(t, newGuard(t, 1, 0), roundTrip(nil))
	client.CloseIdleConnections() // the base cannot: nothing happens
}

type idler struct {
	http.RoundTripper
	closed int
}

func (i *idler) CloseIdleConnections() { i.closed++ }

func TestNilBaseIsTheDefaultTransport(t *testing.T) {
	s := startServer(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), false)
	client := &http.Client{Transport: newTransport(t, newGuard(t, 1, 0), nil)}
	defer client.CloseIdleConnections()
	resp := send(t, client, http.MethodGet, s.URL)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Error(resp.Status)
	}
}

func TestInvalidTransportConfig(t *testing.T) {
	for _, w := range []*warden.Warden{nil, {}} {
		rt, err := wardenhttp.NewTransport(w, wardenhttp.TransportConfig{Base: http.DefaultTransport})
		var invalid *warden.InvalidError
		if rt != nil || !errors.Is(err, warden.ErrInvalid) || !errors.As(err, &invalid) || invalid.Field != "w" || invalid.Allowed == "" {
			t.Errorf("%v, %v", rt, err)
		}
	}
}

func TestZeroTransportRefuses(t *testing.T) {
	var rt wardenhttp.Transport
	sent := newPayload("")
	resp, err := rt.RoundTrip(httptest.NewRequest(http.MethodPost, "/", sent))
	if resp != nil || !errors.Is(err, warden.ErrInvalid) || sent.closes.Load() != 1 {
		t.Errorf("%v, %v, body closed %d times", resp, err, sent.closes.Load())
	}
	rt.CloseIdleConnections()
}
