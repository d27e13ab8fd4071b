// SPDX-License-Identifier: Apache-2.0

// Finding a rejection by what its client was told, wherever it happened, and what is said when it is no longer kept.

package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
)

// search asks a console as a script would.
func search(t *testing.T, base, what string) (f struct {
	Version, Kept               int
	Title, Instance, Find, Text string
	Since                       *string
	Rejections                  []struct {
		Limiter, Task string
		RequestID     string `json:"request_id"`
	}
}) {
	t.Helper()
	answer, body := get(t, base+"rejections.json?find="+url.QueryEscape(what))
	if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("%s: %s", answer.Status, body)
	}
	if err := json.Unmarshal([]byte(body), &f); err != nil || f.Version != version {
		t.Fatalf("%v in %s", err, body)
	}
	return f
}

func TestFind(t *testing.T) {
	w := mustWarden(t, new(script))
	set := mustSet(t, bulkhead.CompartmentConfig{Name: "reports", Guaranteed: 1})
	more := must(limiter.New(limiter.Config{Recent: 2, Initial: decision.ControlDecision{Seq: 4711}}))(t)
	c := mustNew(t, Config{Title: "shop", Instance: "shop-7f9c", Warden: w, Set: set, Limiters: map[string]*limiter.Limiter{"more": more}})
	c.maxRejections = 2
	base := mount(t, c)
	const none, gone = "Not found: this process keeps no rejection. One of another process",
		"Not found. This process keeps the last rejections of each limiter and compartment, 4 now, the oldest of "
	if f := search(t, base, "a"); !strings.HasPrefix(f.Text, none) || f.Kept != 0 || f.Since != nil || f.Rejections == nil {
		t.Errorf("%+v", f)
	}

	w.Limiter().Close()
	_, _ = w.TryAcquire(warden.Task{Name: "of the warden", ID: "a"})
	permit := acquire(t, set, "reports")
	_, _, _ = set.Compartment("reports").Acquire(warden.WithRequestID(t.Context(), "b&c=d"))
	permit.Release(nil)
	_, _ = more.TryAcquire(limiter.Task{Name: "first", ID: "c"})
	_, _ = more.TryAcquire(limiter.Task{Name: "second", ID: "c"})
	for what, want := range map[string][]string{
		"a": {"warden"}, " a\t": {"warden"}, "b&c=d": {"reports"}, "c": {"more", "more"}, "4711": {"more", "more"}, "A": nil,
		"4711 ": {"more", "more"}, "04711": nil,
	} {
		f := search(t, base, what)
		var got []string
		for _, r := range f.Rejections {
			got = append(got, r.Limiter)
			if what := strings.TrimSpace(what); what != "4711" && r.RequestID != what {
				t.Errorf("%q: found %q", what, r.RequestID)
			}
		}
		if !slices.Equal(got, want) || f.Kept != 4 || f.Since == nil || f.Title != "shop" || f.Instance != "shop-7f9c" ||
			f.Find != strings.TrimSpace(what) {
			t.Errorf("%q: %+v, want %q", what, f, want)
		}
		found := f.Text == fmt.Sprintf("Found %d of the 4 rejections that are kept.", len(want))
		if found != (len(want) > 0) || strings.HasPrefix(f.Text, gone) == found {
			t.Errorf("%q: %q", what, f.Text)
		}
	}

	// What came before the last Config.Recent of its limiter is gone, and more than maxRejections are not sent.
	_, _ = more.TryAcquire(limiter.Task{Name: "third", ID: "d"})
	if f := search(t, base, "c"); len(f.Rejections) != 1 || f.Rejections[0].Task != "second" {
		t.Errorf("%+v", f)
	}
	for range 3 {
		_, _ = w.TryAcquire(warden.Task{ID: "many"})
	}
	if f := search(t, base, "many"); len(f.Rejections) != 2 ||
		f.Text != "Found 3 of the 7 rejections that are kept; the last 2 are shown." {
		t.Errorf("%+v", f)
	}
	for _, query := range []string{"", "?find=", "?find=%20", "?other=a"} {
		if answer, body := get(t, base+"rejections.json"+query); answer.StatusCode != http.StatusBadRequest ||
			at(t, decode(t, body), "code") != "nothing_to_find" {
			t.Errorf("%q: %s %s", query, answer.Status, body)
		}
	}
	if head, body := do(t, http.MethodHead, base+"rejections.json?find=a"); head.StatusCode != http.StatusOK || body != "" {
		t.Errorf("%s %q", head.Status, body)
	}
}
