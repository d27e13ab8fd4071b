// SPDX-License-Identifier: Apache-2.0

// The client's side on real connections: when a request ends.

package inflight_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"sync"
	"testing"
)

// through is a client of s whose requests go through g.
func through(g *gate, s *httptest.Server) *http.Client {
	return &http.Client{Transport: newTransport(g, s.Client().Transport)}
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

// What ends a request, on real connections. Each case ends the response that it gets; before, it is in flight although
// its headers have come.
func TestResponseHoldsUntilItsBodyEnds(t *testing.T) {
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		for name, end := range map[string]func(*testing.T, *http.Response, context.CancelFunc, func()){
			"read to the end": func(t *testing.T, r *http.Response, _ context.CancelFunc, finish func()) {
				finish()
				if got, err := io.ReadAll(r.Body); string(got) != "begin, end" || err != nil {
					t.Errorf("H8: read %q: %v", got, err)
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
					t.Errorf("H8: read: %v", err)
				}
			},
			"broken by the server": func(t *testing.T, r *http.Response, _ context.CancelFunc, finish func()) {
				finish()
				if _, err := io.ReadAll(r.Body); err == nil {
					t.Error("H8: read to the end")
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
				g := newGate(1)
				client := through(g, s)
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

func TestInformationalResponsesEndNothing(t *testing.T) {
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		s := serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for range 2 {
				w.WriteHeader(http.StatusEarlyHints)
			}
			_, _ = io.WriteString(w, "hello")
		}))
		g := newGate(1)
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
		resp, err := through(g, s).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		g.wantInFlight(t, "with the headers", 1)
		if hints != 2 || resp.StatusCode != http.StatusOK {
			t.Errorf("H8: %d hints, then %s", hints, resp.Status)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Error(err)
		}
		g.wantEmpty(t)
	})
}

// A client that follows redirects has closed a response before it asks for the next request's permit.
func TestRedirectReleasesBeforeTheNextRequest(t *testing.T) {
	s := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hops := len(r.URL.Path); hops < 4 {
			http.Redirect(w, r, r.URL.Path+"x", http.StatusFound)
		}
	}), false)
	g := newGate(1)
	resp := send(t, through(g, s), http.MethodGet, s.URL+"/")
	resp.Body.Close()
	g.wantEmpty(t)
	if g.admitted != 4 || g.rejected != 0 || resp.StatusCode != http.StatusOK {
		t.Errorf("H8: %d admitted, %d rejected, then %s", g.admitted, g.rejected, resp.Status)
	}
}
