// SPDX-License-Identifier: Apache-2.0

// Verdicts: one sentence for each monitored thing, worst first, for an engineer who was just paged.

package console

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
)

// The levels of a verdict.
const (
	levelOK    = "ok"    // nothing to do
	levelWatch = "watch" // it works, under strain
	levelAct   = "act"   // tasks above background are rejected, critical ones leave or fail, nothing ends, or decisions are stale
)

// window is the time that a verdict covers.
const window = 10 * time.Second

// tally is a limiter's counters at one time.
type tally struct {
	at    time.Time
	stats limiter.Stats
}

// tallies are the counters of a window, and the last ones before it, as the base of differences.
type tallies []tally

func (ts *tallies) add(t tally) {
	*ts = append(*ts, t)
	for len(*ts) > 1 && t.at.Sub((*ts)[1].at) >= window {
		*ts = slices.Delete(*ts, 0, 1)
	}
}

// since returns the increase of the counters over the window; nil without earlier counters.
func (ts *tallies) since(at time.Time, now limiter.Stats) *recent {
	if len(*ts) == 0 || !at.After((*ts)[0].at) {
		return nil
	}
	first := (*ts)[0]
	before := first.stats
	r := &recent{
		Seconds: jsonNumber(at.Sub(first.at).Seconds()), Executed: now.Executed - before.Executed,
		Rejected: now.Rejected - before.Rejected, Canceled: now.Canceled - before.Canceled,
		Abandoned: now.Abandoned - before.Abandoned, Failed: now.Failed - before.Failed, ByReason: map[string]uint64{}, ByPriority: map[string]uint64{},
		WouldReject: map[string]uint64{}, Priorities: map[string]ended{},
	}
	for _, class := range classes {
		n, b := now.Of(class), before.Of(class)
		rejected, canceled := n.Rejected-b.Rejected, n.Canceled-b.Canceled
		if rejected > 0 {
			r.ByPriority[class.String()] = rejected
		}
		if all := n.Executed - b.Executed + rejected + canceled; all > 0 {
			r.Priorities[class.String()] = ended{
				Tasks: all, Rejected: rejected, Left: canceled + n.Abandoned - b.Abandoned, Failed: n.Failed - b.Failed,
			}
		}
	}
	for _, reason := range limiter.Reasons() {
		if n := now.RejectedFor(reason) - before.RejectedFor(reason); n > 0 {
			r.ByReason[string(reason)] = n
		}
		if n := now.WouldRejectFor(reason) - before.WouldRejectFor(reason); n > 0 {
			r.WouldReject[string(reason)] = n
		}
	}
	return r
}

// classes are the classes of priority, the most important first.
//
//nolint:gochecknoglobals // nobody writes it
var classes = []decision.Priority{decision.Critical, decision.High, decision.Normal, decision.Background}

// addVerdicts adds the verdicts to s, and to each limiter and compartment its own.
func (s *state) addVerdicts() {
	if w := s.Warden; w != nil {
		v := w.verdict()
		w.Level, w.Text = v.Level, v.Text
		s.Verdicts = append(s.Verdicts, v)
	}
	if s.Set != nil {
		s.Verdicts = append(s.Verdicts, s.Set.verdicts()...)
	}
	for i := range s.Limiters {
		p := &s.Limiters[i]
		v := p.verdict()
		p.Level, p.Text = v.Level, v.Text
		s.Verdicts = append(s.Verdicts, v)
	}
	slices.SortStableFunc(s.Verdicts, func(a, b verdict) int { return cmp.Compare(rank(a.Level), rank(b.Level)) })
	fine := slices.IndexFunc(s.Verdicts, func(v verdict) bool { return v.Level == levelOK })
	if fine < 0 {
		fine = len(s.Verdicts)
	}
	s.Verdicts = append(slices.Clip(shortened(s.Verdicts[:fine])), shortened(s.Verdicts[fine:])...)
}

// mostVerdicts is how many sentences a person reads.
const mostVerdicts = 10

// shortened returns the first of the verdicts, and one that counts the others.
func shortened(all []verdict) []verdict {
	if len(all) <= mostVerdicts {
		return all
	}
	rest := all[mostVerdicts:]
	act := 0
	for _, v := range rest {
		if v.Level == levelAct {
			act++
		}
	}
	more := verdict{Level: rest[0].Level, Subject: "Others", More: len(rest), Text: fmt.Sprintf("%d more", len(rest))}
	switch {
	case act > 0 && act < len(rest):
		more.Text += fmt.Sprintf(", %d of them to act on.", act)
	case act > 0:
		more.Text += ", all to act on."
	case more.Level == levelWatch:
		more.Text += " to watch."
	default:
		more.Text += ", nothing to do."
	}
	return append(slices.Clone(all[:mostVerdicts]), more)
}

func rank(level string) int { return map[string]int{levelAct: 0, levelWatch: 1, levelOK: 2}[level] }

func worse(a, b string) string {
	if rank(b) < rank(a) {
		return b
	}
	return a
}

// verdict returns a limiter's verdict.
func (p pool) verdict() verdict {
	level := levelOK
	var parts []string
	say := func(at, format string, args ...any) {
		level = worse(level, at)
		parts = append(parts, fmt.Sprintf(format, args...))
	}
	r := p.Recent
	if p.stuck() {
		say(levelAct, "all %s slots are taken, and nothing has ended for %.0f s%s",
			thousands(p.Target), float64(r.Seconds), p.oldestText())
	}
	harm := func(tasks uint64, what string, of func(ended) uint64) {
		if tasks == 0 {
			return
		}
		at, critical := levelOK, ""
		for class, n := range r.Priorities {
			at = worse(at, harmLevel(class, of(n), n.Tasks))
		}
		if n := of(r.Priorities[decision.Critical.String()]); n > 0 {
			critical = ", " + thousands(n) + " critical among them"
		}
		all := r.Executed + r.Rejected + r.Canceled
		say(at, "%s of %s (%s) %s in %s%s", thousands(tasks), thousands(all), share(float64(tasks)/float64(all)), what, r.span(), critical)
	}
	if r != nil {
		harm(r.Failed, "failed", func(n ended) uint64 { return n.Failed })
		harm(r.Canceled+r.Abandoned, "left without an answer", func(n ended) uint64 { return n.Left })
	}
	switch {
	case r == nil:
		say(levelOK, "%s rejected since the start", thousands(p.Rejected))
	case r.Rejected > 0:
		at := levelAct
		if r.ByPriority[decision.Background.String()] == r.Rejected {
			at = levelWatch
		}
		say(at, "rejected %s of %s (%s) in %s%s; %s", thousands(r.Rejected), thousands(r.Rejected+r.Executed),
			share(float64(r.Rejected)/float64(r.Rejected+r.Executed)), r.span(), r.important(), mostFrequent(r.ByReason))
	case len(parts) == 0:
		say(levelOK, "nothing rejected in %s", r.span())
	}
	if p.Queued > 0 {
		say(levelWatch, "%s", inQueue(p.Queued))
	}
	if level != levelOK && p.oldest() >= window && !p.stuck() {
		say(levelOK, "the oldest of %s runs%s", tasks(p.InFlight), strings.TrimPrefix(p.oldestText(), ", the oldest"))
	}
	text := sentence(parts)
	if p.stale {
		level = staleLevel(p.busy())
		text += " Its decision is stale: the controller is silent, and a reduced limit applies."
	}
	if clause := p.modeText(); clause != "" {
		text = clause + " " + text
		level = worse(level, levelWatch)
	}
	return verdict{Level: level, Subject: p.Name, Text: text}
}

// stuck reports whether all slots are taken, somebody needs one, and nothing has ended in the window. Tasks that last, such as
// streams, are no trouble as long as nobody needs their slots.
func (p pool) stuck() bool {
	r := p.Recent
	return r != nil && r.Executed == 0 && float64(r.Seconds) >= window.Seconds() && p.InFlight > 0 && p.InFlight >= p.Target &&
		p.Queued+int(r.Rejected+r.Canceled) > 0 //nolint:gosec // counts of tasks
}

// harmLevel returns the level for tasks of one class, so many of which failed or left without an answer: a hundredth is harm.
func harmLevel(class string, n, of uint64) string {
	switch critical := class == decision.Critical.String(); {
	case critical && 100*n > of:
		return levelAct
	case !critical && n > 0 && 100*n >= of:
		return levelWatch
	}
	return levelOK
}

// oldest returns for how long the oldest task has run; 0: nothing runs.
func (p pool) oldest() time.Duration {
	if len(p.Running) == 0 {
		return 0
	}
	return time.Duration(float64(p.Running[0].ForMS) * float64(time.Millisecond))
}

// oldestText names the oldest task, and for how long it has run; "" if nothing runs.
func (p pool) oldestText() string {
	if len(p.Running) == 0 {
		return ""
	}
	name := cmp.Or(plain(p.Running[0].Task), "a task without a name")
	return fmt.Sprintf(", the oldest for %s: %s", shortDuration(p.oldest()), name)
}

// busy reports whether there is work, as far as known.
func (p pool) busy() bool {
	r := p.Recent
	return p.InFlight > 0 || r != nil && r.Executed+r.Rejected+r.Canceled > 0
}

// staleLevel returns the level of a stale decision: without work, perhaps no request has triggered another one.
func staleLevel(busy bool) string {
	if busy {
		return levelAct
	}
	return levelWatch
}

// modeText returns the sentence for a limiter that does not enforce its decisions; "" if it does.
func (p pool) modeText() string {
	switch p.Mode {
	case decision.Bypass.String():
		return "Bypass: every task starts immediately, and none is evaluated."
	case decision.DryRun.String():
		if p.Recent == nil || sum(p.Recent.WouldReject) == 0 {
			return "Dry run: every task starts immediately."
		}
		would := p.Recent.WouldReject
		return fmt.Sprintf(
			"Dry run: every task starts immediately; %d would have been rejected in %s, %s.",
			sum(would), p.Recent.span(), mostFrequent(would),
		)
	}
	return ""
}

// verdict returns the verdict of the warden's limiter and controller.
func (w *wardenState) verdict() verdict {
	v := w.pool.verdict()
	watch := func() { v.Level = worse(v.Level, levelWatch) }
	switch {
	case w.Decision == nil:
		v.Text += " The controller has not decided yet: the initial limit applies."
		if w.Samples > w.Panics {
			watch()
			v.Text += " A sample was begun and has not ended: the sampler or the controller hangs."
		}
	case w.DecisionState == string(decision.Stale):
		if v.Level = staleLevel(w.busy()); v.Level == levelAct {
			v.Text += fmt.Sprintf(" Its decision is stale: no sample for %.0f s, so a reduced limit applies. "+
				"Sampler or controller hangs or panics, or the process gets no CPU.",
				w.SilentForMS/1000)
		} else {
			v.Text += fmt.Sprintf(
				" Its decision is stale: no sample for %.0f s. No request has come, and Run is not running.", w.SilentForMS/1000,
			)
		}
	default:
		if slices.ContainsFunc(w.Decision.Reasons, reason.needsAttention) {
			watch()
		}
		// What lowered the limit in the time that the verdict speaks of may be over by now.
		still := func(r reason) bool { return r.Code == w.lowered.why.Code && r.needsAttention() }
		lately := !w.lowered.at.IsZero() && w.Decision.At.Sub(w.lowered.at) < window
		if lately && !slices.ContainsFunc(w.Decision.Reasons, still) {
			watch()
			v.Text += fmt.Sprintf(" Lowered in the last %.0f s: %s (%s).", window.Seconds(), w.lowered.why.Text, w.lowered.why.Code)
		}
		if clause := sentences(w.Decision.Reasons); clause != "" {
			v.Text += fmt.Sprintf(" Controller: %s; limit %s.", clause, thousands(w.Decision.Target))
		}
	}
	if w.Panics > 0 {
		watch()
		v.Text += fmt.Sprintf(" Sampler, controller or target panicked %d times.", w.Panics)
	}
	return v
}

// tightens reports whether a reason lowers the limit, and not only keeps it from rising.
func (r reason) tightens() bool {
	return r.Direction == "tighten" && !(r.Code == "service_slow" && r.Value < 1.1)
}

// needsAttention reports whether a reason is worth a look: one that lowers the limit, more work that runs for long than it makes up
// for, and processors that others take. Execution times less than 10 % above their baseline are not: for them the controller stops
// raising the limit, but never lowers it.
func (r reason) needsAttention() bool {
	return r.Code == "held" && r.Direction == "hold" || r.Code == "pool_full" || r.Code == "starved" || r.tightens()
}

// sentences returns the sentences of a decision's leading reason and of those that need attention, each with its code.
func sentences(reasons []reason) string {
	var parts []string
	for i, r := range reasons {
		if i == 0 || r.needsAttention() {
			parts = append(parts, r.Text+" ("+r.Code+")")
		}
	}
	return strings.Join(parts, "; ")
}

// sentence joins clauses to one.
func sentence(parts []string) string {
	text := strings.Join(parts, "; ")
	if text == "" {
		return ""
	}
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[size:] + "."
}

func inQueue(n int) string {
	if n == 1 {
		return "1 waits in the queue"
	}
	return thousands(n) + " wait in the queue"
}

// share returns x in percent.
func share(x float64) string {
	switch {
	case x < 0.001:
		return "<0.1 %"
	case x < 0.1:
		return fmt.Sprintf("%.1f %%", 100*x)
	}
	return fmt.Sprintf("%.0f %%", 100*x)
}

// important names the high and critical priorities among the rejected tasks, which matter most.
func (r *recent) important() string {
	var bound []string
	for _, class := range []decision.Priority{decision.Critical, decision.High} {
		if n := r.ByPriority[class.String()]; n > 0 {
			bound = append(bound, thousands(n)+" "+class.String())
		}
	}
	if len(bound) == 0 {
		return ""
	}
	return ", " + strings.Join(bound, " and ") + " among them"
}

func (r *recent) span() string { return fmt.Sprintf("the last %.0f s", max(1, float64(r.Seconds))) }

func sum(counts map[string]uint64) (n uint64) {
	for _, more := range counts {
		n += more
	}
	return n
}

// mostFrequent returns the most frequent reason for rejection, in case of a tie the first by name; cancellations do not count.
func mostFrequent(counts map[string]uint64) string {
	keys := slices.DeleteFunc(slices.Sorted(maps.Keys(counts)), func(k string) bool { return k == string(decision.Canceled) })
	if len(keys) == 0 {
		return "the reason is not known"
	}
	code := slices.MaxFunc(keys, func(a, b string) int { return cmp.Compare(counts[a], counts[b]) })
	clause := clauseOf(code)
	if clause == "" {
		return "most as " + code
	}
	return "most because " + clause + " (" + code + ")"
}
