// SPDX-License-Identifier: Apache-2.0

// What the tests of this package share: a warden that does as it is told, and a reader of streams.

package console

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script is a sampler and a controller that say what they are told to; the zero script has a target of 2.
type script struct {
	sample func() monitor.Sample
	decide func() decision.ControlDecision
}

func (s *script) Sample() monitor.Sample {
	if s.sample == nil {
		return monitor.Sample{At: time.Now()}
	}
	return s.sample()
}

func (s *script) Step(sample monitor.Sample) decision.ControlDecision {
	d := decision.ControlDecision{
		TargetConcurrency: 2, Reasons: []decision.Reason{decision.NewReason("calm", "utilization", 0.25, decision.Relax)},
	}
	if s.decide != nil {
		d = s.decide()
	}
	d.At = sample.At
	return d
}

func mustWarden(t testing.TB, s *script) *warden.Warden {
	t.Helper()
	return must(warden.New(warden.Config{Sampler: s, Controller: s}))(t)
}

func mustLimiter(t testing.TB, target int) *limiter.Limiter {
	t.Helper()
	return must(limiter.New(limiter.Config{Initial: decision.ControlDecision{Seq: 1, TargetConcurrency: target}}))(t)
}

func mustSet(t testing.TB, compartments ...bulkhead.CompartmentConfig) *bulkhead.Set {
	t.Helper()
	return must(bulkhead.New(bulkhead.Config{Total: 10, Compartments: compartments}))(t)
}

func mustNew(t testing.TB, cfg Config) *Console {
	t.Helper()
	return must(New(cfg))(t)
}

// mount mounts c as the docs say, on a real server.
func mount(t testing.TB, c *Console) (url string) {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/debug/console/", http.StripPrefix("/debug/console", c))
	server := httptest.NewServer(mux)
	t.Cleanup(func() { c.Close(); server.Close() })
	return server.URL + "/debug/console/"
}

func get(t testing.TB, url string) (*http.Response, string) {
	t.Helper()
	return do(t, http.MethodGet, url)
}

func do(t testing.TB, method, url string) (*http.Response, string) {
	t.Helper()
	request := must(http.NewRequestWithContext(t.Context(), method, url, nil))(t)
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	answer := must(client.Do(request))(t)
	defer answer.Body.Close()
	body := must(io.ReadAll(answer.Body))(t)
	return answer, string(body)
}

// ask asks a handler without a network; headers are pairs.
func ask(h http.Handler, path string, headers ...string) *httptest.ResponseRecorder {
	r, w := httptest.NewRequest(http.MethodGet, "http://localhost/"+path, nil), httptest.NewRecorder()
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	h.ServeHTTP(w, r)
	return w
}

// acquire takes a slot of a compartment.
func acquire(t testing.TB, set *bulkhead.Set, compartment string) bulkhead.Permit {
	t.Helper()
	_, permit, err := set.Compartment(compartment).Acquire(t.Context())
	noError(t, err)
	return permit
}

// follower reads a stream event by event.
type follower struct {
	t      testing.TB
	answer *http.Response
	lines  *bufio.Scanner
	cancel context.CancelFunc
}

func follow(t testing.TB, url string) *follower {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	request := must(http.NewRequestWithContext(ctx, http.MethodGet, url+"events", nil))(t)
	answer := must((&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request))(t)
	t.Cleanup(func() { cancel(); answer.Body.Close() })
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<24)
	return &follower{t, answer, lines, cancel}
}

// event is the next event: its lines, without the empty one that ends it; nil at the end of the stream.
func (f *follower) event() (event []string) {
	for f.lines.Scan() {
		if f.lines.Text() == "" {
			return event
		}
		event = append(event, f.lines.Text())
	}
	return nil
}

// state is the state in the next event that has one.
func (f *follower) state() map[string]any {
	f.t.Helper()
	for {
		event := f.event()
		if event == nil {
			f.t.Fatal("the stream has ended")
		}
		if len(event) == 2 && event[0] == "event: state" {
			return decode(f.t, strings.TrimPrefix(event[1], "data: "))
		}
	}
}

func decode(t testing.TB, text string) (state map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &state); err != nil {
		t.Fatalf("%v: %.200s", err, text)
	}
	return state
}

// at is what lies at a path of keys and indices in decoded JSON.
func at(t testing.TB, v any, path ...any) any {
	t.Helper()
	for _, step := range path {
		switch step := step.(type) {
		case string:
			object, ok := v.(map[string]any)
			if _, there := object[step]; !ok || !there {
				t.Fatalf("no %s at %v in %v", step, path, v)
			}
			v = object[step]
		case int:
			list, ok := v.([]any)
			if !ok || step >= len(list) {
				t.Fatalf("no element %d at %v in %v", step, path, v)
			}
			v = list[step]
		}
	}
	return v
}

// must is for what cannot fail here: x := must(f())(t).
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		noError(t, err)
		return v
	}
}

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
