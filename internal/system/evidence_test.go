// SPDX-License-Identifier: Apache-2.0

package system

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// provenance is a row of a page's last table, which internal/system/made writes. What runs before it did not note is unknown.
var provenance = regexp.MustCompile("^\\| 20\\d\\d-\\d\\d-\\d\\d \\| [0-9a-f]{7,40}\\+? \\| go\\S+ \\w+/\\w+, \\d+ processors, [^|]+ \\| (\\d+|unknown) \\| ([\\d.]+|unknown) \\| `make [a-z-]+( [^`]*)?` \\|$")

// TestEvidence: a page of evidence says when, from which commit, where, for how long and by which command it was measured, and
// what was not.
func TestEvidence(t *testing.T) {
	byHand := []string{"comparison.md", "control-experiments.md"} // what was tried at several times, and what others' sources say
	pages := 0
	walk(t, func(file string) {
		name := path.Base(file)
		if path.Dir(file) != "docs/evidence" || path.Ext(file) != ".md" || slices.Contains(byHand, name) {
			return
		}
		pages++
		text := read(t, file)
		if !strings.Contains(text, "## Not measured\n") {
			t.Errorf("%s: has no section \"Not measured\"", file)
		}
		_, runs, _ := strings.Cut(text, "\n## Runs\n")
		rows := strings.Split(strings.TrimSpace(runs), "\n")
		if len(rows) < 3 {
			t.Errorf("%s: has no rows in a section \"Runs\" at its end", file)
			return
		}
		for _, row := range rows[2:] {
			if !provenance.MatchString(row) {
				t.Errorf("%s: not a run: %s", file, row)
			}
		}
	})
	if pages < 10 {
		t.Errorf("%d pages", pages)
	}
}

// benchmark is a variant in a row of docs/evidence/benchmarks.md, and its time.
var benchmark = regexp.MustCompile(`([^|;]*?) ([\d.]+) (ns|µs|ms)[,:| ]`)

// lost is the row of all random worlds that says in how many failsafe-go gets more done.
var lost = regexp.MustCompile(`\| all \((\d+)\) \| failsafe-go gets no more done by over ([\d.]+) \| [\d.]+ \| [\d.]+ \((\d+)\)`)

// TestQuoted: what README and comparison say of the benchmarks and of random worlds is what the pages of those say.
func TestQuoted(t *testing.T) {
	const ours = ""
	// ratios returns, of each row with such a title, how many times as long the one variant takes as the other.
	page := read(t, "docs/evidence/benchmarks.md")
	ratios := func(title, one, other string) (all []float64) {
		for line := range strings.SplitSeq(page, "\n") {
			if !strings.HasPrefix(line, "| "+title) {
				continue
			}
			ns := map[string]float64{}
			for _, m := range benchmark.FindAllStringSubmatch(line, -1) {
				for _, name := range []string{one, other} {
					if name == ours && m[1] == "" && ns[ours] == 0 || name != ours && strings.Contains(m[1], name) {
						v, _ := strconv.ParseFloat(m[2], 64)
						ns[name] = v * map[string]float64{"ns": 1, "µs": 1e3, "ms": 1e6}[m[3]]
					}
				}
			}
			if ns[one] == 0 || ns[other] == 0 {
				t.Fatalf("%q has no %q or no %q", title, one, other)
			}
			all = append(all, ns[one]/ns[other])
		}
		if len(all) == 0 {
			t.Fatalf("no row %q", title)
		}
		return all
	}
	const perRecord, nats, pg = "ledgers per record", "throughput on JetStream: ", "throughput on PostgreSQL: " // ours are per window
	rejection := ratios("warden: refusal, explained (1)", ours, "a bare false")
	pull, river := ratios(nats, perRecord, "a pull consumer"), ratios(pg, perRecord, "River")
	pulled, rivered := ratios(nats, "a pull consumer", ours), ratios(pg, "River", ours)
	worlds := lost.FindStringSubmatch(read(t, "docs/evidence/worlds.md"))
	if worlds == nil {
		t.Fatal("worlds.md does not say where failsafe-go gets more done")
	}
	bare := fmt.Sprintf("takes %.0f times as long as", rejection[0])
	for file, sentences := range map[string][]string{
		"README.md": {bare},
		"docs/evidence/comparison.md": {
			bare,
			fmt.Sprintf("failsafe-go gets more done, by over %s, in %s of %s random worlds", worlds[2], worlds[3], worlds[1]),
			fmt.Sprintf("JetStream consumer is %.0f to %.0f times as fast, and River as fast or up to %.0f %% faster", slices.Min(pull), slices.Max(pull),
				100*slices.Max(river)-100),
			fmt.Sprintf("River takes %.1f to %.1f times as long, and a plain consumer %.2f to %.1f times", slices.Min(rivered),
				slices.Max(rivered), slices.Min(pulled), slices.Max(pulled)),
		},
	} {
		text := strings.Join(strings.Fields(read(t, file)), " ")
		for _, sentence := range sentences {
			if !strings.Contains(text, sentence) {
				t.Errorf("%s: the evidence says: %s", file, sentence)
			}
		}
	}
}
