// What the demo prints: a line per second while it runs, then a table per way and the verdict.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"time"
)

// share formats a share with three digits, cut and not rounded: 1.000 means all.
func share(x float64) string { return fmt.Sprintf("%.3f", math.Floor(x*1000+1e-9)/1000) }

// millis formats a latency in milliseconds, short.
func millis(d time.Duration) string {
	if ms := float64(d) / float64(time.Millisecond); ms < 10 {
		return fmt.Sprintf("%.1f", ms)
	}
	return fmt.Sprint(d.Round(time.Millisecond).Milliseconds())
}

func printIntro(w io.Writer, sc scenario, database string, seed uint64) {
	fmt.Fprintf(w, "A slow analytics query ships to a shop with %d database connections: real HTTP, real %s.\n", sc.total(), database)
	fmt.Fprintf(w, "Time scale 1:%d, seed %d. Slow query: %v. Longest wait for a connection: %v. Client's deadline: %v.\n",
		sc.scale, seed, sc.phases[1].hold[analytics], sc.acquire, sc.patience)
	printRates(w, sc.phases[0])
}

func printOverload(w io.Writer, sc scenario) {
	fmt.Fprintf(w, "\nThe shop moves to a process with one processor; a page of products costs it %v. A sale asks for %.0f pages a second,\n"+
		"%.1f times what it can render. This is not scaled.\n", renderTime, sc.phases[1].perSecond[products], sc.phases[1].perSecond[products]*renderTime.Seconds())
}

func printRates(w io.Writer, p phase) {
	fmt.Fprint(w, "Requests per second:")
	for r := range routes {
		fmt.Fprintf(w, " %s %.0f", r, p.perSecond[r])
	}
	fmt.Fprintln(w)
}

func printWay(w io.Writer, nth, of int, name string) {
	fmt.Fprintf(w, "\n%d of %d: %s\n", nth, of, name)
	fmt.Fprintf(w, "%6s  %-10s %s\n", "time", "phase", "  success in the last second               connections in use")
	fmt.Fprintf(w, "%6s  %-10s", "", "")
	for r := range routes {
		fmt.Fprintf(w, " %9s", r)
	}
	fmt.Fprintln(w)
}

func printMoment(w io.Writer, m moment) {
	fmt.Fprintf(w, "%5.0fs  %-10s", m.elapsed.Seconds(), m.phase)
	for r := range routes {
		text := "-" // no request ended
		if m.recent[r].sent > 0 {
			text = share(m.recent[r].success())
		}
		fmt.Fprintf(w, " %9s", text)
	}
	fmt.Fprintf(w, "   %s\n", m.inUse)
}

// printTable shows every phase and route of one way.
func printTable(w io.Writer, res result, title string) {
	fmt.Fprintf(w, "\n%s\n%-10s %-9s %5s %7s %5s %5s  %s\n", title, "phase", "route", "sent", "success", "p50", "p99", "not answered, or from the cache, by reason")
	for p, figures := range res.figures {
		fmt.Fprintln(w, strings.Repeat("-", 90))
		for r, f := range figures {
			if f.sent == 0 {
				continue
			}
			line := fmt.Sprintf("%-10s %-9s %5d %7s %5s %5s  %s", res.phases[p], route(r), f.sent, share(f.success()), millis(f.p50), millis(f.p99), f.reasons())
			fmt.Fprintln(w, strings.TrimRight(line, " "))
		}
	}
	if res.unforeseen != nil {
		fmt.Fprintf(w, "%s counts what was not foreseen; the first: %v\n", otherwise, res.unforeseen)
	}
}

func printLegend(w io.Writer) {
	fmt.Fprint(w, `
p50, p99: milliseconds from the intended start to the outcome, rejections included. late: the client's
deadline passed. pool_timeout: no connection in time. timeout_running: the query took too long.
All other reasons are rejections before anything was done; cached: an older list of products.
(empty): a page that needs nothing, to see what the machine itself makes a request wait.
`)
}

func printVerdict(w io.Writer, f findings, holds string) {
	fmt.Fprintln(w)
	for _, one := range f {
		mark := "ok  "
		if !one.Holds {
			mark = "FAIL"
		}
		fmt.Fprintf(w, "%s %s\n", mark, one.Claim)
	}
	if f.hold() {
		fmt.Fprintln(w, "VERDICT: holds. "+holds)
		return
	}
	fmt.Fprintln(w, "VERDICT: does not hold, see FAIL above.")
}

// printJSON writes the whole run as one object.
func printJSON(w io.Writer, scale int, seed uint64, results []result, f findings) error {
	type row struct {
		Way       string         `json:"way"`
		Phase     string         `json:"phase"`
		Route     string         `json:"route"`
		Requests  int            `json:"requests"`
		Success   float64        `json:"success"`
		Succeeded int            `json:"succeeded"`
		P50       float64        `json:"p50_ms"`
		P99       float64        `json:"p99_ms"`
		Failed    map[string]int `json:"failed"`
		Cached    map[string]int `json:"cached"`
	}
	out := struct {
		Scale    int      `json:"scale"`
		Seed     uint64   `json:"seed"`
		Rows     []row    `json:"rows"`
		Findings findings `json:"findings"`
		Holds    bool     `json:"holds"`
	}{scale, seed, nil, f, f.hold()}
	for _, res := range results {
		for p, figures := range res.figures {
			for r, c := range figures {
				out.Rows = append(out.Rows, row{
					res.way, res.phases[p], route(r).String(), c.sent, c.success(), c.succeeded,
					float64(c.p50.Microseconds()) / 1000, float64(c.p99.Microseconds()) / 1000, c.failed, c.cached,
				})
			}
		}
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(out)
}
