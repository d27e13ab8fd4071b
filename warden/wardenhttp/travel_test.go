// SPDX-License-Identifier: Apache-2.0

// Deadline and priority on their way through several services.

package wardenhttp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/timelimit"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// A hop is one service of a chain, and what it is configured to be.
type hop struct {
	task             decision.Priority
	timeout          time.Duration
	trusts           bool
	busy             time.Duration // its only slot is taken for so long
	transit, working time.Duration // before it arrives, and before it asks the next

	started  bool // what came of it
	late     bool
	due      time.Time
	bounded  bool
	priority decision.Priority
	told     http.Header
}

// chain is a client's transport to the first of these services, each of which asks the next. Nothing but its own warden stands
// between a request and its handler.
func chain(t *testing.T, hops []*hop) http.RoundTripper {
	t.Helper()
	if len(hops) == 0 {
		return nil
	}
	h, next := hops[0], chain(t, hops[1:])
	here, there := newGuard(t, 1, 1), newGuard(t, 1, 0)
	handler := here.handle(t, wardenhttp.Config{
		Timeout: h.timeout, Trusted: always(h.trusts),
		Task: func(*http.Request) warden.Task { return warden.Task{Priority: h.task} },
	}, func(_ http.ResponseWriter, r *http.Request) {
		h.started = true
		h.due, _, h.bounded = timelimit.Due(r.Context())
		h.late = h.bounded && !time.Now().Before(h.due) || r.Context().Err() != nil
		h.priority = warden.PriorityFrom(r.Context())
		time.Sleep(h.working)
		if next == nil {
			return
		}
		resp, err := newTransport(t, there, next).RoundTrip(newRequest().WithContext(r.Context()))
		if err == nil {
			resp.Body.Close()
		}
	})
	return roundTrip(func(req *http.Request) (*http.Response, error) {
		time.Sleep(h.transit)
		if h.busy > 0 {
			p := must(here.TryAcquire(warden.Task{}))(t)
			time.AfterFunc(h.busy, func() { p.Release() })
		}
		h.told = req.Header.Clone()
		r := newRequest()
		r.Header = req.Header.Clone()
		return recorded(handler, r).Result(), nil
	})
}

// Each hop sees the deadline of the one before less what has passed, and never more, and as much of the priority as it believes.
func TestPropertyThroughManyHops(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ms := func(most int, name string) time.Duration {
			return time.Duration(rapid.IntRange(0, most*4).Draw(rt, name)) * time.Millisecond / 4
		}
		hops := make([]*hop, rapid.IntRange(1, 4).Draw(rt, "hops"))
		for i := range hops {
			hops[i] = &hop{
				task: rapid.SampledFrom([]decision.Priority{
					0, 0, 0, decision.Background, decision.High, decision.Critical, 5, -5,
				}).Draw(rt, "task"),
				trusts: rapid.Bool().Draw(rt, "trusts"), transit: ms(20, "transit"), working: ms(50, "working"),
			}
			if rapid.Bool().Draw(rt, "bounded") {
				hops[i].timeout = max(time.Millisecond, ms(200, "timeout"))
			}
			if rapid.Bool().Draw(rt, "busy") {
				hops[i].busy = ms(60, "busy for")
			}
		}
		patience := ms(300, "patience")
		said := rapid.SampledFrom([]decision.Priority{0, decision.Background, decision.Critical, 7}).Draw(rt, "said")
		wrong := ""
		synctest.Test(t, func(t *testing.T) { wrong = travel(t, hops, patience, said) })
		if wrong != "" {
			rt.Fatal(wrong)
		}
	})
}

// travel sends a request through the hops, and says what is wrong with what they saw.
func travel(t *testing.T, hops []*hop, patience time.Duration, said decision.Priority) (wrong string) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var due time.Time
	theirs := false // due is an untrusted client's
	if patience > 0 {
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
		due, _ = ctx.Deadline()
	}
	now, priority := time.Now(), said
	resp, err := newTransport(
		t, newGuard(t, 1, 0), chain(t, hops),
	).RoundTrip(newRequest().WithContext(warden.WithPriority(ctx, said)))
	if err == nil {
		resp.Body.Close()
	}
	stopped := false
	for i, h := range hops {
		left := time.Duration(0)
		if !due.IsZero() {
			if left = due.Sub(now); theirs { // who is asked next must not say first that the time is up
				left += time.Millisecond
			}
			if left = left.Truncate(time.Millisecond); left < time.Millisecond {
				stopped = true // not sent
			}
		}
		if stopped {
			if h.started || h.told != nil {
				return fmt.Sprintf("hop %d was asked for something too late: %+v", i, h)
			}
			continue
		}
		want := ""
		if left > 0 {
			want = strconv.FormatInt(left.Milliseconds(), 10)
		}
		if got := h.told.Get("Warden-Timeout"); got != want {
			return fmt.Sprintf("hop %d was told %q, want %q", i, got, want)
		}
		if got := h.told.Get("Warden-Timeout-Untrusted"); (got != "") != (theirs && left > 0) {
			return fmt.Sprintf("H14: hop %d was told %q of a time that is an untrusted client's %t", i, got, theirs)
		}
		if got := h.told.Get("Warden-Priority"); (got == "") != (priority == 0) || got != "" && got != priority.String() {
			return fmt.Sprintf("hop %d was told %q, want %v", i, got, priority)
		}
		now = now.Add(h.transit) // it arrives
		due, theirs = time.Time{}, left > 0 && (theirs || !h.trusts) && (h.timeout == 0 || left < h.timeout)
		if left > 0 {
			due = now.Add(left)
		}
		if h.timeout > 0 && (due.IsZero() || now.Add(h.timeout).Before(due)) {
			due = now.Add(h.timeout)
		}
		ours := h.task
		if priority != 0 && (h.trusts || priority < ours) {
			ours = priority
		}
		priority = ours
		now = now.Add(h.busy) // it has its slot
		if !due.IsZero() && !now.Before(due) {
			stopped = true
		}
		if h.started == stopped || h.late {
			return fmt.Sprintf("hop %d: %+v, stopped %v", i, h, stopped)
		}
		if stopped {
			continue
		}
		if h.bounded == due.IsZero() || h.bounded && !h.due.Equal(due) || h.priority != priority {
			return fmt.Sprintf(
				"hop %d: due in %v of priority %v, want %v and %v", i, h.due.Sub(now), h.priority, due.Sub(now), priority,
			)
		}
		now = now.Add(h.working)
		if !due.IsZero() && !now.Before(due) {
			stopped = true // its context has ended
		}
	}
	return ""
}

// What a proxy passes on must not have its word for it, and what the caller says of time counts if it is shorter. A task of the
// transport's own has its own priority and deadline; one that says nothing has the request's.
func TestHeadersThatWereThere(t *testing.T) {
	for _, c := range []struct {
		name           string
		header         http.Header
		left           time.Duration
		priority       decision.Priority
		own            warden.Task
		wantTime, rank string
	}{
		{"a stranger's priority", http.Header{"Warden-Priority": {"critical"}}, 0, 0, warden.Task{}, "", ""},
		{"another's instead of ours", http.Header{"Warden-Priority": {"critical", "x"}}, 0, -5, warden.Task{}, "", "-5"},
		{"nothing known", http.Header{"Warden-Timeout": {"70"}}, 0, 0, warden.Task{}, "70", ""},
		{"shorter", http.Header{"X-Request-Timeout-Ms": {"70"}}, time.Second, 0, warden.Task{}, "70", ""},
		{"longer", http.Header{"Warden-Timeout": {"7000"}}, time.Second, 0, warden.Task{}, "1000", ""},
		{"not understood", http.Header{"Warden-Timeout": {"-1"}}, time.Second, 0, warden.Task{}, "1000", ""},
		{"twice", http.Header{"Warden-Timeout": {"1", "2"}}, time.Second, 0, warden.Task{}, "1000", ""},
		{"days", nil, 25 * time.Hour, decision.High, warden.Task{}, "", "high"},
		{"no header at all", nil, time.Second, decision.Critical, warden.Task{}, "1000", "critical"},
		{"the task's time", nil, 2 * time.Minute, decision.Background, warden.Task{Name: "for a minute"}, "60000", "background"},
		{"the task's priority", nil, 0, decision.Background, warden.Task{Priority: decision.High}, "", "high"},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx := warden.WithPriority(t.Context(), c.priority)
			if c.left > 0 {
				var cancel func()
				ctx, cancel = context.WithTimeout(ctx, c.left)
				defer cancel()
			}
			req := newRequest().WithContext(ctx)
			req.Header = c.header.Clone()
			if c.own.Name != "" {
				c.own.Deadline = time.Now().Add(time.Minute)
			}
			sent, due := http.Header(nil), time.Time{}
			noError(t, take(must(wardenhttp.NewTransport(newGuard(t, 1, 0).Warden, wardenhttp.TransportConfig{
				Task: func(*http.Request) warden.Task { return c.own },
				Base: roundTrip(func(r *http.Request) (*http.Response, error) {
					sent = r.Header
					due, _ = r.Context().Deadline()
					return respond(http.StatusOK, http.NoBody), nil
				}),
			}))(t), req))
			if c.own.Name != "" && !due.Equal(c.own.Deadline) {
				t.Errorf("H12: %s: its context ends in %v", c.name, time.Until(due))
			}
			if got := sent["Warden-Timeout"]; len(got) > 1 || sent.Get("Warden-Timeout") != c.wantTime {
				t.Errorf("H12: %s: time %q, want %q", c.name, got, c.wantTime)
			}
			if got := sent["Warden-Priority"]; len(got) > 1 || sent.Get("Warden-Priority") != c.rank {
				t.Errorf("H12: %s: priority %q, want %q", c.name, got, c.rank)
			}
		})
	}
}

// What is logged in front of the middleware knows the pattern that the mux behind it found.
func TestThePatternIsKnownOutside(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("GET /orders/{id}", http.NotFoundHandler())
	r := httptest.NewRequest(http.MethodGet, "/orders/7", http.NoBody)
	recorded(newMiddleware(t, newGuard(t, 1, 0), wardenhttp.Config{}).Handler(mux), r)
	if r.Pattern != "GET /orders/{id}" {
		t.Errorf("H18: pattern %q", r.Pattern)
	}
}

// A request is named after the route that it matches, in the mux behind the middleware or in one in front, and never after what
// its client chose: whatever matches no route is one kind.
func TestNamesAreRoutes(t *testing.T) {
	for _, test := range []struct{ where, path, want string }{
		{"behind", "/orders/7", "GET /orders/{id}"},
		{"behind", "/chat/7/", "/chat/{room}/"},
		{"behind", "/chat/7", ""}, // the mux redirects it
		{"behind", "/wp-login.php", ""},
		{"in front", "/orders/7", "GET /orders/{id}"},
		{"both", "/api/orders/7", "GET /api/orders/{id}"},
		{"neither", "/orders/7", ""},
	} {
		t.Run(test.where+test.path, func(t *testing.T) {
			g := newGuard(t, 0, 0) // what it rejects it remembers
			m, mux, page := newMiddleware(t, g, wardenhttp.Config{}), http.NewServeMux(), http.NotFoundHandler()
			var handler http.Handler = mux
			switch test.where {
			case "behind":
				mux.Handle("GET /orders/{id}", page)
				mux.Handle("/chat/{room}/", page)
				handler = m.Handler(mux)
			case "in front":
				mux.Handle("GET /orders/{id}", m.Handler(page))
			case "both":
				inner := http.NewServeMux()
				inner.Handle("GET /api/orders/{id}", page)
				mux.Handle("/api/", m.Handler(inner))
			case "neither":
				handler = m.Handler(page)
			}
			r := httptest.NewRequest(http.MethodGet, test.path, http.NoBody)
			if test.path[1] == 'c' { // over HTTP/2, a WebSocket's CONNECT has a path
				r.Method = http.MethodConnect
			}
			handler.ServeHTTP(httptest.NewRecorder(), r)
			if got := g.Limiter().Recent()[0].Task.Name; got != test.want {
				t.Errorf("H18: %q, want %q", got, test.want)
			}
		})
	}
}
