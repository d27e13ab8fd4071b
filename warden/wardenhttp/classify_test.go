// SPDX-License-Identifier: Apache-2.0

// What a request is to the warden, and what a client's headers can do about it. What their values mean, package wire knows and tests.

package wardenhttp_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// taskOf is what the limiter is asked for r.
func taskOf(t testing.TB, cfg wardenhttp.Config, r *http.Request) warden.Task {
	t.Helper()
	g := newGuard(t, 1, 0)
	newMiddleware(t, g, cfg).Handler(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), r)
	if len(g.tasks) != 1 {
		t.Fatalf("%d tasks", len(g.tasks))
	}
	return g.tasks[0]
}

func TestTrustIsAskedForThisRequest(t *testing.T) {
	asked := 0
	cfg := wardenhttp.Config{Trusted: func(r *http.Request) bool { asked++; return r.Host == "inside" }}
	for host, want := range map[string]decision.Priority{"inside": 100, "outside": 0} {
		r := newRequest("Warden-Priority", "100", "X-Envoy-Expected-Rq-Timeout-Ms", "60000")
		r.Host = host
		if got := taskOf(t, cfg, r); got.Priority != want || got.Deadline.IsZero() {
			t.Errorf("H4: %s: %+v", host, got)
		}
	}
	if taskOf(t, cfg, newRequest()); asked != 2 {
		t.Errorf("H4: asked %d times, want 2: not for a request that says nothing", asked)
	}
}

// What is asked of a context or of a compartment is the priority that a stranger may only lower, and the one that goes on.
func TestTheBaseMayBeTheContextsOrTheCompartments(t *testing.T) {
	set := must(bulkhead.New(bulkhead.Config{
		Total: 1, Compartments: []bulkhead.CompartmentConfig{{Name: "high", Guaranteed: 1, Criticality: decision.High}},
	}))(t)
	for _, c := range []struct {
		said       string
		trusted    bool
		task, want decision.Priority
	}{
		{"", false, 0, decision.High}, {"critical", false, 0, decision.High}, {"critical", true, 0, decision.Critical},
		{"normal", false, 0, decision.Normal},
		{"background", false, 0, decision.Background}, {"70", false, 0, decision.High}, {"", false, -3, -3}, {"5", false, -3, -3},
		{"-5", false, -3, -5},
	} {
		for _, in := range []*bulkhead.Compartment{nil, set.Compartment("high")} {
			cfg := wardenhttp.Config{Trusted: always(c.trusted)}
			r := newRequest()
			if in == nil {
				r = r.WithContext(warden.WithPriority(r.Context(), decision.High))
				cfg.Task = func(*http.Request) warden.Task { return warden.Task{Priority: c.task} }
			} else {
				cfg.Compartment = func(*http.Request) *bulkhead.Compartment { return in }
				if c.task != 0 {
					continue // it has no tasks
				}
			}
			if c.said != "" {
				r.Header.Set("Warden-Priority", c.said)
			}
			got := decision.Priority(99)
			newGuard(t, 1, 0).handle(t, cfg, func(_ http.ResponseWriter, r *http.Request) {
				got = warden.PriorityFrom(r.Context())
			}).ServeHTTP(httptest.NewRecorder(), r)
			if got != c.want {
				t.Errorf("H4: %+v, compartment %v: %v", c, in != nil, got)
			}
		}
	}
}

// FuzzHeaders holds the promise itself against whatever a client says: package wire has fuzzers of how it is read.
func FuzzHeaders(f *testing.F) {
	f.Add("critical", "1000", "u=0, i", int8(0), false, false)
	f.Add("-128", "0", "u=7", int8(5), true, false)
	f.Add("127", "86400001", "u=7, i", int8(-5), true, true)
	f.Add("+1", "-1", "u=7", int8(127), true, false)
	f.Add("99999999999999999999", "99999999999999999999", "", int8(-128), false, true)
	f.Fuzz(func(t *testing.T, rank, left, urgent string, ours int8, trusted, twice bool) {
		r := newRequest()
		r.Header["Warden-Priority"], r.Header["Warden-Timeout"], r.Header["Priority"] = []string{rank}, []string{left}, []string{urgent}
		if twice {
			for name, values := range r.Header {
				r.Header[name] = append(values, values[0])
			}
		}
		due := time.Now().Add(48 * time.Hour)
		got := taskOf(t, wardenhttp.Config{
			Task:    func(*http.Request) warden.Task { return warden.Task{Priority: decision.Priority(ours), Deadline: due} },
			Trusted: always(trusted),
		}, r)
		if !trusted && got.Priority > decision.Priority(ours) || got.Deadline.After(due) {
			t.Fatalf("H4: %q, %q, %q made %+v of priority %d", rank, left, urgent, got, ours)
		}
		if twice && (got.Priority != decision.Priority(ours) || !got.Deadline.Equal(due)) {
			t.Fatalf("H4: %q, %q, %q twice: %+v", rank, left, urgent, got)
		}
	})
}
