// SPDX-License-Identifier: Apache-2.0

// What a scrape of a process becomes in a recording.

package main

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestScrape(t *testing.T) {
	t.Chdir(root)
	read, shown, err := selectors()
	if err != nil {
		t.Fatal(err)
	}
	s := &scraper{read: read, shown: shown, began: time.Unix(1000, 0), seen: map[scraped]map[string]map[int]string{}}
	for _, every := range []string{"5s", shownAt} {
		by := scraped{every, "127.0.0.1:1"}
		s.add(by, 3, `# HELP stopbank_limiter_decision_stale 1
stopbank_limiter_decision_stale{limiter="a b"} 0
stopbank_control_decision_timestamp_seconds{limiter="a"} 1.0025e+03
stopbank_limiter_response_seconds_bucket{limiter="a",outcome="executed",priority="normal",le="1"} 5
stopbank_control_decisions_total{warden="a"} 5
go_goroutines 7
go_threads 7
`)
		s.add(by, 18, `stopbank_limiter_response_seconds_bucket{limiter="a",outcome="executed",priority="critical",le="1"} 1.5e+06
stopbank_limiter_decision_stale{limiter="a b"} 1
`)
	}
	read5 := map[string][]string{
		`stopbank_limiter_decision_stale{limiter="a b"}`:                                                      {"0", "1"},
		`stopbank_control_decision_timestamp_seconds{limiter="a"}`:                                            {"2.5", "_"},
		`stopbank_limiter_response_seconds_bucket{limiter="a",outcome="executed",priority="critical",le="1"}`: {"_", "1500000"},
	}
	shown15 := maps.Clone(read5)
	shown15[`stopbank_limiter_response_seconds_bucket{limiter="a",outcome="executed",priority="normal",le="1"}`] = []string{"5", "_"}
	shown15[`go_goroutines{}`] = []string{"7", "_"}
	want := []target{
		{every: "5s", times: []int{3, 18}, series: read5}, {every: shownAt, times: []int{3, 18}, series: shown15},
	}
	if diff := cmp.Diff(want, s.targets(), cmp.AllowUnexported(target{})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
