// Verdicts: one sentence for each thing that is watched, worst first, for whoever has just been woken.

package console

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/stopbank/stopbank/warden/limiter"
)

// The levels of a verdict.
const (
	levelOK    = "ok"    // nothing to do
	levelWatch = "watch" // it works, under strain
	levelAct   = "act"   // tasks are refused
)

// window is what a verdict looks back on.
const window = 10 * time.Second

// tally is what a limiter had counted at one time.
type tally struct {
	at    time.Time
	stats limiter.Stats
}

// tallies are those of a window, and the last one before it: what happened in the window is the difference to that one.
type tallies []tally

func (ts *tallies) add(t tally) {
	*ts = append(*ts, t)
	for len(*ts) > 1 && t.at.Sub((*ts)[1].at) >= window {
		*ts = slices.Delete(*ts, 0, 1)
	}
}

// since is what came on top of them until now; nil if nothing is known of before.
func (ts *tallies) since(at time.Time, now limiter.Stats) *recent {
	if len(*ts) == 0 || !at.After((*ts)[0].at) {
		return nil
	}
	first := (*ts)[0]
	before := first.stats
	r := &recent{
		Seconds: num(at.Sub(first.at).Seconds()), Executed: now.Executed - before.Executed, Rejected: now.Rejected - before.Rejected,
		Canceled: now.Canceled - before.Canceled, ByReason: map[string]uint64{},
		WouldReject: map[string]uint64{},
	}
	for reason := limiter.PressureHigh; reason <= limiter.Closed; reason++ {
		if n := now.RejectedFor(reason) - before.RejectedFor(reason); n > 0 {
			r.ByReason[reason.String()] = n
		}
		if n := now.WouldRejectFor(reason) - before.WouldRejectFor(reason); n > 0 {
			r.WouldReject[reason.String()] = n
		}
	}
	return r
}

// judge puts the verdicts into s.
func (s *state) judge() {
	if w := s.Warden; w != nil {
		s.Verdicts = append(s.Verdicts, w.verdict())
	}
	if s.Set != nil {
		s.Verdicts = append(s.Verdicts, s.Set.verdicts()...)
	}
	for _, p := range s.Limiters {
		s.Verdicts = append(s.Verdicts, p.verdict())
	}
	rank := map[string]int{levelAct: 0, levelWatch: 1, levelOK: 2}
	slices.SortStableFunc(s.Verdicts, func(a, b verdict) int { return cmp.Compare(rank[a.Level], rank[b.Level]) })
}

// verdict is about a limiter.
func (p pool) verdict() verdict {
	v := verdict{Level: levelOK, Subject: p.Name, Text: "Nothing was refused"}
	switch r := p.Recent; {
	case r == nil:
		v.Text = fmt.Sprintf("%d refused since the start", p.Rejected)
	case r.Rejected > 0:
		v.Level = levelAct
		v.Text = fmt.Sprintf("Refused %d of %d in %s, most as %s", r.Rejected, r.Rejected+r.Executed, r.span(), most(r.ByReason))
	default:
		v.Text += " in " + r.span()
	}
	if p.Queued > 0 {
		if v.Level == levelOK {
			v.Level = levelWatch
		}
		v.Text += fmt.Sprintf("; %d wait", p.Queued)
	}
	v.Text += "."
	if said := p.valve(); said != "" {
		v.Text = said + " " + v.Text
		if v.Level == levelOK {
			v.Level = levelWatch
		}
	}
	return v
}

// valve is what comes before all else while the limiter does not enforce what it decides; "": it does.
func (p pool) valve() string {
	switch p.Mode {
	case limiter.Bypass.String():
		return "Bypass: everything starts at once, and nothing is judged."
	case limiter.DryRun.String():
		if p.Recent == nil || sum(p.Recent.WouldReject) == 0 {
			return "Dry run: everything starts at once."
		}
		would := p.Recent.WouldReject
		return fmt.Sprintf("Dry run: everything starts at once; %d would have been refused in %s, most as %s.", sum(would), p.Recent.span(), most(would))
	}
	return ""
}

// verdict is that of its limiter, and what control says.
func (w *wardenNow) verdict() verdict {
	v := w.pool.verdict()
	watch := func() {
		if v.Level == levelOK {
			v.Level = levelWatch
		}
	}
	switch {
	case w.Decision == nil:
		v.Text += " Control has not judged yet: the initial decision rules."
		if w.Samples > w.Panics {
			watch()
			v.Text += " A sample was begun and has not ended: sampler or controller hangs."
		}
	case w.Standing == limiter.Stale.String():
		v.Text += fmt.Sprintf(" Its decision is stale: no sample was taken for %.0f s, so what was decided for that case rules. Nobody asks, or control is broken.",
			w.SilentForMS/1000)
		if asked := w.Recent != nil && w.Recent.Executed+w.Recent.Rejected+w.Recent.Canceled > 0; asked || w.InFlight > 0 {
			watch()
		}
	default:
		said := make([]string, 0, len(w.Decision.Reasons))
		for _, r := range w.Decision.Reasons {
			if r.Direction == "tighten" {
				watch()
			}
			said = append(said, fmt.Sprintf("%s (%s %.3g, %s)", r.Code, r.Signal, float64(r.Value), r.Direction))
		}
		v.Text += " Control: " + strings.Join(said, ", ") + "."
	}
	if w.mute {
		watch()
		v.Text += " Its controller does not say how it judges samples: Levels hangs or panics."
	}
	if w.Panics > 0 {
		watch()
		v.Text += fmt.Sprintf(" Its parts panicked %d times.", w.Panics)
	}
	return v
}

func (r *recent) span() string { return fmt.Sprintf("the last %.0f s", max(1, float64(r.Seconds))) }

func sum(counts map[string]uint64) (n uint64) {
	for _, more := range counts {
		n += more
	}
	return n
}

// most is the key with the highest count, of equal ones the first by name; those that left of themselves do not count.
func most(counts map[string]uint64) string {
	keys := slices.DeleteFunc(slices.Sorted(maps.Keys(counts)), func(k string) bool { return k == limiter.Canceled.String() })
	if len(keys) == 0 {
		return "?"
	}
	return slices.MaxFunc(keys, func(a, b string) int { return cmp.Compare(counts[a], counts[b]) })
}
