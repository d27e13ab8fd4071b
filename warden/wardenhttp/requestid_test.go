// SPDX-License-Identifier: Apache-2.0

// One id for one rejection, wherever it is told, and what a stranger can do with it.

package wardenhttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// told are the ids that were told of rejections, by the place in which they were.
type told struct {
	mu  sync.Mutex // guards ids
	ids map[string][]string
}

func (o *told) add(where, id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ids == nil {
		o.ids = map[string][]string{}
	}
	o.ids[where] = append(o.ids[where], id)
}

func (o *told) recent(all []decision.Explanation) {
	for _, e := range all {
		if e.Outcome == decision.Rejected {
			o.add("recent", e.Task.ID)
		}
	}
}

func (o *told) Observe(e limiter.Event) {
	if e.Outcome == decision.Rejected {
		o.add("event", e.Task.ID)
	}
}

// toldOfCalls is told as the observer of a set.
type toldOfCalls struct{ *told }

func (o toldOfCalls) Observe(e bulkhead.Event) {
	if e.Kind == bulkhead.Answered && e.Outcome == decision.Rejected {
		o.add("event", e.Task.ID)
	}
}

type openBreaker struct{}

func (openBreaker) Allow() (func(error), error) { return nil, errors.New("open") }

// rejecter is a handler that rejects every request, for one of the reasons that there are, and what it has told.
type rejecter struct {
	http.Handler
	told   *told
	recent func()
	kept   bool // recent tells of it
}

func newRejecter(t *rapid.T, how string, own string) rejecter {
	o := &told{}
	r := rejecter{told: o, recent: func() {}, kept: true}
	cfg := wardenhttp.Config{
		Task: func(*http.Request) warden.Task { return warden.Task{Name: "x", ID: own} },
		Answer: func(w http.ResponseWriter, _ *http.Request, _ error) bool {
			o.add("before Answer", w.Header().Get("X-Request-Id"))
			return false
		},
	}
	c := bulkhead.CompartmentConfig{Name: "c", Guaranteed: 1}
	var w *warden.Warden
	inside := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was not rejected") })
	switch how {
	case "warden":
		initial := decision.ControlDecision{Seq: 7, TargetConcurrency: 1, ShedProbability: 1}
		var err error
		if w, err = warden.New(warden.Config{
			Controller: constant{initial}, Interval: 10 * time.Second, Limiter: limiter.Config{Initial: initial, Observer: o},
		}); err != nil {
			t.Fatal(err)
		}
		must(w.TryAcquire(warden.Task{}))(t)
		r.recent = func() { o.recent(w.Limiter().Recent()) }
	case "breaker":
		c.Breaker, r.kept = openBreaker{}, false
	case "max wait":
		c.MaxQueue, c.MaxWait = 1, time.Millisecond
	}
	set, err := bulkhead.New(bulkhead.Config{Total: 1, Compartments: []bulkhead.CompartmentConfig{c}, Observer: toldOfCalls{o}})
	if err != nil {
		t.Fatal(err)
	}
	if how == "full" || how == "max wait" || how == "handler" {
		if _, _, err := set.Compartment("c").Acquire(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	switch how {
	case "warden":
	case "handler": // which asks for a slot itself, and answers with WriteError
		if w, err = warden.New(warden.Config{Interval: 10 * time.Second}); err != nil {
			t.Fatal(err)
		}
		inside = func(w http.ResponseWriter, r *http.Request) {
			_, _, err := set.Compartment("c").Acquire(r.Context())
			if o.add("before Answer", warden.RequestIDFrom(r.Context())); !wardenhttp.WriteError(w, nil, err) {
				t.Errorf("%v is not ours", err)
			}
		}
	default:
		cfg.Compartment = in(set.Compartment("c"))
	}
	if how != "warden" {
		r.recent = func() { o.recent(set.Recent()) }
	}
	m := must(wardenhttp.New(w, cfg))(t)
	r.Handler = m.Handler(inside)
	return r
}

// What clients and programs may give as an id; the first is none.
func texts() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.SampledFrom([]string{"", "a b", `a"b`, `a\b`, "a\nlevel=ERROR", "\x00", "é", strings.Repeat("x", 129)}),
		rapid.StringMatching(`[\x21\x23-\x5b\x5d-\x7e]{1,128}`),
		rapid.String(),
	)
}

func TestPropertyOneIDWhereverItIsTold(t *testing.T) {
	valid := regexp.MustCompile(`\A[\x21\x23-\x5b\x5d-\x7e]{1,128}\z`)
	const trace = "0af7651916cd43dd8448eb211c80319c"
	rapid.Check(t, func(t *rapid.T) {
		own, outer, given := texts().Draw(t, "own"), texts().Draw(t, "outer"), rapid.SliceOfN(texts(), 0, 2).Draw(t, "given")
		traced := rapid.Bool().Draw(t, "traced")
		h := newRejecter(t, rapid.SampledFrom([]string{"warden", "full", "max wait", "breaker", "handler"}).Draw(t, "how"), own)
		req, rec := newRequest(), httptest.NewRecorder()
		req.Header["X-Request-Id"] = given
		if rec.Header()["X-Request-Id"] = nil; outer != "" {
			rec.Header()["X-Request-Id"] = []string{outer}
		}
		if traced {
			req.Header.Set("Traceparent", "00-"+trace+"-b7ad6b7169203331-01")
		}
		want := "" // a new one
		switch {
		case valid.MatchString(own):
			want = own
		case valid.MatchString(outer):
			want = outer
		case len(given) == 1 && valid.MatchString(given[0]):
			want = given[0]
		case traced:
			want = trace
		}
		h.ServeHTTP(rec, req)
		h.recent()
		var body struct {
			ID *string `json:"request_id"`
		}
		if err := json.Unmarshal(rec.Body.Bytes(), &body); err != nil || body.ID == nil ||
			strings.Count(rec.Body.String(), "\n") != 1 {
			t.Fatalf("H21: %v in %q", err, rec.Body)
		}
		id := *body.ID
		if !valid.MatchString(id) || want != "" && id != want || !strings.Contains(rec.Body.String(), id) {
			t.Fatalf("H21: %q in %q, want %q", id, rec.Body, want)
		}
		if all := rec.Header()["X-Request-Id"]; len(all) != 1 || all[0] != id {
			t.Errorf("H21: header %q, body %q", all, id)
		}
		for _, where := range []string{"before Answer", "event", "recent"} {
			if got := h.told.ids[where]; where == "recent" && !h.kept {
				if len(got) != 0 {
					t.Errorf("H21: %s: %q", where, got)
				}
			} else if len(got) != 1 || got[0] != id {
				t.Errorf("H21: %s: %q, body %q", where, got, id)
			}
		}
	})
}

// What is answered because the time was up while the handler ran has the id as well, and what is admitted knows it.
func TestTheTimeIsUp(t *testing.T) {
	for _, buffered := range []bool{false, true} {
		g := newGuard(t, 1, 0)
		m := newMiddleware(t, g, wardenhttp.Config{Timeout: time.Millisecond, Buffered: buffered, Instance: `a"b`})
		inside := make(chan string, 1)
		s := startServer(t, m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			inside <- warden.RequestIDFrom(r.Context())
		})), false)
		req := must(http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, http.NoBody))(t)
		req.Header.Set("X-Request-Id", "mine")
		resp, err := s.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var body map[string]any
		noError(t, json.NewDecoder(resp.Body).Decode(&body))
		resp.Body.Close()
		if id := <-inside; id != "mine" || body["request_id"] != "mine" || resp.Header.Get("X-Request-Id") != "mine" ||
			body["server_instance"] != `a"b` {
			t.Errorf("H21: buffered %v: inside %q, %v, %v", buffered, id, body, resp.Header)
		}
		g.wantEmpty(t)
	}
}

func TestInstanceIsChecked(t *testing.T) {
	g := newGuard(t, 1, 0)
	for _, name := range []string{strings.Repeat("x", 129), "\xff"} {
		var invalid *warden.InvalidError
		if _, err := wardenhttp.New(g.Warden, wardenhttp.Config{Instance: name}); !errors.As(err, &invalid) ||
			invalid.Field != "wardenhttp.Config.Instance" {
			t.Errorf("%q: %v", name, err)
		}
	}
}
