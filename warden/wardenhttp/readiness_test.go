// Readiness falls when it is told to, and for nothing else.

package wardenhttp_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stopbank/stopbank/warden/wardenhttp"
)

func TestH20_ReadyUntilItDrains(t *testing.T) {
	var ready wardenhttp.Readiness
	g := newGuard(t, 0, 0) // which refuses everything
	mux := http.NewServeMux()
	mux.Handle("/readyz", &ready)
	m := newMiddleware(t, g, wardenhttp.Config{Exempt: func(r *http.Request) bool { return r.URL.Path == "/readyz" }})
	ask := func(path string) int {
		rec := httptest.NewRecorder()
		m.Handler(mux).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, http.NoBody))
		return rec.Code
	}
	for range 100 {
		if got := ask("/"); got != http.StatusServiceUnavailable {
			t.Fatalf("a request: %d", got)
		}
		if got := ask("/readyz"); got != http.StatusOK {
			t.Fatalf("while it sheds: %d", got)
		}
	}
	for range 2 {
		if ready.Drain(); ask("/readyz") != http.StatusServiceUnavailable {
			t.Error("ready while it drains")
		}
	}
}

func TestNilReadinessAnswers500(t *testing.T) {
	var none *wardenhttp.Readiness
	none.Drain()
	rec := httptest.NewRecorder()
	if none.ServeHTTP(rec, newRequest()); rec.Code != http.StatusInternalServerError {
		t.Errorf("answered %d", rec.Code)
	}
}
