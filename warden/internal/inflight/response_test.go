// SPDX-License-Identifier: Apache-2.0

// Responses without a body, bodies, and base transports that misbehave: when they end.

package inflight_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
)

// A response that cannot have a body has ended when it is there, over both protocols, and closing it changes nothing.
func TestResponseWithoutBodyReleasesAtOnce(t *testing.T) {
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		s := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/204":
				w.WriteHeader(http.StatusNoContent)
			case "/304":
				w.WriteHeader(http.StatusNotModified)
			default:
				_, _ = io.WriteString(w, "hello")
			}
		}))
		for _, c := range []struct{ method, path string }{
			{http.MethodHead, "/"}, {http.MethodGet, "/204"}, {http.MethodGet, "/304"},
		} {
			g := newGate(1)
			client := through(g, s)
			resp := send(t, client, c.method, s.URL+c.path)
			g.wantInFlight(t, c.method+" "+c.path, 0)
			other := send(t, client, http.MethodGet, s.URL+"/") // has the slot now
			resp.Body.Close()
			g.wantInFlight(t, "after closing the response without a body", 1)
			other.Body.Close()
			g.wantEmpty(t)
		}
	})
}

func TestHostileBaseReleases(t *testing.T) {
	failed := errors.New("on purpose")
	for name, c := range map[string]struct {
		base     roundTrip
		inFlight int // afterwards
	}{
		"error":              {func(*http.Request) (*http.Response, error) { return nil, failed }, 0},
		"panic":              {func(*http.Request) (*http.Response, error) { panic(failed) }, 0},
		"Goexit":             {func(*http.Request) (*http.Response, error) { runtime.Goexit(); return nil, nil }, 0},
		"nil and nil":        {func(*http.Request) (*http.Response, error) { return nil, nil }, 0},
		"response and error": {func(*http.Request) (*http.Response, error) { return respond(200, newPayload("")), failed }, 0},
		"nil body":           {func(*http.Request) (*http.Response, error) { return respond(200, nil), nil }, 0},
		"NoBody":             {func(*http.Request) (*http.Response, error) { return respond(200, http.NoBody), nil }, 0},
		"101 and NoBody":     {func(*http.Request) (*http.Response, error) { return respond(101, http.NoBody), nil }, 0},
		"an empty body":      {func(*http.Request) (*http.Response, error) { return respond(200, newPayload("")), nil }, 1},
		"an upgrade to read": {func(*http.Request) (*http.Response, error) { return respond(101, newPayload("")), nil }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(1)
			var want, got *http.Response
			var wantErr, err error
			rt := newTransport(g, roundTrip(func(r *http.Request) (*http.Response, error) {
				g.wantInFlight(t, "in the base", 1)
				want, wantErr = c.base(r)
				return want, wantErr
			}))
			finish(func() { got, err = rt.RoundTrip(newRequest()) })
			if got != want || !errors.Is(err, wantErr) {
				t.Errorf("H8: %v, %v; the base returned %v, %v", got, err, want, wantErr)
			}
			g.wantInFlight(t, "afterwards", c.inFlight)
			if c.inFlight > 0 {
				got.Body.Close()
			}
			g.wantEmpty(t)
		})
	}
}

func respond(status int, body io.ReadCloser) *http.Response {
	return &http.Response{StatusCode: status, Body: body}
}

func TestHostileBodyReleases(t *testing.T) {
	failed := errors.New("on purpose")
	read := func(b io.ReadCloser) { _, _ = b.Read(make([]byte, 1)) }
	shut := func(b io.ReadCloser) { b.Close() }
	for name, c := range map[string]struct {
		body hostileBody
		end  func(io.ReadCloser)
	}{
		"Read fails":                  {hostileBody{Reader: iotest.ErrReader(failed)}, read},
		"Read returns data and error": {hostileBody{Reader: iotest.DataErrReader(strings.NewReader("x"))}, read},
		"Close fails":                 {hostileBody{close: func() error { return failed }}, shut},
		"Close panics":                {hostileBody{close: func() error { panic(failed) }}, shut},
		"Close exits":                 {hostileBody{close: func() error { runtime.Goexit(); return nil }}, shut},
	} {
		for _, status := range []int{http.StatusOK, http.StatusSwitchingProtocols} {
			t.Run(name, func(t *testing.T) {
				g := newGate(1)
				resp, err := newTransport(g, roundTrip(func(*http.Request) (*http.Response, error) {
					if status == http.StatusSwitchingProtocols && c.body.close != nil {
						return respond(status, twoWay{c.body, io.Discard}), nil
					}
					return respond(status, c.body), nil
				})).RoundTrip(newRequest())
				if err != nil {
					t.Fatal(err)
				}
				g.wantInFlight(t, "with the headers", 1)
				finish(func() { c.end(resp.Body) })
				g.wantInFlight(t, "after the end", 0)
				g.wantEmpty(t)
			})
		}
	}
}

type hostileBody struct {
	io.Reader
	close func() error
}

func (b hostileBody) Close() error { return b.close() }

type twoWay struct {
	hostileBody
	io.Writer
}

// Until Close has returned, the connection may still be taken.
func TestBodyHoldsWhileCloseIsBusy(t *testing.T) {
	for _, status := range []int{http.StatusOK, http.StatusSwitchingProtocols} {
		g := newGate(1)
		resp, err := newTransport(g, roundTrip(func(*http.Request) (*http.Response, error) {
			return respond(status, twoWay{hostileBody{close: func() error {
				g.wantInFlight(t, "H8: in Close", 1)
				return nil
			}}, io.Discard}), nil
		})).RoundTrip(newRequest())
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		g.wantInFlight(t, "after Close", 0)
		g.wantEmpty(t)
	}
}

// A body that can be written is a two-way stream after 101 only; otherwise it is a file, say, and read to its end.
func TestOnlyAnUpgradeOutlivesItsEnd(t *testing.T) {
	for status, want := range map[int]int{http.StatusOK: 0, http.StatusSwitchingProtocols: 1} {
		g := newGate(1)
		resp, err := newTransport(g, roundTrip(func(*http.Request) (*http.Response, error) {
			return respond(status, twoWay{hostileBody{strings.NewReader("x"), func() error { return nil }}, io.Discard}), nil
		})).RoundTrip(newRequest())
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(resp.Body); string(got) != "x" || err != nil {
			t.Errorf("H8: %d: read %q: %v", status, got, err)
		}
		g.wantInFlight(t, http.StatusText(status)+", at the end", want)
		resp.Body.Close()
		g.wantEmpty(t)
	}
}

// A Read that has data and no end yet, or none of either, ends nothing.
func TestReadingOnHolds(t *testing.T) {
	g := newGate(1)
	resp, err := newTransport(g, roundTrip(func(*http.Request) (*http.Response, error) {
		return respond(http.StatusOK, newPayload("12")), nil
	})).RoundTrip(newRequest())
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{0, 1, 1} {
		if n, err := resp.Body.Read(make([]byte, size)); n != size || err != nil {
			t.Errorf("H8: read %d of %d: %v", n, size, err)
		}
		g.wantInFlight(t, "with no end seen", 1)
	}
	if n, err := resp.Body.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("H8: read %d: %v", n, err)
	}
	g.wantEmpty(t)
}

// A stale Close of one response cannot release the slot that another has by now.
func TestLateCloseReleasesNobodyElse(t *testing.T) {
	g := newGate(1)
	rt := newTransport(g, roundTrip(func(*http.Request) (*http.Response, error) {
		return respond(http.StatusOK, newPayload("x")), nil
	}))
	first, err := rt.RoundTrip(newRequest())
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.ReadAll(first.Body)
	second, err := rt.RoundTrip(newRequest())
	if err != nil {
		t.Fatal(err)
	}
	first.Body.Close()
	_, _ = first.Body.Read(make([]byte, 1))
	g.wantInFlight(t, "after closing the first again", 1)
	second.Body.Close()
	g.wantEmpty(t)
}
