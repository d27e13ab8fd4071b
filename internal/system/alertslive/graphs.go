// SPDX-License-Identifier: Apache-2.0

// The dashboard's graphs of a recording, as one picture: Prometheus reads the recording and answers the panels' queries.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"maps"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stopbank/stopbank/internal/system/deploy"
)

// begin is when a recording begins, as Prometheus is told.
const begin = 1_700_000_000

// A line is a series of a graph: values by the second since begin.
type line map[int]float64

// A graph is a panel with its lines.
type graph struct {
	panel

	lines []line
}

// picture draws each panel of the dashboard that has something to show in a recording.
func picture(ctx context.Context, phase, out string) (err error) {
	recording := filepath.Join("docs", "prometheus", "recorded", phase+".txt.gz")
	targets, err := read(recording)
	if err != nil {
		return err
	}
	panels, err := dashboard("docs/grafana/stopbank.json")
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "graphs-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }() // after the server has ended
	ask, end, stop, err := prometheus(ctx, dir, targets)
	if err != nil {
		return err
	}
	defer stop()
	var graphs []graph
	for _, p := range panels {
		g := graph{panel: p}
		for _, query := range p.queries {
			lines, err := ask(query)
			if err != nil {
				return fmt.Errorf("%s: %w", p.title, err)
			}
			g.lines = append(g.lines, lines...)
		}
		if len(g.lines) > 0 && !p.instant {
			graphs = append(graphs, g)
		}
	}
	comment := fmt.Sprintf("made by: go run ./internal/system/alertslive -graphs %s %s", out, phase)
	return os.WriteFile(out, []byte(svg(comment, graphs, end)), 0o644) //nolint:gosec // a picture for everybody
}

// prometheus starts a server over the targets that were scraped every shownAt. ask evaluates a query over all of the recording,
// whose length it returns in seconds; stop ends the server.
func prometheus(ctx context.Context, dir string, targets []target) (
	ask func(string) ([]line, error), end int, stop func(), err error,
) {
	text := new(strings.Builder)
	for i, t := range targets {
		if t.every != shownAt {
			continue
		}
		end = max(end, t.times[len(t.times)-1])
		for _, name := range sortedKeys(t.series) {
			labeled := strings.Replace(strings.TrimSuffix(name, "}")+",", "{,", "{", 1)
			for n, value := range t.series[name] {
				if value != "_" {
					fmt.Fprintf(text, "%sjob=\"storefront\",instance=\"%d\"} %s %d\n", labeled, i, value, begin+t.times[n])
				}
			}
		}
	}
	series, data := filepath.Join(dir, "series.txt"), filepath.Join(dir, "data")
	if err := os.WriteFile(series, []byte(text.String()+"# EOF\n"), 0o600); err != nil {
		return nil, 0, nil, err
	}
	blocks := exec.CommandContext(ctx, "promtool", "tsdb", "create-blocks-from", "openmetrics", series, data)
	if said, err := blocks.CombinedOutput(); err != nil {
		return nil, 0, nil, fmt.Errorf("promtool: %w\n%s", err, said)
	}
	config := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(config, nil, 0o600); err != nil {
		return nil, 0, nil, err
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, 0, nil, err
	}
	address := free.Addr().String()
	if err := free.Close(); err != nil {
		return nil, 0, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	server := exec.CommandContext(ctx, "prometheus", "--config.file="+config, "--storage.tsdb.path="+data,
		"--storage.tsdb.retention.time=100y", "--web.listen-address="+address)
	server.Cancel = func() error { return server.Process.Signal(os.Interrupt) }
	if err := server.Start(); err != nil {
		cancel()
		return nil, 0, nil, err
	}
	stop = func() { cancel(); _ = server.Wait() }
	client := &http.Client{Timeout: 30 * time.Second}
	for {
		_, err := deploy.Get(ctx, client, http.MethodGet, "http://"+address+"/-/ready")
		if err == nil {
			break
		}
		if err := deploy.Sleep(ctx, 200*time.Millisecond); err != nil {
			stop()
			return nil, 0, nil, err
		}
	}
	return func(query string) ([]line, error) { return answer(ctx, client, address, query, end) }, end, stop, nil
}

// answer asks Prometheus for the lines of a query. It asks again while the server still reads its blocks.
func answer(ctx context.Context, client *http.Client, address, query string, end int) (lines []line, err error) {
	var got struct {
		Status, Error string
		Data          struct {
			Result []struct {
				Values [][2]any `json:"values"`
			}
		}
	}
	asked := url.Values{"query": {query}, "start": {strconv.Itoa(begin)}, "end": {strconv.Itoa(begin + end)}, "step": {"15"}}
	for tries := 0; got.Status == "" && tries < 50; tries++ {
		body, err := deploy.Get(ctx, client, http.MethodGet, "http://"+address+"/api/v1/query_range?"+asked.Encode())
		if err != nil {
			return nil, err
		}
		if json.Unmarshal(body, &got) != nil {
			if err := deploy.Sleep(ctx, 200*time.Millisecond); err != nil {
				return nil, err
			}
		}
	}
	if got.Status != "success" {
		return nil, fmt.Errorf("%s: %s", query, got.Error)
	}
	for _, of := range got.Data.Result {
		l := line{}
		for _, v := range of.Values {
			at, _ := v[0].(float64)
			said, _ := v[1].(string)
			if y, err := strconv.ParseFloat(said, 64); err == nil && !math.IsNaN(y) && !math.IsInf(y, 0) {
				l[int(at)-begin] = y
			}
		}
		if len(l) > 0 {
			lines = append(lines, l)
		}
	}
	return lines, nil
}

// svg draws the graphs in three columns, each from 0 to its highest value.
func svg(comment string, graphs []graph, end int) string {
	const columns, width, height, pad = 3, 380, 120, 12
	out := new(strings.Builder)
	rows := (len(graphs) + columns - 1) / columns
	w, h := columns*(width+pad)+pad, rows*(height+pad)+pad
	fmt.Fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "+
		"font-family=\"sans-serif\" font-size=\"12\">\n<!-- %s -->\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n", w, h, strings.ReplaceAll(comment, "--", "- -"))
	colors := []string{"#1f6fb4", "#c2410c", "#15803d", "#7e22ce", "#a16207", "#0e7490", "#be123c", "#475569"}
	for i, g := range graphs {
		top := 0.0
		for _, l := range g.lines {
			for _, y := range l {
				top = max(top, y)
			}
		}
		fmt.Fprintf(out, "<g transform=\"translate(%d %d)\">\n", pad+i%columns*(width+pad), pad+i/columns*(height+pad))
		fmt.Fprintf(out, "<rect width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#cbd5e1\"/>\n", width, height)
		fmt.Fprintf(out, "<text x=\"6\" y=\"16\" fill=\"#0f172a\">%s</text>\n", html.EscapeString(g.title))
		fmt.Fprintf(out, "<text x=\"%d\" y=\"32\" fill=\"#475569\" text-anchor=\"end\">up to %s</text>\n", width-6, value(top, g.unit))
		for n, l := range g.lines {
			points := make([]string, 0, len(l))
			for _, at := range slices.Sorted(maps.Keys(l)) {
				x := 6 + float64(at)/float64(max(end, 1))*(width-12)
				y := height - 6 - l[at]/cmp.Or(top, 1)*(height-44)
				points = append(points, fmt.Sprintf("%.1f,%.1f", x, y))
			}
			fmt.Fprintf(out, "<polyline fill=\"none\" stroke=%q points=%q/>\n", colors[n%len(colors)], strings.Join(points, " "))
		}
		fmt.Fprint(out, "</g>\n")
	}
	fmt.Fprint(out, "</svg>\n")
	return out.String()
}

// value writes a number of one of Grafana's units.
func value(v float64, unit string) string {
	switch unit {
	case "percentunit":
		return fmt.Sprintf("%.3g %%", 100*v)
	case "s":
		if v < 1 {
			return fmt.Sprintf("%.3g ms", 1000*v)
		}
		return fmt.Sprintf("%.3g s", v)
	case "bytes":
		return fmt.Sprintf("%.0f MB", v/1e6)
	case "reqps", "ops":
		return fmt.Sprintf("%.3g/s", v)
	}
	return fmt.Sprintf("%.3g", v)
}
