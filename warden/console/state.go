// SPDX-License-Identifier: Apache-2.0

// The state as JSON: the fields that docs/compatibility.md promises, with their units.

package console

import (
	"cmp"
	"hash/fnv"
	"io"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/decision"
)

// version is that of the fields. Adding a field keeps it; removing one, or changing its meaning, raises it.
const version = 1

// state is everything on the page. Times are RFC 3339, durations are in milliseconds with _ms in their name, shares are 0 to
// 1, and unknown values are null.
type state struct {
	Version    int          `json:"version"`
	Title      string       `json:"title"`
	Instance   string       `json:"instance"` // "": not known
	At         jsonTime     `json:"at"`
	IntervalMS jsonNumber   `json:"interval_ms"`
	Verdicts   []verdict    `json:"verdicts"` // the worst first; those beyond the first ten of a kind are one, which counts them
	Warden     *wardenState `json:"warden"`
	Set        *setState    `json:"set"`
	Limiters   []pool       `json:"limiters"`
	History    []point      `json:"history"`    // of the warden, the oldest first
	Pools      []poolPoint  `json:"pools"`      // of limiters and compartments, the oldest first
	Decisions  []phase      `json:"decisions"`  // the newest first
	Rejections []rejection  `json:"rejections"` // the newest first
}

// verdict is one sentence for an engineer who was just paged.
type verdict struct {
	Level   string `json:"level"` // "ok", "watch" or "act"
	Subject string `json:"subject"`
	Text    string `json:"text"`
	More    int    `json:"more"` // how many others it stands for; 0: it is of its subject alone
}

// wardenState is the current state of the warden.
type wardenState struct {
	pool
	DecisionState string          `json:"decision_state"` // "initial", "applied" or "stale"
	Decision      *decisionFields `json:"decision"`
	Samples       uint64          `json:"samples"`
	ByRequests    uint64          `json:"samples_by_requests"` // the ticker was late
	LargestGap    jsonNumber      `json:"largest_gap_ms"`      // between two samples
	Late          uint64          `json:"samples_late"`        // by more than half a second
	Panics        uint64          `json:"panics"`
	SilentForMS   jsonNumber      `json:"silent_for_ms"` // since the last sample; null before the first
	Bounds        boundsState     `json:"bounds"`
	Process       processState    `json:"process"`

	lowered lowered
}

// processState is what the last sample says of the process.
type processState struct {
	ProcessorShare jsonNumber `json:"processor_share"` // of the processor time that it could use; below 1, others use the rest
	MemoryLive     jsonNumber `json:"memory_live"`     // in bytes, after the last collection
	MemoryLimit    jsonNumber `json:"memory_limit"`    // in bytes
	Remote         bool       `json:"remote"`          // the work runs elsewhere: processors and memory of this process say nothing
	Pools          []usedPool `json:"pools"`           // the first 100
}

// usedPool is a connection pool.
type usedPool struct {
	Name    string     `json:"name"`
	Part    string     `json:"part"` // the compartment that alone uses it; "": all may
	InUse   int        `json:"in_use"`
	Max     int        `json:"max"` // 0: none is known
	Waiting jsonNumber `json:"waiting"`
	Problem string     `json:"problem"` // why the reading is not used; "": it is
}

// boundsState has the bounds that operators change while the warden runs, and the last change.
type boundsState struct {
	Min       *int       `json:"min"` // null: the controller has no bounds to change
	Max       *int       `json:"max"`
	MaxQueue  int        `json:"max_queue"`
	TimeoutMS jsonNumber `json:"timeout_ms"` // null: each middleware has its own
	ChangedAt jsonTime   `json:"changed_at"` // null: never
	ChangedBy string     `json:"changed_by"` // "": never changed
}

func boundsOf(w *warden.Warden) boundsState {
	b, by, at := w.Bounds()
	now := boundsState{MaxQueue: b.MaxQueue, TimeoutMS: msIf(b.Timeout > 0, b.Timeout), ChangedAt: jsonTime{at}, ChangedBy: by}
	if b.Max > 0 {
		now.Min, now.Max = &b.Min, &b.Max
	}
	return now
}

// pool is the current state of a limiter. The counters are since the start.
type pool struct {
	Name     string            `json:"name"`
	Target   int               `json:"target"`
	InFlight int               `json:"in_flight"`
	Queued   int               `json:"queued"`
	Executed uint64            `json:"executed"`
	Rejected uint64            `json:"rejected"`
	Canceled uint64            `json:"canceled"`
	ByReason map[string]uint64 `json:"by_reason"` // rejected and canceled; reasons that occurred
	Mode     string            `json:"mode"`      // "enforce", "dry_run" or "bypass"
	// Started in a dry run, by the reason for which they would have been rejected.
	WouldReject map[string]uint64 `json:"would_reject"`
	Recent      *recent           `json:"recent"` // null: there are no earlier counters
	Level       string            `json:"level"`  // of its verdict
	Text        string            `json:"text"`
	// Of Executed, tasks that their deadline or client ended before they had an answer.
	Abandoned       uint64        `json:"abandoned"`
	Failed          uint64        `json:"failed"`            // of Executed, tasks that were answered with an error, or panicked
	OldestRunningMS jsonNumber    `json:"oldest_running_ms"` // null: nothing runs
	Running         []runningTask `json:"running"`           // the five that run for longest, the oldest first

	stale bool // the decision is older than its validity; for a warden, see DecisionState
}

// runningTask is a task that holds a slot.
type runningTask struct {
	Task      string     `json:"task"`
	Priority  string     `json:"priority"`
	RequestID string     `json:"request_id"` // "": not known
	ForMS     jsonNumber `json:"for_ms"`
}

// recent is a limiter's activity in the last seconds.
type recent struct {
	Seconds   jsonNumber        `json:"seconds"` // the length of that time
	Executed  uint64            `json:"executed"`
	Rejected  uint64            `json:"rejected"`
	Canceled  uint64            `json:"canceled"`
	Abandoned uint64            `json:"abandoned"` // of Executed
	Failed    uint64            `json:"failed"`    // of Executed
	ByReason  map[string]uint64 `json:"by_reason"`
	// ByPriority counts the rejected by class of priority.
	ByPriority  map[string]uint64 `json:"by_priority"`
	WouldReject map[string]uint64 `json:"would_reject"`
	// Priorities are the tasks of the classes that had any.
	Priorities map[string]ended `json:"priorities"`
}

// ended counts tasks that were executed, rejected or canceled.
type ended struct {
	Tasks    uint64 `json:"tasks"`
	Rejected uint64 `json:"rejected"`
	Left     uint64 `json:"left"`   // without an answer: canceled before they started, or abandoned after it
	Failed   uint64 `json:"failed"` // executed, and answered with an error or not at all because the work panicked
}

// point is one turn of the warden's pipeline, for charts: times to the millisecond, and numbers with three digits. The counters
// are since the start.
type point struct {
	Seq          uint64             `json:"seq"`
	At           jsonTime           `json:"at"`
	GapMS        plotted            `json:"gap_ms"`
	Target       int                `json:"target"`
	Shed         plotted            `json:"shed"`
	InFlight     int                `json:"in_flight"`
	Queued       int                `json:"queued"`
	Executed     uint64             `json:"executed"`
	Rejected     uint64             `json:"rejected"`
	Canceled     uint64             `json:"canceled"`
	Abandoned    uint64             `json:"abandoned"`
	Failed       uint64             `json:"failed"`
	Pressure     plotted            `json:"pressure"`
	Levels       map[string]plotted `json:"levels"` // by signal
	Utilization  plotted            `json:"utilization"`
	Runnable     plotted            `json:"runnable"` // per processor
	Throttled    plotted            `json:"throttled"`
	LagP50MS     plotted            `json:"lag_p50_ms"`
	LagP90MS     plotted            `json:"lag_p90_ms"`
	LagP99MS     plotted            `json:"lag_p99_ms"`
	LagCount     uint64             `json:"lag_count"`
	ServiceP50MS plotted            `json:"service_p50_ms"`
	ServiceP90MS plotted            `json:"service_p90_ms"`
	Throughput   plotted            `json:"throughput"` // per second
	Concurrency  plotted            `json:"concurrency"`
}

// poolPoint is the load of limiters and compartments at one instant of a request to the console; from 12 on, those of a kind are
// left out.
type poolPoint struct {
	At    jsonTime            `json:"at"`
	Pools map[string]poolLoad `json:"pools"` // by kind and name: "limiter:reports"
}

type poolLoad struct {
	InFlight int    `json:"in_flight"`
	Queued   int    `json:"queued"`
	Executed uint64 `json:"executed"`
	Rejected uint64 `json:"rejected"`

	// Of a compartment.
	reasons   map[string]uint64 // what Rejected is made of
	timedOut  uint64            // calls that ran longer than their Timeout
	submitted uint64
	left      uint64 // calls that left without an answer
	failed    uint64 // calls whose functions returned an error or panicked
}

// phase is a run of consecutive decisions whose reasons have the same codes.
type phase struct {
	FirstSeq   uint64     `json:"first_seq"`
	LastSeq    uint64     `json:"last_seq"`
	From       jsonTime   `json:"from"`
	To         jsonTime   `json:"to"`
	TargetFrom int        `json:"target_from"` // before the first
	TargetTo   int        `json:"target_to"`
	ShedFrom   jsonNumber `json:"shed_from"`
	ShedTo     jsonNumber `json:"shed_to"`
	Reasons    []reason   `json:"reasons"` // of the last
}

// decisionFields is a control decision.
type decisionFields struct {
	Seq         uint64     `json:"seq"`
	At          jsonTime   `json:"at"`
	Target      int        `json:"target"`
	Shed        jsonNumber `json:"shed"`
	ExpectedMS  jsonNumber `json:"expected_ms"` // null: unknown
	Yields      int        `json:"yields"`
	ValidForMS  jsonNumber `json:"valid_for_ms"` // null: until the next
	StaleTarget *int       `json:"stale_target"` // in force after that; null: the target of this decision
	Reasons     []reason   `json:"reasons"`
}

type reason struct {
	Code      string     `json:"code"`
	Signal    string     `json:"signal"`
	Value     jsonNumber `json:"value"`
	Direction string     `json:"direction"`
	Text      string     `json:"text"` // the same as a sentence
}

// rejection is the whole explanation of one task that was not started; or, with Outcome "started", that Enforce would have
// rejected.
type rejection struct {
	ID            string          `json:"id"`
	At            jsonTime        `json:"at"`
	Limiter       string          `json:"limiter"`
	Outcome       string          `json:"outcome"`
	Reason        string          `json:"reason"`
	Why           string          `json:"why"`        // the reason as a sentence, with the numbers of that moment
	RequestID     string          `json:"request_id"` // "": not known
	Task          string          `json:"task"`
	Priority      int             `json:"priority"`
	PriorityName  string          `json:"priority_name"`
	Deadline      jsonTime        `json:"deadline"`
	WaitedMS      jsonNumber      `json:"waited_ms"`
	InFlight      int             `json:"in_flight"`
	Queued        int             `json:"queued"`
	Bound         *string         `json:"bound"`      // the bound that was reached; null: none
	Limit         *int            `json:"limit"`      // the value of that bound
	ShedBelow     *int            `json:"shed_below"` // the priority below which all were shed; null: none
	DecisionState string          `json:"decision_state"`
	Decision      *decisionFields `json:"decision"`
	Text          string          `json:"text"` // all of it on one line
}

// jsonNumber is a number with at most five significant digits, or null if it is NaN or out of range: JSON has no NaN, and
// rounding up the largest float gives infinity.
type jsonNumber float64

// MarshalJSON writes the number or null.
func (n jsonNumber) MarshalJSON() ([]byte, error) {
	if !(math.Abs(float64(n)) < 1e300) {
		return []byte("null"), nil
	}
	text := strconv.AppendFloat(make([]byte, 0, 16), float64(n), 'g', 5, 64)
	return text, nil
}

// plotted is a jsonNumber with three digits: hundreds of them are sent for a chart.
type plotted jsonNumber

// MarshalJSON writes the number or null.
func (n plotted) MarshalJSON() ([]byte, error) {
	if !(math.Abs(float64(n)) < 1e300) {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(make([]byte, 0, 16), float64(n), 'g', 3, 64), nil
}

// jsonTime is a time, or null if it is zero or RFC 3339 cannot express it: deadlines come from anywhere.
type jsonTime struct{ time.Time }

// MarshalJSON writes the time to the microsecond.
func (w jsonTime) MarshalJSON() ([]byte, error) {
	if y := w.Year(); w.IsZero() || y < 0 || y > 9999 {
		return []byte("null"), nil
	}
	return w.AppendFormat(nil, `"2006-01-02T15:04:05.999999Z07:00"`), nil
}

func null() jsonNumber { return jsonNumber(math.NaN()) }

func ms(d time.Duration) jsonNumber { return jsonNumber(float64(d) / float64(time.Millisecond)) }

// msIf returns d in milliseconds if known, else null.
func msIf(known bool, d time.Duration) jsonNumber {
	if !known {
		return null()
	}
	return ms(d)
}

// longestName bounds names of tasks and limiters on the page, in bytes: they may come from a request.
const longestName = 200

// truncate truncates a text to n bytes, between characters, and marks it as truncated.
func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// plain returns a name for a sentence: shorter than in a field, and without characters that would change the sentence around it,
// such as those that turn the direction of writing.
func plain(name string) string {
	quoted := strconv.Quote(truncate(name, longestName/2))
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// truncateName truncates the name of a limiter or a compartment, and keeps names with the same beginning distinct.
func truncateName(s string) string {
	if len(s) <= longestName {
		return s
	}
	sum := fnv.New32a()
	_, _ = io.WriteString(sum, s)
	return truncate(s, longestName) + strconv.FormatUint(uint64(sum.Sum32()), 36)
}

func decisionJSON(d *decision.ControlDecision) *decisionFields {
	if d == nil {
		return nil
	}
	out := &decisionFields{
		Seq: d.Seq, At: jsonTime{d.At}, Target: d.TargetConcurrency, Shed: jsonNumber(d.ShedProbability), Yields: d.Yields,
		ExpectedMS: msIf(d.Expected > 0, d.Expected), ValidForMS: msIf(d.ValidFor > 0, d.ValidFor),
		Reasons: reasonsJSON(d.Reasons),
	}
	if d.Stale != nil {
		out.StaleTarget = &d.Stale.TargetConcurrency
	}
	return out
}

// reasonsJSON reads the parts of reasons as a log handler would.
func reasonsJSON(reasons []decision.Reason) []reason {
	out := make([]reason, 0, len(reasons))
	for _, r := range reasons {
		j, detail := reason{Value: null()}, ""
		for _, a := range r.LogValue().Group() {
			switch a.Key {
			case "code":
				j.Code = truncate(a.Value.String(), longestName)
			case "signal":
				j.Signal = truncate(a.Value.String(), longestName)
			case "direction":
				j.Direction = truncate(a.Value.String(), longestName)
			case "detail":
				detail = truncate(a.Value.String(), longestFailure)
			case "value":
				if a.Value.Kind() == slog.KindFloat64 {
					j.Value = jsonNumber(a.Value.Float64())
				}
			}
		}
		if j.Text = detail; detail == "" {
			j.Text = j.text()
		}
		out = append(out, j)
	}
	if isStarved(out) {
		return waitsForTheRest(out)
	}
	return out
}

func isStarved(reasons []reason) bool {
	return slices.ContainsFunc(reasons, func(r reason) bool { return r.Code == "starved" })
}

// waitsForTheRest returns reasons in the words for work that waits for what other processes leave.
func waitsForTheRest(reasons []reason) []reason {
	reasons = slices.Clone(reasons)
	for i := range reasons {
		if r := &reasons[i]; r.Code == "queueing" {
			r.Text = "work waits for what is left of the processors, " + r.reading()
		}
	}
	return reasons
}

func rejectionJSON(e decision.Explanation) rejection {
	e.Reason = cmp.Or(e.Reason, e.WouldReject) // of a dry run: why it would have been rejected
	e.Limiter = truncateName(e.Limiter)
	e.Task.Name, e.Task.ID = truncate(e.Task.Name, longestName), truncate(e.Task.ID, longestName)
	out := rejection{
		ID: strings.Join([]string{e.Limiter, strconv.FormatInt(e.At.UnixNano(), 36)}, "@"), At: jsonTime{e.At}, Limiter: e.Limiter,
		Outcome: string(e.Outcome), Reason: string(e.Reason), Why: explain(e), RequestID: e.Task.ID, Task: e.Task.Name,
		Priority:     int(e.Task.Priority),
		PriorityName: e.Task.Priority.String(), Deadline: jsonTime{e.Task.Deadline}, WaitedMS: ms(e.Waited), InFlight: e.InFlight,
		Queued: e.QueueLen, DecisionState: string(e.DecisionState), Decision: decisionJSON(e.Decision),
		Text: truncate(e.String(), 10*longestName),
	}
	if e.Bound != "" {
		bound := string(e.Bound)
		out.Bound, out.Limit = &bound, &e.Limit
	}
	if e.ShedBelow > lowestPriority {
		cut := int(e.ShedBelow)
		out.ShedBelow = &cut
	}
	return out
}

// lowestPriority is the ShedBelow of a decision that sheds no whole priority.
const lowestPriority decision.Priority = -128
