// What a scrape of a process becomes in a recording.

package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestScrape(t *testing.T) {
	t.Chdir(root)
	reads, err := selectors()
	if err != nil {
		t.Fatal(err)
	}
	s := &scraper{reads: reads, began: time.Unix(1000, 0), seen: map[scraped]map[string]map[int]string{}}
	by := scraped{"15s", "127.0.0.1:1"}
	s.add(by, 3, `# HELP stopbank_limiter_decision_stale 1
stopbank_limiter_decision_stale{limiter="a b"} 0
stopbank_control_decision_timestamp_seconds{limiter="a"} 1.0025e+03
stopbank_limiter_wait_seconds_bucket{limiter="a",outcome="started",priority="normal",le="1"} 5
stopbank_limiter_running{limiter="a"} 5
`)
	s.add(by, 18, `stopbank_limiter_wait_seconds_bucket{limiter="a",outcome="started",priority="critical",le="1"} 1.5e+06
stopbank_limiter_decision_stale{limiter="a b"} 1
`)
	want := []target{{every: "15s", times: []int{3, 18}, series: map[string][]string{
		`stopbank_limiter_decision_stale{limiter="a b"}`:                                                 {"0", "1"},
		`stopbank_control_decision_timestamp_seconds{limiter="a"}`:                                       {"2.5", "_"},
		`stopbank_limiter_wait_seconds_bucket{limiter="a",outcome="started",priority="critical",le="1"}`: {"_", "1500000"},
	}}}
	if diff := cmp.Diff(want, s.targets(), cmp.AllowUnexported(target{})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
