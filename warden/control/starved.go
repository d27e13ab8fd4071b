// SPDX-License-Identifier: Apache-2.0

// Stolen processors: where other processes use them, work waits that no limit of ours would speed up.

package control

import (
	"fmt"
	"math"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/monitor"
)

const (
	starvedBelow = 0.7  // share of the processor time that is wanted
	fedAbove     = 0.8  // from which it is enough again
	alike        = 0.8  // ratio of two shares under which execution times do not compare
	leastShare   = 0.01 // that is believed
	shareTime    = 0.5  // time constants in seconds: of the share,
	rateTime     = 1.0  // and of what runs
)

// theft is what other processes do to this one.
type theft struct {
	share   float64 // of the processor time that is wanted, smoothed
	starved bool
	under   float64 // the share to which the baselines of execution times belong
	usual   float64 // seconds of an execution when the share was whole; 0: unknown

	rate, running, used float64 // executions that end per second, those that run, and processors in use, smoothed
}

// shareOf returns the share of a sample; 1 if it is missing, because next to nothing is wanted or nobody knows.
func shareOf(s monitor.Sample) float64 {
	if !ok(s.Share) {
		return 1
	}
	return min(max(finite(s.Share.Value), leastShare), 1)
}

// observe takes note of a sample, in which so many processors are used, and reports whether execution times of before do not
// compare with those to come.
func (t *theft) observe(s monitor.Sample, used float64, base *baseline, dt float64) (changed bool) {
	share := shareOf(s)
	t.share += (share - t.share) * toward(dt, shareTime)
	t.starved = t.share < starvedBelow || t.starved && t.share < fedAbove
	soon := toward(dt, rateTime)
	t.rate += (finite(s.Service.Throughput) - t.rate) * soon
	t.running += (finite(s.Service.Concurrency) - t.running) * soon
	t.used += (used - t.used) * soon
	under := share // not the smoothed one: times change at once
	if share >= starvedBelow {
		under = 1
	}
	if under < alike*t.under || under*alike > t.under {
		t.under = under
		return true
	}
	if under == 1 && !t.starved && len(base.times) >= few {
		t.usual = base.mean
	}
	return false
}

// floor is how many tasks make use of the share while the process is starved, and 0 otherwise: by Little's law rate x usual run
// on average, of which used are at a processor and the others wait for something else, by chance a few more; and one for each
// processor. Where the process was starved from the beginning, the shortest executions say what is usual.
func (t *theft) floor(processors float64, base *baseline) float64 {
	if !t.starved {
		return 0
	}
	usual := t.usual
	if usual == 0 && len(base.sorted) > 0 {
		usual = base.sorted[len(base.sorted)/10]
	}
	elsewhere := min(max(t.rate*usual-t.used, 0), t.running)
	return elsewhere + math.Sqrt(elsewhere) + processors
}

// reason says which share is left.
func (t *theft) reason(d decision.Direction) decision.Reason {
	said := fmt.Sprintf("other processes take the processors: this one gets %.0f %%", 100*t.share)
	return decision.NewReason("starved", "processor_share", t.share, d).Because(said)
}

// rebase ends the comparison with execution times of before: they belong to another share of the processors. A cut that is being
// verified is undone. What is expected stays until there are new ones.
func (v *service) rebase() {
	if v.phase == settling || v.phase == measuring {
		v.target = max(v.target, v.back)
		v.enter(watching)
	}
	v.rebased, v.slow, v.longer, v.limited = true, false, 0, 0
	v.window.reset()
}

// learnAnew puts the last half of a long window in the place of the baseline: the first half may have begun before the rebase.
func (v *service) learnAnew() {
	w := &v.window
	if len(w.times) < 4*few || w.time < 3*w.mean() {
		return
	}
	v.base.forget()
	v.base.learn(w.times[len(w.times)/2:])
	v.rebased = false
	w.reset()
}

// rebase forgets what the part voted about. What was usual before stays: the part does not vote while the process is starved.
func (p *part) rebase() {
	p.service.rebase()
	p.last, p.fresh, p.since, p.waits, p.votes = p.last[:0], 0, 0, 0, false
}
