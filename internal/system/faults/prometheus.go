// SPDX-License-Identifier: Apache-2.0

// Prometheus: which processes it scrapes, and what the operator asks it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/stopbank/stopbank/internal/system/deploy"
)

// A server is the Prometheus of a game.
type server struct {
	*deploy.Prometheus

	targets string // the file of the targets
}

// startPrometheus starts one with the rules as they are. Its files are in dir.
func startPrometheus(ctx context.Context, dir string) (*server, error) {
	rules, err := filepath.Abs("docs/prometheus")
	if err != nil {
		return nil, err
	}
	s := &server{targets: filepath.Join(dir, "targets.json")}
	if err := s.scrape(nil); err != nil {
		return nil, err
	}
	config := fmt.Sprintf(`global: {scrape_interval: %v, scrape_timeout: 4s, evaluation_interval: %v}
scrape_configs:
  - job_name: games
    file_sd_configs: [{files: [%q], refresh_interval: 5s}]
rule_files: [%q, %q]
`, every, every, s.targets, filepath.Join(rules, "alerts.yml"), filepath.Join(rules, "slo.yml"))
	s.Prometheus, err = deploy.StartPrometheus(ctx, dir, config)
	return s, err
}

// scrape replaces the targets: addresses by job.
func (s *server) scrape(jobs map[string][]string) error {
	type group struct {
		Targets []string `json:"targets"`
		Labels  labels   `json:"labels"`
	}
	groups := []group{}
	for job, targets := range jobs {
		groups = append(groups, group{targets, labels{"job": job}})
	}
	b, err := json.Marshal(groups)
	if err != nil {
		return err
	}
	next := s.targets + ".next"
	return errors.Join(os.WriteFile(next, b, 0o600), os.Rename(next, s.targets))
}

// query returns the series that a query has now.
func (s *server) query(ctx context.Context, text string) (series []labels, err error) {
	var data struct {
		ResultType string
		Result     json.RawMessage
	}
	if err := s.Get(ctx, "query?query="+url.QueryEscape(text), &data); err != nil || data.ResultType != "vector" {
		return nil, err
	}
	var vector []struct{ Metric labels }
	if err := json.Unmarshal(data.Result, &vector); err != nil {
		return nil, err
	}
	for _, v := range vector {
		series = append(series, v.Metric)
	}
	return series, nil
}

// firing returns the alerts that fire.
func (s *server) firing(ctx context.Context) (firing []alert, err error) {
	var data struct {
		Alerts []struct {
			Labels   labels
			State    string
			ActiveAt time.Time
		}
	}
	if err := s.Get(ctx, "alerts", &data); err != nil {
		return nil, err
	}
	for _, a := range data.Alerts {
		if a.State == "firing" {
			firing = append(firing, alert{a.Labels["alertname"], a.Labels["severity"], a.Labels, a.ActiveAt})
		}
	}
	return firing, nil
}
