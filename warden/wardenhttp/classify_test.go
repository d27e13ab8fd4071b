// SPDX-License-Identifier: Apache-2.0

// What a request is to the warden, and what a client's headers can do about it.

package wardenhttp_test

import (
	"context"
	"math/big"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
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

func everybody(*http.Request) bool { return true }

func TestPriorityHeader(t *testing.T) {
	const ours = 10
	for _, c := range []struct {
		values           []string
		stranger, friend decision.Priority
	}{
		{nil, ours, ours},
		{[]string{"background"}, decision.Background, decision.Background},
		{[]string{"normal"}, 0, 0},
		{[]string{"high"}, ours, decision.High},
		{[]string{"critical"}, ours, decision.Critical},
		{[]string{"9"}, 9, 9},
		{[]string{"10"}, ours, ours},
		{[]string{"11"}, ours, 11},
		{[]string{"127"}, ours, 127},
		{[]string{"-128"}, -128, -128},
		{[]string{"128"}, ours, ours},
		{[]string{"-129"}, ours, ours},
		{[]string{"999999999999999999999"}, ours, ours},
		{[]string{"-99999999999999999999"}, ours, ours},
		{[]string{"+5"}, ours, ours},
		{[]string{"5.0"}, ours, ours},
		{[]string{"0x5"}, ours, ours},
		{[]string{"1_0"}, ours, ours},
		{[]string{" 5"}, ours, ours},
		{[]string{"5, 6"}, ours, ours},
		{[]string{"Critical"}, ours, ours},
		{[]string{"lowest"}, ours, ours},
		{[]string{""}, ours, ours},
		{[]string{"٣"}, ours, ours},
		{[]string{"5", "5"}, ours, ours},
		{[]string{"-128", "127"}, ours, ours},
	} {
		r := newRequest()
		r.Header["Warden-Priority"] = c.values
		cfg := wardenhttp.Config{Task: func(*http.Request) warden.Task { return warden.Task{Priority: ours} }}
		if got := taskOf(t, cfg, r).Priority; got != c.stranger {
			t.Errorf("H4: %q of a stranger: %d, want %d", c.values, got, c.stranger)
		}
		cfg.Trusted = everybody
		if got := taskOf(t, cfg, r).Priority; got != c.friend {
			t.Errorf("H4: %q of a friend: %d, want %d", c.values, got, c.friend)
		}
	}
}

func TestTimeoutHeader(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"1000": time.Second, "1": time.Millisecond, "86400000": 24 * time.Hour, "00000500": 500 * time.Millisecond,
		"": 0, "0": 0, "-1": 0, "+1": 0, "86400001": 0, "99999999": 0, "999999999999999999999999": 0, "1.5": 0, "1e3": 0,
		"1s": 0, " 1": 0, "1 ": 0, "abc": 0, "٣": 0,
	} {
		for _, trusted := range []func(*http.Request) bool{nil, everybody} {
			r := newRequest()
			r.Header.Set("Warden-Timeout", value)
			before := time.Now()
			got := taskOf(t, wardenhttp.Config{Trusted: trusted}, r).Deadline
			switch {
			case want == 0:
				if !got.IsZero() {
					t.Errorf("H4: %q, trusted %v: a deadline, %v", value, trusted != nil, got.Sub(before))
				}
			case got.Before(before.Add(want)) || got.After(time.Now().Add(want)):
				t.Errorf("H4: %q: %v, want %v", value, got.Sub(before), want)
			}
		}
	}
	twice := newRequest()
	twice.Header["Warden-Timeout"] = []string{"5", "5"}
	if got := taskOf(t, wardenhttp.Config{Trusted: everybody}, twice).Deadline; !got.IsZero() {
		t.Errorf("H4: two headers: %v", got)
	}
}

func TestTrustIsAskedForThisRequest(t *testing.T) {
	asked := 0
	cfg := wardenhttp.Config{Trusted: func(r *http.Request) bool { asked++; return r.Host == "inside" }}
	for host, want := range map[string]decision.Priority{"inside": 100, "outside": 0} {
		r := newRequest()
		r.Host = host
		r.Header.Set("Warden-Priority", "100")
		r.Header.Set("X-Envoy-Expected-Rq-Timeout-Ms", "60000")
		if got := taskOf(t, cfg, r); got.Priority != want || got.Deadline.IsZero() {
			t.Errorf("H4: %s: %+v", host, got)
		}
	}
	if taskOf(t, cfg, newRequest()); asked != 2 {
		t.Errorf("H4: asked %d times, want 2: not for a request that says nothing", asked)
	}
}

// What browsers send with ordinary requests, RFC 9218, neither raises nor lowers: Chrome's documents and fetches, Firefox's
// pictures, and what is fetched late. Whoever says 7 means what nobody waits for.
func TestBrowsersAreTakenAsTheyAre(t *testing.T) {
	for _, trusted := range []bool{false, true} {
		for urgency, want := range map[string]decision.Priority{
			"u=0, i": 10, "u=0": 10, "u=1, i": 10, "u=1": 10, "u=2": 10, "u=3, i": 10, "i": 10, "u=4": 10, "u=5, i": 10,
			"u=6": 10,
			"u=7": decision.Background, "u=7, i": decision.Background, "u=8": 10, "u=7, u=7": 10, " ": 10,
		} {
			r := newRequest()
			r.Header.Set("Priority", urgency)
			got := taskOf(t, wardenhttp.Config{
				Task:    func(*http.Request) warden.Task { return warden.Task{Priority: 10} },
				Trusted: func(*http.Request) bool { return trusted },
			}, r)
			if got.Priority != want || !got.Deadline.IsZero() {
				t.Errorf("H4: %q, trusted %v: %+v, want priority %d", urgency, trusted, got, want)
			}
		}
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
			cfg := wardenhttp.Config{Trusted: func(*http.Request) bool { return c.trusted }}
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
			newMiddleware(t, newGuard(t, 1, 0), cfg).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				got = warden.PriorityFrom(r.Context())
			})).ServeHTTP(httptest.NewRecorder(), r)
			if got != c.want {
				t.Errorf("H4: %+v, compartment %v: %v", c, in != nil, got)
			}
		}
	}
}

// FuzzHeaders holds the reading of headers against a slow and plain one, and against the promise itself.
func FuzzHeaders(f *testing.F) {
	f.Add("critical", "1000", "u=0, i", int8(0), false, false)
	f.Add("-128", "0", "u=7", int8(5), true, false)
	f.Add("127", "86400001", "u=7, i", int8(-5), true, true)
	f.Add("+1", "-1", "u=7", int8(127), true, false)
	f.Add("99999999999999999999", "99999999999999999999", "", int8(-128), false, true)
	names := map[string]int64{"background": -64, "normal": 0, "high": 64, "critical": 127}
	number := func(s, form string, low, high int64) (int64, bool) {
		n, ok := new(big.Int).SetString(s, 10)
		if !ok || !regexp.MustCompile(form).MatchString(s) || n.Cmp(big.NewInt(low)) < 0 || n.Cmp(big.NewInt(high)) > 0 {
			return 0, false
		}
		return n.Int64(), true
	}
	urgency := regexp.MustCompile(`\A(i, ?)?u=7(, ?i)?\z`)
	f.Fuzz(func(t *testing.T, rank, left, urgent string, ours int8, trusted, twice bool) {
		r := newRequest()
		r.Header["Warden-Priority"], r.Header["Warden-Timeout"], r.Header["Priority"] = []string{rank}, []string{left}, []string{
			urgent,
		}
		if twice {
			r.Header["Warden-Priority"], r.Header["Warden-Timeout"], r.Header["Priority"] = []string{
				rank, rank,
			}, []string{left, "1"}, []string{urgent, urgent}
		}
		due := time.Now().Add(48 * time.Hour)
		before := time.Now()
		got := taskOf(t, wardenhttp.Config{
			Task:    func(*http.Request) warden.Task { return warden.Task{Priority: decision.Priority(ours), Deadline: due} },
			Trusted: func(*http.Request) bool { return trusted },
		}, r)

		if !trusted && got.Priority > decision.Priority(ours) || got.Deadline.After(due) {
			t.Fatalf("H4: %q, %q, %q made %+v of priority %d", rank, left, urgent, got, ours)
		}
		p, ok := names[rank]
		if !ok {
			p, ok = number(rank, `\A(-?[0-9]{1,3}|[0-9]{4})\z`, -128, 127)
		}
		if urgency.MatchString(urgent) && (!ok || p > -64) {
			p, ok = -64, true
		}
		switch want := int64(ours); {
		case strings.Contains(urgent, "u=7"): // more forms than those above: see FuzzUrgency of warden/internal/wire
			if !trusted && (int64(got.Priority) > want || ok && !twice && int64(got.Priority) > p) {
				t.Fatalf("H4: %q, %q: %d", rank, urgent, got.Priority)
			}
		case ok && !twice && (trusted || p < want):
			if int64(got.Priority) != p {
				t.Fatalf("H4: %q, %q: %d, want %d", rank, urgent, got.Priority, p)
			}
		case int64(got.Priority) != want:
			t.Fatalf("H4: %q, %q: %d, want %d", rank, urgent, got.Priority, want)
		}
		ms, ok := number(left, `\A[0-9]{1,8}\z`, 1, 86400000)
		if ok && !twice {
			d := time.Duration(ms) * time.Millisecond
			if got.Deadline.Before(before.Add(d)) || got.Deadline.After(time.Now().Add(d)) {
				t.Fatalf("H4: %q: %v, want %v", left, got.Deadline.Sub(before), d)
			}
		} else if !got.Deadline.Equal(due) {
			t.Fatalf("H4: %q: the deadline moved by %v", left, got.Deadline.Sub(due))
		}
	})
}

// A deadline of the context counts without anything said.
func TestDeadlineOfTheContextCounts(t *testing.T) {
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	g := newGuard(t, 1, 0)
	rec := httptest.NewRecorder()
	newHandler(t, g, func(http.ResponseWriter, *http.Request) { t.Error("called") }).ServeHTTP(rec, newRequest().WithContext(ctx))
	if rec.Code != http.StatusGatewayTimeout {
		t.Errorf("status %d", rec.Code)
	}
}
