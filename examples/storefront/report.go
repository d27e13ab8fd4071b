// What the demo prints: a line per second while it runs, then both ways side by side and the verdict.
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

func printIntro(w io.Writer, sc scenario, seed uint64) {
	fmt.Fprintf(w, "A slow analytics query ships to a shop with %d database connections: real HTTP, real SQLite, %v.\n",
		sc.total(), sc.duration()*time.Duration(len(ways)))
	fmt.Fprintf(w, "Scale 1:%d, seed %d. Slow query: %v. Longest wait for a connection: %v. Client's deadline: %v.\n",
		sc.scale, seed, sc.report[slow], sc.acquire, sc.patience)
	fmt.Fprint(w, "Requests per second:")
	for r := range routes {
		fmt.Fprintf(w, " %s %.0f", r, sc.perSecond[r])
	}
	fmt.Fprintln(w)
}

func printWay(w io.Writer, nth int, name string) {
	fmt.Fprintf(w, "\n%d of %d: %s\n", nth, len(ways), name)
	fmt.Fprintf(w, "%6s  %-8s %s\n", "time", "phase", "  success in the last second               connections in use")
	fmt.Fprintf(w, "%6s  %-8s", "", "")
	for r := range routes {
		fmt.Fprintf(w, " %9s", r)
	}
	fmt.Fprintln(w)
}

// A moment is what the last second looked like.
type moment struct {
	elapsed time.Duration
	phase   phase
	recent  [routes]figures
	inUse   string
}

func printMoment(w io.Writer, m moment) {
	fmt.Fprintf(w, "%5.0fs  %-8s", m.elapsed.Seconds(), m.phase)
	for r := range routes {
		text := "-" // no request ended
		if m.recent[r].requests() > 0 {
			text = share(m.recent[r].share(succeeded))
		}
		fmt.Fprintf(w, " %9s", text)
	}
	fmt.Fprintf(w, "   %s\n", m.inUse)
}

// printTable shows every phase and route once, with the two ways beside each other.
func printTable(w io.Writer, results []result) {
	fmt.Fprintf(w, "\n%24s | %-35s | %s\n", "", ways[0].short, ways[1].short)
	fmt.Fprintf(w, "%-8s %-9s %5s", "phase", "route", "sent")
	for range results {
		fmt.Fprintf(w, " | %7s %5s %5s %5s %4s %4s", "success", "p50", "p99", "gate", "pool", "late")
	}
	fmt.Fprintln(w)
	for p := range phases {
		fmt.Fprintln(w, strings.Repeat("-", 24)+strings.Repeat("-+-"+strings.Repeat("-", 35), len(results)))
		for r := range routes {
			fmt.Fprintf(w, "%-8s %-9s %5d", p, r, results[0].figures[p][r].requests())
			for _, res := range results {
				f := res.figures[p][r]
				fmt.Fprintf(w, " | %7s %5s %5s %5d %4d %4d", share(f.share(succeeded)), millis(f.p50), millis(f.p99),
					f.count[gateRejected], f.count[poolTimeout], f.count[clientTimeout])
			}
			fmt.Fprintln(w)
		}
	}
	fmt.Fprintln(w, "\np50, p99: milliseconds from the intended start to the outcome, refusals included.")
	fmt.Fprintln(w, "gate: refused at once (503); pool: no connection in time (504); late: the client's deadline passed.")
	fmt.Fprintln(w, "The shared pool serves until it is full, and for a moment when slow queries end. A rollback frees")
	fmt.Fprintln(w, "nothing: the slow queries that already run keep their connections until they end.")
	for i, res := range results {
		others := 0
		for p := range phases {
			for r := range routes {
				others += res.figures[p][r].count[otherFailure]
			}
		}
		if others > 0 {
			fmt.Fprintf(w, "%s: %d requests failed in another way, the first with: %v\n", ways[i].short, others, res.firstOther)
		}
	}
}

func printVerdict(w io.Writer, findings []finding, holds bool) {
	fmt.Fprintln(w)
	for _, f := range findings {
		mark := "ok  "
		if !f.Holds {
			mark = "FAIL"
		}
		fmt.Fprintf(w, "%s %s\n", mark, f.Claim)
	}
	if holds {
		fmt.Fprintln(w, "VERDICT: holds. Shared, the slow query takes checkout down; isolated, only analytics suffers.")
		return
	}
	fmt.Fprintln(w, "VERDICT: does not hold, see FAIL above.")
}

// printJSON writes the whole run as one object.
func printJSON(w io.Writer, sc scenario, seed uint64, results []result, findings []finding, holds bool) error {
	type row struct {
		Way           string  `json:"way"`
		Phase         string  `json:"phase"`
		Route         string  `json:"route"`
		Requests      int     `json:"requests"`
		Success       float64 `json:"success"`
		P50           float64 `json:"p50_ms"`
		P99           float64 `json:"p99_ms"`
		GateRejected  int     `json:"gate_rejected"`
		PoolTimeout   int     `json:"pool_timeout"`
		ClientTimeout int     `json:"client_timeout"`
		Other         int     `json:"other_failure"`
	}
	out := struct {
		Scale    int       `json:"scale"`
		Seed     uint64    `json:"seed"`
		Rows     []row     `json:"rows"`
		Findings []finding `json:"findings"`
		Holds    bool      `json:"holds"`
	}{sc.scale, seed, nil, findings, holds}
	for i, res := range results {
		for p := range phases {
			for r := range routes {
				f := res.figures[p][r]
				out.Rows = append(out.Rows, row{
					ways[i].short, p.String(), r.String(), f.requests(), f.share(succeeded),
					float64(f.p50.Microseconds()) / 1000, float64(f.p99.Microseconds()) / 1000,
					f.count[gateRejected], f.count[poolTimeout], f.count[clientTimeout], f.count[otherFailure],
				})
			}
		}
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(out)
}
