// The result of a fleet's run: totals that must be consistent, and counts for each half second.

package sim

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/stopbank/stopbank/warden/limiter"
)

// window is the length of one counting interval.
const window = 500 * time.Millisecond

// FleetResult is the result of a fleet's run.
type FleetResult struct {
	Fleet Fleet

	offered, good, failed int // requests
	// Attempts of users and their ends: a response, a rejection, or a client timeout. A response or rejection that arrives after
	// the timeout is unheard.
	attempts, answers, refusals, timeouts, unheard int
	// Messages to servers, from users and between hops: sent, answered, and still in a server.
	sent, answered, inside int
	executed               []struct{ all, wasted int } // by hop

	windows []fleetWindow
}

// fleetWindow counts requests by arrival time, attempts by their own time.
type fleetWindow struct {
	offered, good, critical, goodCritical int
	attempts, throttled                   int
	target                                int // sum over all servers at the window's end
}

func newFleetResult(sc Fleet) *FleetResult {
	return &FleetResult{Fleet: sc, windows: make([]fleetWindow, sc.Length/window), executed: make([]struct{ all, wasted int }, len(sc.Front)+1)}
}

// at returns the window of a time; events after the last window are not counted.
func (r *FleetResult) at(at time.Duration) *fleetWindow {
	if i := int(at / window); i < len(r.windows) {
		return &r.windows[i]
	}
	return &fleetWindow{}
}

func (r *FleetResult) offer(q *request) {
	r.offered++
	w := r.at(q.at)
	w.offered++
	if q.priority == limiter.Critical {
		w.critical++
	}
}

func (r *FleetResult) try(at time.Duration) {
	r.attempts++
	r.at(at).attempts++
}

// throttle counts a request that its client did not send.
func (r *FleetResult) throttle(at time.Duration) { r.at(at).throttled++ }

func (r *FleetResult) done(q *request, good bool) {
	if !good {
		r.failed++
		return
	}
	r.good++
	w := r.at(q.at)
	w.good++
	if q.priority == limiter.Critical {
		w.goodCritical++
	}
}

// sum adds up the windows in [from, until).
func (r *FleetResult) sum(from, until time.Duration) (s fleetWindow) {
	for i, w := range r.windows {
		if at := time.Duration(i) * window; at >= from && at < until {
			s.offered += w.offered
			s.good += w.good
			s.critical += w.critical
			s.goodCritical += w.goodCritical
			s.attempts += w.attempts
			s.throttled += w.throttled
		}
	}
	return s
}

func (w fleetWindow) success() float64 { return float64(w.good) / max(float64(w.offered), 1) }

func (w fleetWindow) criticalSuccess() float64 {
	return float64(w.goodCritical) / max(float64(w.critical), 1)
}

// amplification is attempts per request.
func (w fleetWindow) amplification() float64 { return float64(w.attempts) / max(float64(w.offered), 1) }

// warm is excluded at the start of the run; last is the length of its final part.
const warm, last = 2 * time.Second, 4 * time.Second

// before is the run before the trigger, without warm-up.
func (r *FleetResult) before() fleetWindow { return r.sum(warm, r.Fleet.From) }

// steady is the run after warm-up.
func (r *FleetResult) steady() fleetWindow { return r.sum(warm, r.Fleet.Length) }

// during is the time of the trigger.
func (r *FleetResult) during() fleetWindow { return r.sum(r.Fleet.From, r.Fleet.Until) }

// refused is the last ten seconds of the trigger.
func (r *FleetResult) refused() fleetWindow {
	return r.sum(r.Fleet.Until-10*time.Second, r.Fleet.Until)
}

// after is the final part of the run.
func (r *FleetResult) after() fleetWindow {
	return r.sum(r.Fleet.Length-last, r.Fleet.Length)
}

// Recovery is the time from the end of the trigger until goodput is back: of the requests from then on, at least 95 % as many
// are answered as before the trigger. False: not within the run.
func (r *FleetResult) Recovery() (time.Duration, bool) {
	enough := 0.95 * r.before().success()
	i := len(r.windows)
	for i > 0 && r.windows[i-1].success() >= enough {
		i--
	}
	at := max(time.Duration(i)*window, r.Fleet.Until)
	return at - r.Fleet.Until, at < r.Fleet.Length
}

// Load is the rate of all attempts in the final part, relative to the capacity. Below 1, a backlog shrinks.
func (r *FleetResult) Load() float64 {
	return float64(r.after().attempts) / (last.Seconds() * r.Fleet.Capacity)
}

// Metastable reports whether the fleet stays down long after the trigger and cannot recover by itself: in the final part less than
// half of the requests are answered, and attempts exceed the capacity.
func (r *FleetResult) Metastable() bool {
	return r.after().success() < 0.5*r.before().success() && r.Load() > 1
}

// WastedAt is the fraction of executions at a hop whose user had left.
func (r *FleetResult) WastedAt(hop int) float64 {
	return float64(r.executed[hop].wasted) / max(float64(r.executed[hop].all), 1)
}

// Wasted is WastedAt of the last hop.
func (r *FleetResult) Wasted() float64 { return r.WastedAt(len(r.executed) - 1) }

// Check returns the counts that are inconsistent.
func (r *FleetResult) Check() error {
	var wrong []string
	for _, law := range []struct {
		name        string
		left, right int
	}{
		{"requests end once", r.offered, r.good + r.failed},
		{"attempts end once for their users", r.attempts, r.answers + r.refusals + r.timeouts},
		{"a good request is one answer", r.good, r.answers},
		{"messages are answered once", r.sent, r.answered + r.inside},
	} {
		if law.left != law.right {
			wrong = append(wrong, fmt.Sprintf("%s: %d is not %d", law.name, law.left, law.right))
		}
	}
	if wrong == nil {
		return nil
	}
	return fmt.Errorf("%s: %s", r.Fleet.Name, strings.Join(wrong, "; "))
}

// FleetTable is the Markdown table of runs.
func FleetTable(runs []*FleetResult) string {
	var b strings.Builder
	b.WriteString("| what happens | servers | before | during | critical | in the end | back after | load in the end | wasted |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range runs {
		before, during, after := r.before(), r.during(), r.after()
		fmt.Fprintf(&b, "| %s | %s | %.3f | %.3f | %.3f | %.3f | %s | %.2f | %.0f %% |\n",
			r.Fleet.Name, r.Fleet.Guard.Name, before.success(), during.success(), during.criticalSuccess(), after.success(), r.back(),
			r.Load(), math.Round(100*r.Wasted()))
	}
	return b.String()
}

// ClientTable is the Markdown table of clients under three triggers, one row per client: a load step and a slow dependency, each
// without and with wardens, and servers that reject everything.
func ClientTable(rows [][]*FleetResult) string {
	var b strings.Builder
	b.WriteString("| clients | step; nothing guards | step; wardens | slow dependency; nothing guards | slow dependency; wardens | all refused | per request asked for | per request sent |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|\n")
	for _, row := range rows {
		fmt.Fprintf(&b, "| %s |", row[0].Fleet.Retry.Name)
		last := len(row) - 1
		for _, r := range row[:last] {
			fmt.Fprintf(&b, " %s (%.2f) |", r.back(), r.during().amplification())
		}
		refused := row[last].refused()
		fmt.Fprintf(&b, " %s | %.2f | %.2f |\n", row[last].back(), refused.amplification(), float64(refused.attempts)/float64(refused.offered-refused.throttled))
	}
	return b.String()
}

// HopTable is the Markdown table of call chains.
func HopTable(runs []*FleetResult) string {
	var b strings.Builder
	b.WriteString("| users wait | calls carry | answered | critical | wasted at hop 1 | at hop 2 | at hop 3 |\n|---|---|---|---|---|---|---|\n")
	for _, r := range runs {
		carry := "nothing"
		if r.Fleet.Propagate {
			carry = "deadline and criticality"
		}
		w := r.steady()
		fmt.Fprintf(&b, "| %d ms | %s | %.3f | %.3f |", r.Fleet.Timeout.Milliseconds(), carry, w.success(), w.criticalSuccess())
		for hop := range r.executed {
			fmt.Fprintf(&b, " %.1f %% |", 100*r.WastedAt(hop))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// back formats the recovery time of a run.
func (r *FleetResult) back() string {
	if d, ok := r.Recovery(); ok {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	if r.Metastable() {
		return "**never**"
	}
	return "not yet"
}

// LoadTable is the Markdown table of recovery times: one row per load, one column per guard.
func LoadTable(rows [][]*FleetResult) string {
	var b strings.Builder
	b.WriteString("| load before and after |")
	for _, r := range rows[0] {
		fmt.Fprintf(&b, " %s |", r.Fleet.Guard.Name)
	}
	b.WriteString("\n|" + strings.Repeat("---|", len(rows[0])+1) + "\n")
	for _, row := range rows {
		fmt.Fprintf(&b, "| %g |", row[0].Fleet.Load)
		for _, r := range row {
			fmt.Fprintf(&b, " %s (%.3f) |", r.back(), r.after().success())
		}
		b.WriteString("\n")
	}
	return b.String()
}
