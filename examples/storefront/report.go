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
	fmt.Fprintf(w, "A shop has %d database connections. A release makes its analytics query slow. Real HTTP, real %s.\n", sc.total(), database)
	fmt.Fprintf(w, "The demo is %d times as fast as the incident; all times below are as you see them pass (seed %d). The slow query\n"+
		"takes %v; a request waits up to %v for a connection; a client gives up after %v.\n",
		sc.scale, seed, sc.phases[1].hold[analytics], sc.acquire, sc.patience)
	printRates(w, sc.phases[0])
}

func printOverload(w io.Writer, sc scenario) {
	fmt.Fprintf(w, "\nNow the shop runs on one processor, and a page of products costs %v of it. A sale brings %.0f page requests a second,\n"+
		"%.1f times what the processor can render. This part runs at real speed.\n", renderTime, sc.phases[1].perSecond[products], sc.phases[1].perSecond[products]*renderTime.Seconds())
}

func printRates(w io.Writer, p phase) {
	fmt.Fprint(w, "Requests per second:")
	for r := range routes {
		fmt.Fprintf(w, " %s %.0f", r, p.perSecond[r])
	}
	fmt.Fprintln(w)
}

// printWay prints the head of a way's table; pools is the head of the last column.
func printWay(w io.Writer, nth, of int, name, pools string) {
	fmt.Fprintf(w, "\n%d of %d: %s\n", nth, of, name)
	fmt.Fprintf(w, "%6s  %-10s %s\n", "time", "phase", "  requests of the last second that succeeded: 1.000 = all, - = none ended")
	fmt.Fprintf(w, "%6s  %-10s", "", "")
	for r := range routes {
		fmt.Fprintf(w, " %9s", r)
	}
	fmt.Fprintf(w, "   %s\n", pools)
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
	fmt.Fprintf(w, "\n%s\n%-10s %-9s %5s %7s %5s %5s  %s\n", title, "phase", "route", "sent", "success", "p50", "p99", "all others, by reason")
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
		fmt.Fprintf(w, "%s: unexpected errors; the first: %v\n", otherwise, res.unforeseen)
	}
}

func printLegend(w io.Writer) {
	fmt.Fprint(w, `
How to read the tables:
  success          share of the sent requests that got a full answer in time; 1.000 = all
  p50, p99         milliseconds from the moment a request was due to its end, errors and rejections included
  (empty)          a page that does no work: its p99 is the delay of this machine itself
Why the other requests had no full answer:
  late             the client gave up before the answer came
  pool_timeout     no database connection became free in time
  timeout_running  the query exceeded its compartment's Timeout and was canceled
  timeout_queued   rejected: no slot of its compartment became free in time
  queue_overflow   rejected: its compartment's queue was full
  breaker_open     rejected: the circuit breaker had seen too many failures
  any other word   rejected by the warden before any work was done, to shed load
  cached: REASON   answered with an older list of products, because of REASON

Checks (ok or FAIL; measured values in brackets):
`)
}

func printVerdict(w io.Writer, f findings, holds string) {
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
