// The state as JSON: the fields that docs/console.md promises, with their units.

package console

import (
	"cmp"
	"hash/fnv"
	"io"
	"log/slog"
	"math"
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
	Version    int         `json:"version"`
	Title      string      `json:"title"`
	Instance   string      `json:"instance"` // "": not known
	At         when        `json:"at"`
	IntervalMS num         `json:"interval_ms"`
	Verdicts   []verdict   `json:"verdicts"` // the worst first
	Warden     *wardenNow  `json:"warden"`
	Set        *setNow     `json:"set"`
	Limiters   []pool      `json:"limiters"`
	History    []point     `json:"history"`    // of the warden, the oldest first
	Pools      []poolPoint `json:"pools"`      // of limiters and compartments, the oldest first
	Decisions  []phase     `json:"decisions"`  // the newest first
	Rejections []rejection `json:"rejections"` // the newest first
}

// verdict is one sentence for an engineer who was just paged.
type verdict struct {
	Level   string `json:"level"` // "ok", "watch" or "act"
	Subject string `json:"subject"`
	Text    string `json:"text"`
}

// wardenNow is the current state of the warden.
type wardenNow struct {
	pool
	DecisionState string      `json:"decision_state"` // "initial", "applied" or "stale"
	Decision      *decisionOf `json:"decision"`
	Samples       uint64      `json:"samples"`
	ByRequests    uint64      `json:"samples_by_requests"` // the ticker was late
	LargestGap    num         `json:"largest_gap_ms"`      // between two samples
	Panics        uint64      `json:"panics"`
	SilentForMS   num         `json:"silent_for_ms"` // since the last sample; null before the first
	Bounds        boundsNow   `json:"bounds"`

	mute bool // the controller does not say how it evaluates samples
}

// boundsNow is what operators change while the warden runs, and who did so last.
type boundsNow struct {
	Min       *int   `json:"min"` // null: the controller has no bounds to change
	Max       *int   `json:"max"`
	MaxQueue  int    `json:"max_queue"`
	TimeoutMS num    `json:"timeout_ms"` // null: each middleware has its own
	ChangedAt when   `json:"changed_at"` // null: never
	ChangedBy string `json:"changed_by"` // "": nobody
}

func boundsOf(w *warden.Warden) boundsNow {
	b, by, at := w.Bounds()
	now := boundsNow{MaxQueue: b.MaxQueue, TimeoutMS: msIf(b.Timeout > 0, b.Timeout), ChangedAt: when{at}, ChangedBy: by}
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
	Recent      *recent           `json:"recent"` // null: nobody looked before

	stale bool // what rules has outlived itself; of a warden, DecisionState says so
}

// recent is a limiter's activity in the last seconds.
type recent struct {
	Seconds  num               `json:"seconds"` // how long that is
	Executed uint64            `json:"executed"`
	Rejected uint64            `json:"rejected"`
	Canceled uint64            `json:"canceled"`
	ByReason map[string]uint64 `json:"by_reason"`
	// ByPriority counts the rejected by class of priority.
	ByPriority  map[string]uint64 `json:"by_priority"`
	WouldReject map[string]uint64 `json:"would_reject"`
}

// point is one turn of the warden's pipeline. The counters are since the start.
type point struct {
	Seq          uint64         `json:"seq"`
	At           when           `json:"at"`
	GapMS        num            `json:"gap_ms"`
	Target       int            `json:"target"`
	Shed         num            `json:"shed"`
	InFlight     int            `json:"in_flight"`
	Queued       int            `json:"queued"`
	Executed     uint64         `json:"executed"`
	Rejected     uint64         `json:"rejected"`
	Canceled     uint64         `json:"canceled"`
	Pressure     num            `json:"pressure"`
	Levels       map[string]num `json:"levels"` // by signal
	Utilization  num            `json:"utilization"`
	Runnable     num            `json:"runnable"` // per processor
	Throttled    num            `json:"throttled"`
	LagP50MS     num            `json:"lag_p50_ms"`
	LagP90MS     num            `json:"lag_p90_ms"`
	LagP99MS     num            `json:"lag_p99_ms"`
	LagCount     uint64         `json:"lag_count"`
	ServiceP50MS num            `json:"service_p50_ms"`
	ServiceP90MS num            `json:"service_p90_ms"`
	Throughput   num            `json:"throughput"` // per second
	Concurrency  num            `json:"concurrency"`
}

// poolPoint is the load of limiters and compartments at one instant of a request to the console.
type poolPoint struct {
	At    when                `json:"at"`
	Pools map[string]poolLoad `json:"pools"` // by kind and name: "limiter:reports"
}

type poolLoad struct {
	InFlight int    `json:"in_flight"`
	Queued   int    `json:"queued"`
	Executed uint64 `json:"executed"`
	Rejected uint64 `json:"rejected"`

	// Of a compartment.
	reasons  map[string]uint64 // what Rejected is made of
	timedOut uint64            // calls that ran longer than their Timeout
}

// phase is a run of consecutive decisions whose reasons have the same codes.
type phase struct {
	FirstSeq   uint64   `json:"first_seq"`
	LastSeq    uint64   `json:"last_seq"`
	From       when     `json:"from"`
	To         when     `json:"to"`
	TargetFrom int      `json:"target_from"` // of the first, as it ruled before it
	TargetTo   int      `json:"target_to"`
	ShedFrom   num      `json:"shed_from"`
	ShedTo     num      `json:"shed_to"`
	Reasons    []reason `json:"reasons"` // of the last
}

// decisionOf is a control decision.
type decisionOf struct {
	Seq         uint64   `json:"seq"`
	At          when     `json:"at"`
	Target      int      `json:"target"`
	Shed        num      `json:"shed"`
	ExpectedMS  num      `json:"expected_ms"` // null: unknown
	Yields      int      `json:"yields"`
	ValidForMS  num      `json:"valid_for_ms"` // null: until the next
	StaleTarget *int     `json:"stale_target"` // what rules after that; null: this decision
	Reasons     []reason `json:"reasons"`
}

type reason struct {
	Code      string `json:"code"`
	Signal    string `json:"signal"`
	Value     num    `json:"value"`
	Direction string `json:"direction"`
	Text      string `json:"text"` // the same as a sentence
}

// rejection is the whole explanation of one task that was not started; or, with Outcome "started", that Enforce would have
// rejected.
type rejection struct {
	ID            string      `json:"id"`
	At            when        `json:"at"`
	Limiter       string      `json:"limiter"`
	Outcome       string      `json:"outcome"`
	Reason        string      `json:"reason"`
	Why           string      `json:"why"`        // the reason as a sentence, with the numbers of that moment
	RequestID     string      `json:"request_id"` // "": not known
	Task          string      `json:"task"`
	Priority      int         `json:"priority"`
	PriorityName  string      `json:"priority_name"`
	Deadline      when        `json:"deadline"`
	WaitedMS      num         `json:"waited_ms"`
	InFlight      int         `json:"in_flight"`
	Queued        int         `json:"queued"`
	Bound         *string     `json:"bound"`      // what was full; null: nothing was
	Limit         *int        `json:"limit"`      // how much that is
	ShedBelow     *int        `json:"shed_below"` // the priority below which all were shed; null: none
	DecisionState string      `json:"decision_state"`
	Decision      *decisionOf `json:"decision"`
	Text          string      `json:"text"` // all of it on one line
}

// num is a number with at most five significant digits, or null if it is NaN or out of range: JSON has no NaN, and rounding
// up the largest float gives infinity.
type num float64

// MarshalJSON writes the number or null.
func (n num) MarshalJSON() ([]byte, error) {
	if !(math.Abs(float64(n)) < 1e300) {
		return []byte("null"), nil
	}
	text := strconv.AppendFloat(make([]byte, 0, 16), float64(n), 'g', 5, 64)
	return text, nil
}

// when is a time, or null if it is zero or RFC 3339 cannot express it: deadlines come from anywhere.
type when struct{ time.Time }

// MarshalJSON writes the time to the microsecond.
func (w when) MarshalJSON() ([]byte, error) {
	if y := w.Year(); w.IsZero() || y < 0 || y > 9999 {
		return []byte("null"), nil
	}
	return w.AppendFormat(nil, `"2006-01-02T15:04:05.999999Z07:00"`), nil
}

func missing() num { return num(math.NaN()) }

func ms(d time.Duration) num { return num(float64(d) / float64(time.Millisecond)) }

// msIf returns d in milliseconds if known, else null.
func msIf(known bool, d time.Duration) num {
	if !known {
		return missing()
	}
	return ms(d)
}

// longestName bounds names of tasks and limiters on the page, in bytes: they may come from a request.
const longestName = 200

// clip truncates a text to n bytes, between characters, and marks it as truncated.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// clipName truncates the name of a limiter or a compartment, and keeps names with the same beginning distinct.
func clipName(s string) string {
	if len(s) <= longestName {
		return s
	}
	sum := fnv.New32a()
	_, _ = io.WriteString(sum, s)
	return clip(s, longestName) + strconv.FormatUint(uint64(sum.Sum32()), 36)
}

func decisionJSON(d *decision.ControlDecision) *decisionOf {
	if d == nil {
		return nil
	}
	out := &decisionOf{
		Seq: d.Seq, At: when{d.At}, Target: d.TargetConcurrency, Shed: num(d.ShedProbability), Yields: d.Yields,
		ExpectedMS: msIf(d.Expected > 0, d.Expected), ValidForMS: msIf(d.ValidFor > 0, d.ValidFor), Reasons: reasonsJSON(d.Reasons),
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
		j, detail := reason{Value: missing()}, ""
		for _, a := range r.LogValue().Group() {
			switch a.Key {
			case "code":
				j.Code = clip(a.Value.String(), longestName)
			case "signal":
				j.Signal = clip(a.Value.String(), longestName)
			case "direction":
				j.Direction = clip(a.Value.String(), longestName)
			case "detail":
				detail = clip(a.Value.String(), longestFailure)
			case "value":
				if a.Value.Kind() == slog.KindFloat64 {
					j.Value = num(a.Value.Float64())
				}
			}
		}
		if j.Text = detail; detail == "" {
			j.Text = j.text()
		}
		out = append(out, j)
	}
	return out
}

func rejectionJSON(e decision.Explanation) rejection {
	e.Reason = cmp.Or(e.Reason, e.WouldReject) // of a dry run: why it would have been rejected
	e.Limiter, e.Task.Name, e.Task.ID = clipName(e.Limiter), clip(e.Task.Name, longestName), clip(e.Task.ID, longestName)
	out := rejection{
		ID: strings.Join([]string{e.Limiter, strconv.FormatInt(e.At.UnixNano(), 36)}, "@"), At: when{e.At}, Limiter: e.Limiter,
		Outcome: string(e.Outcome), Reason: string(e.Reason), Why: why(e), RequestID: e.Task.ID, Task: e.Task.Name, Priority: int(e.Task.Priority),
		PriorityName: e.Task.Priority.String(), Deadline: when{e.Task.Deadline}, WaitedMS: ms(e.Waited), InFlight: e.InFlight,
		Queued: e.QueueLen, DecisionState: string(e.DecisionState), Decision: decisionJSON(e.Decision), Text: clip(e.String(), 10*longestName),
	}
	if e.Bound != "" {
		bound := string(e.Bound)
		out.Bound, out.Limit = &bound, &e.Limit
	}
	if e.ShedBelow > lowest {
		cut := int(e.ShedBelow)
		out.ShedBelow = &cut
	}
	return out
}

// lowest is the priority that no cut lies at.
const lowest decision.Priority = -128
