// SPDX-License-Identifier: Apache-2.0

// A service that trusts its gateway learns which times the gateway does not vouch for (H14).

package wardenhttp_test

import (
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/retry"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// A stranger's time is his behind any gateway, and he is no more important there than here; a trusted client's time and priority count.
func TestNobodyVouchesForAStrangersTime(t *testing.T) {
	everybody := func(*http.Request) bool { return true }
	for name, base := range map[string]func(t *testing.T) http.RoundTripper{
		"a plain proxy": func(*testing.T) http.RoundTripper { return http.DefaultTransport },
		"Detach":        func(*testing.T) http.RoundTripper { return wardenhttp.Detach(nil) },
		"a transport": func(t *testing.T) http.RoundTripper {
			return newTransport(t, newGuard(t, 1, 0), wardenhttp.Detach(nil))
		},
		"what asks again": func(t *testing.T) http.RoundTripper {
			return newRetry(t, newCaller(t, retry.Config{Attempts: 1}), wardenhttp.RetryConfig{Base: wardenhttp.Detach(nil)})
		},
	} {
		for _, trusted := range []bool{false, true} {
			f, inside := new(fuse), newGuard(t, 1, 0)
			next := compartment(t, bulkhead.CompartmentConfig{Breaker: f})
			inner := startServer(t, newMiddleware(t, inside, wardenhttp.Config{Trusted: everybody}).Handler(http.HandlerFunc(
				func(w http.ResponseWriter, r *http.Request) {
					if important := warden.PriorityFrom(r.Context()) == decision.Critical; important != trusted {
						t.Errorf("H4: %s, trusted %t: a stranger's request is critical behind it: %t", name, trusted, important)
					}
					_, err := bulkhead.Do(r.Context(), next, func(ctx context.Context) (int, error) {
						<-ctx.Done()
						return 0, context.Cause(ctx)
					})
					wardenhttp.WriteError(w, next, err)
				})), false)
			cfg, front := wardenhttp.Config{}, newGuard(t, 1, 0)
			if trusted {
				cfg.Trusted = everybody
			}
			to := must(url.Parse(inner.URL))(t)
			s := startServer(t, newMiddleware(t, front, cfg).Handler(&httputil.ReverseProxy{
				Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(to) }, Transport: base(t), ErrorLog: log.New(io.Discard, "", 0),
			}), false)
			req := must(http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, http.NoBody))(t)
			req.Header.Set("Warden-Timeout", "100")
			req.Header.Set("Warden-Priority", "critical")
			req.Header.Set("Connection", "Warden-Timeout-Untrusted, X-Own")
			resp := must(s.Client().Do(req))(t)
			resp.Body.Close()
			front.wantEmpty(t)
			inside.wantEmpty(t)
			f.mu.Lock()
			leaves := trusted && name == "a plain proxy" // whoever is faster: it, or the time
			if len(f.told) != 1 || bulkhead.IsExcluded(f.told[0]) == trusted && !leaves {
				t.Errorf("H14: %s, trusted %t: the breaker was told %v", name, trusted, f.told)
			}
			f.mu.Unlock()
		}
	}
}
