// SPDX-License-Identifier: Apache-2.0

// The dashboard's graphs of a recording, as one picture: Prometheus reads the recording and answers the panels' queries.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html"
	"maps"
	"math"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

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
	targets, err := read(recording(phase))
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
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	end, err := blocks(ctx, dir, targets)
	if err != nil {
		return err
	}
	server, err := deploy.StartPrometheus(ctx, dir, "", "--storage.tsdb.retention.time=100y")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	var graphs []graph
	for _, p := range panels {
		g := graph{panel: p}
		for _, query := range p.queries {
			lines, err := answer(ctx, server, query, end)
			if err != nil {
				return fmt.Errorf("%s: %s: %w", p.title, query, err)
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

// blocks writes the targets that were scraped every shownAt as the data of a server in dir. end is their length in seconds.
func blocks(ctx context.Context, dir string, targets []target) (end int, err error) {
	text := new(strings.Builder)
	for i, t := range targets {
		if t.every != shownAt {
			continue
		}
		end = max(end, t.times[len(t.times)-1])
		for _, name := range sortedKeys(t.series) {
			for n, value := range t.series[name] {
				if value != "_" {
					fmt.Fprintf(text, "%s %s %d\n", labeled(name, i), value, begin+t.times[n])
				}
			}
		}
	}
	series := filepath.Join(dir, "series.txt")
	if err := os.WriteFile(series, []byte(text.String()+"# EOF\n"), 0o600); err != nil {
		return 0, err
	}
	said, err := exec.CommandContext(ctx, "promtool", "tsdb", "create-blocks-from", "openmetrics", series,
		filepath.Join(dir, "data")).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("promtool: %w\n%s", err, said)
	}
	return end, nil
}

// answer returns the lines of a query over all of a recording.
func answer(ctx context.Context, server *deploy.Prometheus, query string, end int) (lines []line, err error) {
	var data struct {
		Result []struct {
			Values [][2]any `json:"values"`
		}
	}
	asked := url.Values{"query": {query}, "start": {strconv.Itoa(begin)}, "end": {strconv.Itoa(begin + end)}, "step": {"15"}}
	if err := server.Get(ctx, "query_range?"+asked.Encode(), &data); err != nil {
		return nil, err
	}
	for _, of := range data.Result {
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
