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
	"slices"
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

// rejecter is a handler that rejects every request, for one of the reasons that there are, and what is remembered of that.
func rejecter(t *rapid.T, o *told, how, own string) (h http.Handler, recent func() []decision.Explanation) {
	cfg := wardenhttp.Config{
		Task: func(*http.Request) warden.Task { return warden.Task{Name: "x", ID: own} },
		Answer: func(w http.ResponseWriter, _ *http.Request, _ error) bool {
			o.add("before Answer", w.Header().Get("X-Request-Id"))
			return false
		},
	}
	inside := func(http.ResponseWriter, *http.Request) { t.Error("it was not rejected") }
	if how == "warden" {
		initial := decision.ControlDecision{Seq: 7, TargetConcurrency: 1, ShedProbability: 1}
		w := must(warden.New(warden.Config{
			Controller: constant{initial}, Interval: 10 * time.Second, Limiter: limiter.Config{Initial: initial, Observer: o},
		}))(t)
		must(w.TryAcquire(warden.Task{}))(t)
		return handle(t, w, cfg, inside), w.Limiter().Recent
	}
	c := bulkhead.CompartmentConfig{Name: "c", Guaranteed: 1}
	switch how {
	case "breaker":
		c.Breaker = &fuse{open: errors.New("open")}
	case "max wait":
		c.MaxQueue, c.MaxWait = 1, time.Millisecond
	}
	set := must(bulkhead.New(bulkhead.Config{Total: 1, Compartments: []bulkhead.CompartmentConfig{c}, Observer: toldOfCalls{o}}))(t)
	of := set.Compartment("c")
	if how != "breaker" {
		_, _, err := of.Acquire(context.Background())
		noError(t, err)
	}
	if how != "handler" {
		cfg.Compartment = in(of)
		return handle(t, nil, cfg, inside), set.Recent
	}
	// which asks for a slot itself, and answers with WriteError
	return handle(t, must(warden.New(warden.Config{Interval: 10 * time.Second}))(t), cfg, func(w http.ResponseWriter, r *http.Request) {
		_, _, err := of.Acquire(r.Context())
		if o.add("before Answer", warden.RequestIDFrom(r.Context())); !wardenhttp.WriteError(w, nil, err) {
			t.Errorf("%v is not ours", err)
		}
	}), set.Recent
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
		how, o := rapid.SampledFrom([]string{"warden", "full", "max wait", "breaker", "handler"}).Draw(t, "how"), &told{}
		h, recent := rejecter(t, o, how, own)
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
		for _, e := range recent() {
			if e.Outcome == decision.Rejected {
				o.add("recent", e.Task.ID)
			}
		}
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
			want := []string{id}
			if where == "recent" && how == "breaker" {
				want = nil // it is not remembered
			}
			if got := o.ids[where]; !slices.Equal(got, want) {
				t.Errorf("H21: %s: %q, body %q", where, got, id)
			}
		}
	})
}

// What is answered because the time was up while the handler ran has the id as well, and what is admitted knows it.
func TestTheTimeIsUp(t *testing.T) {
	for _, buffered := range []bool{false, true} {
		g := newGuard(t, 1, 0)
		inside := make(chan string, 1)
		cfg := wardenhttp.Config{Timeout: time.Millisecond, Buffered: buffered, Instance: `a"b`}
		resp, text := get(t, startServer(t, g.handle(t, cfg, func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			inside <- warden.RequestIDFrom(r.Context())
		}), false), "X-Request-Id", "mine")
		var body map[string]any
		noError(t, json.Unmarshal([]byte(text), &body))
		if id := <-inside; id != "mine" || body["request_id"] != "mine" || resp.Header.Get("X-Request-Id") != "mine" ||
			body["server_instance"] != `a"b` {
			t.Errorf("H21: buffered %v: inside %q, %v, %v", buffered, id, body, resp.Header)
		}
		g.wantEmpty(t)
	}
}
