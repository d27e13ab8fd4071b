// SPDX-License-Identifier: Apache-2.0

// Readers that mean harm: they ask and do not read, from other sites, by names that are not the console's. And names that are
// alike.

package console

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/limiter"
)

// No more than maxStreams are sent state.json at once, and the next one is as soon as one of them has it.
func TestStateBound(t *testing.T) {
	c := mustNew(t, Config{Warden: mustWarden(t, new(script))})
	c.maxStreams = 2
	slow := &blocked{free: make(chan struct{}), writing: make(chan struct{}, 2)}
	done := make(chan struct{}, 2)
	for range 2 {
		go func() {
			c.ServeHTTP(slow, httptest.NewRequest(http.MethodGet, "http://localhost/state.json", nil))
			done <- struct{}{}
		}()
		<-slow.writing
	}
	if w := ask(c, "state.json"); w.Code != 503 || at(t, decode(t, w.Body.String()), "code") != "busy" ||
		w.Header().Get("Retry-After") == "" {
		t.Errorf("the third: %d, %s", w.Code, w.Body)
	}
	close(slow.free)
	<-done
	<-done
	if w := ask(c, "state.json"); w.Code != 200 {
		t.Errorf("afterwards: %d, %s", w.Code, w.Body)
	}
}

// timed is a reader with a deadline.
type timed struct {
	*httptest.ResponseRecorder
	until time.Time
}

func (w *timed) SetWriteDeadline(until time.Time) error { w.until = until; return nil }

// Who asks for an answer and does not read it is cut off.
func TestAnswersHaveADeadline(t *testing.T) {
	c := mustNew(t, Config{Warden: mustWarden(t, new(script))})
	for _, path := range []string{"", "state.json", "page.js"} {
		w := &timed{ResponseRecorder: httptest.NewRecorder()}
		c.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost/"+path, nil))
		if left := time.Until(w.until); left <= 0 || left > c.writeTimeout {
			t.Errorf("%s: %v are left", path, left)
		}
	}
}

// blocked is a reader that does not read for a while.
type blocked struct{ free, writing chan struct{} }

func (b *blocked) Header() http.Header { return http.Header{} }
func (b *blocked) WriteHeader(int)     {}
func (b *blocked) Write(p []byte) (int, error) {
	b.writing <- struct{}{}
	<-b.free
	return len(p), nil
}

// TestStrangers: a page of another site, or of a name that points here, is told nothing; what is no browser is not bothered.
func TestStrangers(t *testing.T) {
	c := mustNew(t, Config{Warden: mustWarden(t, new(script)), Hosts: []string{"Ops.example.com"}})
	guarded := c.Guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `"version":1 and text/html`)
	}))
	for _, x := range []struct {
		host, site, dest string
		code             string // "": it is answered
	}{
		{"localhost", "", "", ""},
		{"localhost:6060", "same-origin", "empty", ""},
		{"LOCALHOST:6060", "none", "document", ""},
		{"127.0.0.1", "", "", ""},
		{"127.0.0.1:6060", "same-origin", "empty", ""},
		{"[::1]:6060", "", "", ""},
		{"[::1]", "", "", ""},
		{"10.1.2.3:6060", "", "", ""},
		{"ops.example.com:443", "same-origin", "empty", ""},
		{"", "", "", ""},
		{"evil.example", "", "", "unknown_host"},
		{"evil.example:6060", "same-origin", "empty", "unknown_host"},
		{"localhost.evil.example", "none", "document", "unknown_host"},
		{"127.0.0.1.evil.example:80", "", "", "unknown_host"},
		{"x.ops.example.com", "", "", "unknown_host"},
		{"localhost:6060", "cross-site", "empty", "cross_site"},
		{"localhost:6060", "cross-site", "iframe", "cross_site"},
		{"localhost:6060", "same-site", "script", "cross_site"},
		{"localhost:6060", "cross-site", "document", ""}, // a link in a wiki
		{"10.1.2.3:6060", "from http://evil.example", "", "cross_site"},
		{"10.1.2.3:6060", "from null", "", "cross_site"},
		{"10.1.2.3:6060", "from http://10.1.2.3:6060", "", ""},
	} {
		for _, path := range []string{"/", "/state.json", "/metrics"} {
			x, h := x, http.Handler(c)
			if path == "/metrics" {
				h = guarded
			}
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.Host = x.host
			from, old := strings.CutPrefix(x.site, "from ")
			if old {
				r.Header.Set("Origin", from)
				x.site = ""
			}
			for name, value := range map[string]string{"Sec-Fetch-Site": x.site, "Sec-Fetch-Dest": x.dest} {
				if value != "" {
					r.Header.Set(name, value)
				}
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			switch body := w.Body.String(); {
			case x.code == "" && (w.Code != 200 || !strings.Contains(body, "version") && !strings.Contains(body, "html")):
				t.Errorf("%+v %s: %d, %.100s", x, path, w.Code, body)
			case x.code != "" && (w.Code != 403 || at(t, decode(t, body), "code") != x.code):
				t.Errorf("%+v %s: %d, %.100s", x, path, w.Code, body)
			}
		}
	}
	anybody := mustNew(t, Config{Warden: mustWarden(t, new(script)), Hosts: []string{"*"}})
	w := httptest.NewRecorder()
	if anybody.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://evil.example/state.json", nil)); w.Code != 200 {
		t.Errorf("any host: %d", w.Code)
	}
}

// Names that are alike as far as they are shown stay apart, also in what is remembered of them.
func TestLongNamesStayApart(t *testing.T) {
	long := strings.Repeat("n", 300)
	c := mustNew(t, Config{
		Set: mustSet(t, bulkhead.CompartmentConfig{Name: long + "a", Guaranteed: 1},
			bulkhead.CompartmentConfig{Name: long + "b", Guaranteed: 1}),
		Limiters: map[string]*limiter.Limiter{long + "a": mustLimiter(t, 1), long + "b": mustLimiter(t, 1)},
	})
	_, body := get(t, mount(t, c)+"state.json")
	s := decode(t, body)
	names := map[string]bool{}
	for i := range 2 {
		names["compartment:"+fmt.Sprint(at(t, s, "set", "compartments", i, "name"))] = true
		names["limiter:"+fmt.Sprint(at(t, s, "limiters", i, "name"))] = true
	}
	pools := at(t, s, "pools", 0, "pools").(map[string]any)
	if len(names) != 4 || len(pools) != 4 {
		t.Errorf("%d names, %d of them remembered", len(names), len(pools))
	}
	for name := range names {
		if _, ok := pools[name]; !ok || len(name) > longestName+40 {
			t.Errorf("%s: remembered %v", name, ok)
		}
	}
}
