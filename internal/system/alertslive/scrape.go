// SPDX-License-Identifier: Apache-2.0

// The scraper: what the replicas export, at three common scrape intervals.
package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stopbank/stopbank/internal/system/deploy"
)

// intervals are the scrape intervals.
func intervals() []string { return []string{"5s", "15s", "60s"} }

// rules are the files with the rules to test.
func rules() []string { return []string{"docs/prometheus/alerts.yml", "docs/prometheus/slo.yml"} }

// shownAt is the interval at which a recording also has what the dashboard and the runbook ask for.
const shownAt = "15s"

// A selector is a metric's name and what its labels must match.
type selector struct {
	name   string
	labels []*regexp.Regexp
}

// selectors returns what the rules read, and what the broken rules of the test read in addition; then what is shown, too.
func selectors() (read, shown []selector, err error) {
	texts := bytes.NewBufferString("stopbank_control_decision_timestamp_seconds stopbank_control_decision_valid_seconds")
	for _, file := range rules() {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, nil, err
		}
		texts.Write(regexp.MustCompile(`(?m)^ *#.*$`).ReplaceAll(b, nil))
	}
	read = selected(texts.String())
	runbook, err := os.ReadFile("docs/runbook.md")
	if err != nil {
		return nil, nil, err
	}
	queries, err := dashboard("docs/grafana/stopbank.json")
	if err != nil {
		return nil, nil, err
	}
	texts.WriteString(strings.Join(queries, " "))
	return read, selected(texts.String() + string(runbook)), nil
}

// selected returns the selectors in a text. Labels that Prometheus adds to what it scrapes are not among theirs.
func selected(text string) (all []selector) {
	for _, m := range regexp.MustCompile(`\b((?:stopbank|go|process)_[a-z_]+)(\{[^}]*\})?`).FindAllStringSubmatch(text, -1) {
		s := selector{name: m[1]}
		for _, l := range regexp.MustCompile(`(\w+)=~?"([^"]*)"`).FindAllStringSubmatch(m[2], -1) {
			if l[1] != "job" && l[1] != "instance" {
				s.labels = append(s.labels, regexp.MustCompile(`[{,]`+l[1]+`="(`+l[2]+`)"`))
			}
		}
		all = append(all, s)
	}
	return all
}

func (s selector) matches(name, series string) bool {
	return s.name == name && !slices.ContainsFunc(s.labels, func(l *regexp.Regexp) bool { return !l.MatchString(series) })
}

// scraped is a replica as seen at one interval.
type scraped struct{ every, address string }

type scraper struct {
	read, shown []selector
	began       time.Time // of the phase

	mu   sync.Mutex                            // guards seen
	seen map[scraped]map[string]map[int]string // values by series, by second since began
}

// scrape scrapes all replicas at an interval until ctx ends. A replica that does not answer is missing from that scrape.
func (s *scraper) scrape(ctx context.Context, d *deploy.Deployment, every string) {
	period, err := time.ParseDuration(every)
	client := &http.Client{Timeout: 5 * time.Second}
	var all sync.WaitGroup
	defer all.Wait()
	for next := rand.N(period); err == nil; next += period {
		if deploy.Sleep(ctx, next-time.Since(s.began)) != nil {
			return
		}
		for _, r := range d.All() {
			all.Go(func() {
				if _, text, err := deploy.Ask(ctx, client, http.MethodGet, "http://"+r.Ops+"/metrics", nil); err == nil {
					s.add(scraped{every, r.Ops}, int(math.Round(next.Seconds())), string(text))
				}
			})
		}
	}
}

// add stores one scrape. Timestamps count from the start of the phase, because replays begin at Unix time 0.
func (s *scraper) add(by scraped, second int, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	reads := s.read
	if by.every == shownAt {
		reads = s.shown
	}
	if s.seen[by] == nil {
		s.seen[by] = map[string]map[int]string{}
	}
	for line := range strings.Lines(text) {
		at := strings.LastIndexByte(line, ' ')
		name, _, _ := strings.Cut(line[:max(0, at)], "{")
		value, err := strconv.ParseFloat(strings.TrimSpace(line[at+1:]), 64)
		if err != nil || !slices.ContainsFunc(reads, func(read selector) bool { return read.matches(name, line) }) {
			continue
		}
		if strings.HasSuffix(name, "_timestamp_seconds") {
			value -= float64(s.began.UnixMilli()) / 1000
		}
		series := line[:at]
		if name == series {
			series += "{}"
		}
		if s.seen[by][series] == nil {
			s.seen[by][series] = map[int]string{}
		}
		s.seen[by][series][second] = strconv.FormatFloat(value, 'f', -1, 64)
	}
}

// targets returns the recording: by interval, then in the order of their first scrapes.
func (s *scraper) targets() (all []target) {
	for by, series := range s.seen {
		all = append(all, newTarget(by.every, series))
	}
	slices.SortFunc(all, func(a, b target) int {
		return cmp.Or(slices.Index(intervals(), a.every)-slices.Index(intervals(), b.every), a.times[0]-b.times[0],
			cmp.Compare(fmt.Sprint(a.times), fmt.Sprint(b.times)))
	})
	return all
}

// newTarget aligns the series with the scrapes.
func newTarget(every string, series map[string]map[int]string) target {
	t := target{every: every, series: map[string][]string{}}
	for _, values := range series {
		for at := range values {
			t.times = append(t.times, at)
		}
	}
	slices.Sort(t.times)
	t.times = slices.Compact(t.times)
	for name, values := range series {
		for _, at := range t.times {
			t.series[name] = append(t.series[name], cmp.Or(values[at], "_"))
		}
	}
	return t
}
