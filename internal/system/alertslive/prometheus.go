// A private Prometheus, which scrapes each target at three common intervals.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

type prometheus struct {
	url string
	cmd *exec.Cmd
}

func startPrometheus(ctx context.Context, dir string) (*prometheus, error) {
	var config strings.Builder
	config.WriteString("scrape_configs:\n")
	for _, every := range intervals() {
		fmt.Fprintf(&config, "  - job_name: '%s'\n    scrape_interval: %[1]s\n    scrape_timeout: 5s\n    file_sd_configs: [{files: ['%s/targets/*.json']}]\n", every, dir)
	}
	file := filepath.Join(dir, "prometheus.yml")
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "targets"), 0o700), os.WriteFile(file, []byte(config.String()), 0o600)); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	_ = l.Close()
	cmd := exec.CommandContext(ctx, "prometheus", "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	log, err := os.Create(filepath.Join(dir, "prometheus.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &prometheus{"http://" + address, cmd}
	for range 100 {
		if resp, err := http.Get(p.url + "/-/ready"); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return p, nil
			}
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			break
		}
	}
	p.stop()
	return nil, errors.New("prometheus does not become ready")
}

func (p *prometheus) stop() {
	_ = p.cmd.Process.Signal(os.Interrupt)
	_ = p.cmd.Wait()
}

// rules are the files with the rules to test.
func rules() []string {
	return []string{"docs/prometheus/alerts.yml", "docs/prometheus/slo.yml"}
}

// selectors returns the series that the rules read, and those that the broken rules of the test read in addition.
func selectors() ([]string, error) {
	found := map[string]bool{"stopbank_control_decision_timestamp_seconds": true, "stopbank_control_decision_valid_seconds": true}
	for _, file := range rules() {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(b)) {
			if strings.HasPrefix(strings.TrimSpace(line), "#") {
				continue
			}
			for _, s := range regexp.MustCompile(`\bstopbank_[a-z_]+(\{[^}]*\})?`).FindAllString(line, -1) {
				found[s] = true
			}
		}
	}
	return sortedKeys(found), nil
}

// record writes the recording of a phase.
func (p *prometheus) record(ctx context.Context, phase string, from, to time.Time, out string) error {
	all, err := selectors()
	if err != nil {
		return err
	}
	type scraped struct{ every, instance string }
	stored := map[scraped]map[string]map[int]string{} // by series, by second
	began := float64(from.UnixMilli()) / 1000
	for _, selector := range all {
		name, labels, _ := strings.Cut(strings.TrimSuffix(selector, "}"), "{")
		query := fmt.Sprintf(`%s{%s,phase=%q}[%ds]`, name, labels, phase, int(to.Sub(from).Seconds()))
		series, err := p.query(ctx, strings.Replace(query, "{,", "{", 1), to)
		if err != nil {
			return fmt.Errorf("%s: %w", query, err)
		}
		for _, s := range series {
			at := scraped{s.Metric["job"], s.Metric["instance"]}
			if stored[at] == nil {
				stored[at] = map[string]map[int]string{}
			}
			name := s.name()
			if stored[at][name] == nil {
				stored[at][name] = map[int]string{}
			}
			for _, v := range s.Values {
				if strings.HasSuffix(s.Metric["__name__"], "_timestamp_seconds") { // replays begin at Unix time 0
					seconds, err := strconv.ParseFloat(v.value, 64)
					if err != nil {
						return err
					}
					v.value = strconv.FormatFloat(seconds-began, 'f', 3, 64)
				}
				stored[at][name][int(math.Round(v.at-began))] = v.value
			}
		}
	}
	var targets []target
	for _, every := range intervals() {
		for at, series := range stored {
			if at.every == every {
				targets = append(targets, newTarget(every, series))
			}
		}
	}
	slices.SortStableFunc(targets, func(a, b target) int {
		return cmp.Or(slices.Index(intervals(), a.every)-slices.Index(intervals(), b.every), a.times[0]-b.times[0], cmp.Compare(fmt.Sprint(a.times), fmt.Sprint(b.times)))
	})
	comment := fmt.Sprintf("made by: go run ./internal/system/alertslive %s (make alerts-live); %s", phase, to.UTC().Format(time.DateOnly))
	return write(filepath.Join(out, phase+".txt.gz"), comment, targets)
}

// newTarget aligns the series with the scrapes.
func newTarget(every string, series map[string]map[int]string) target {
	t := target{every: every, series: map[string][]string{}}
	scrapes := map[int]bool{}
	for _, values := range series {
		for at := range values {
			scrapes[at] = true
		}
	}
	for at := range scrapes {
		t.times = append(t.times, at)
	}
	slices.Sort(t.times)
	for name, values := range series {
		for _, at := range t.times {
			value, ok := values[at]
			if !ok {
				value = "_"
			}
			t.series[name] = append(t.series[name], value)
		}
	}
	return t
}

// stored is a series in Prometheus' JSON.
type stored struct {
	Metric map[string]string
	Values []sample
}

// name is the series without the labels of the recording.
func (s stored) name() string {
	var labels []string
	for _, name := range sortedKeys(s.Metric) {
		if !slices.Contains([]string{"__name__", "job", "instance", "phase"}, name) {
			labels = append(labels, fmt.Sprintf("%s=%q", name, s.Metric[name]))
		}
	}
	return s.Metric["__name__"] + "{" + strings.Join(labels, ",") + "}"
}

type sample struct {
	at    float64
	value string
}

// UnmarshalJSON implements json.Unmarshaler: a sample is a list of two values.
func (s *sample) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &[]any{&s.at, &s.value}) }

// query returns all samples of a range selector at a time.
func (p *prometheus) query(ctx context.Context, selector string, at time.Time) ([]stored, error) {
	form := url.Values{"query": {selector}, "time": {strconv.FormatInt(at.Unix(), 10)}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/api/v1/query?"+form.Encode(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var answer struct {
		Status, Error string
		Data          struct{ Result []stored }
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return nil, err
	}
	if answer.Status != "success" {
		return nil, errors.New(answer.Error)
	}
	return answer.Data.Result, nil
}

// intervals are the scrape intervals.
func intervals() []string { return []string{"5s", "15s", "60s"} }
