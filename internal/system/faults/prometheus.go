// SPDX-License-Identifier: Apache-2.0

// Prometheus: which processes it scrapes, and what the operator asks it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/stopbank/stopbank/internal/system/deploy"
)

// A server is the Prometheus of a game.
type server struct {
	cmd     *exec.Cmd
	url     string
	targets string // the file of the targets
}

// startPrometheus starts one with the rules as they are, and returns when it answers. Its files are in dir.
func startPrometheus(ctx context.Context, dir string) (*server, error) {
	rules, err1 := filepath.Abs("docs/prometheus")
	l, err2 := net.Listen("tcp", "127.0.0.1:0")
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	address := l.Addr().String()
	s := &server{url: "http://" + address, targets: filepath.Join(dir, "targets.json")}
	config := fmt.Sprintf(`global: {scrape_interval: %v, scrape_timeout: 4s, evaluation_interval: %v}
scrape_configs:
  - job_name: games
    file_sd_configs: [{files: [%q], refresh_interval: 5s}]
rule_files: [%q, %q]
`, every, every, s.targets, filepath.Join(rules, "alerts.yml"), filepath.Join(rules, "slo.yml"))
	file := filepath.Join(dir, "prometheus.yml")
	if err := errors.Join(l.Close(), s.scrape(nil), os.WriteFile(file, []byte(config), 0o600)); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "prometheus.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	s.cmd = exec.Command("prometheus", "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--log.level=warn") //nolint:noctx // stop ends it
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	for range 200 {
		if s.get(ctx, "query?query=1", nil) == nil {
			return s, nil
		}
		if deploy.Sleep(ctx, 100*time.Millisecond) != nil {
			break
		}
	}
	return nil, errors.Join(errors.New("prometheus did not start: see "+log.Name()), s.stop())
}

// stop ends the server.
func (s *server) stop() error {
	_ = s.cmd.Process.Signal(os.Interrupt)
	_ = s.cmd.Wait() // by the signal
	return nil
}

// get asks the API, and decodes the answer's data.
func (s *server) get(ctx context.Context, path string, data any) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	_, body, err := deploy.Ask(ctx, http.DefaultClient, http.MethodGet, s.url+"/api/v1/"+path, nil)
	if err != nil {
		return err
	}
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.Unmarshal(body, &answer); err != nil {
		return err
	}
	if answer.Status != "success" {
		return errors.New(answer.Error)
	}
	return nil
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
	if err := s.get(ctx, "query?query="+url.QueryEscape(text), &data); err != nil || data.ResultType != "vector" {
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
	if err := s.get(ctx, "alerts", &data); err != nil {
		return nil, err
	}
	for _, a := range data.Alerts {
		if a.State == "firing" {
			firing = append(firing, alert{a.Labels["alertname"], a.Labels["severity"], a.Labels, a.ActiveAt})
		}
	}
	return firing, nil
}
