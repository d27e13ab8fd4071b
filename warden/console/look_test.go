// SPDX-License-Identifier: Apache-2.0

// What a look puts together: which rejections are listed, which decisions are one, and how much of the past is kept.

package console

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
)

// TestIDs: rejections of one instant have IDs of their own, which do not change when others come.
func TestIDs(t *testing.T) {
	c := mustNew(t, Config{Warden: mustWarden(t, new(script))})
	c.maxRejections = 4
	when := time.Unix(100, 5)
	e := func(name string, at time.Time) decision.Explanation {
		return decision.Explanation{Limiter: "l", Outcome: decision.Rejected, Task: decision.Task{Name: name}, At: at}
	}
	ids := func(rejected ...decision.Explanation) (out []string) {
		for _, r := range c.latestRejections(rejected) {
			out = append(out, r.Task+"="+r.ID)
		}
		return out
	}
	before := ids(e("b", when), e("c", when), e("a", when.Add(-1)))
	after := ids(e("b", when), e("c", when), e("d", when), e("a", when.Add(-1)), e("e", when.Add(1)))
	if len(before) != 3 || len(after) != 4 || after[0][:1] != "e" || !slices.Equal(after[2:], before[:2]) {
		t.Fatalf("before %q, after %q", before, after)
	}
	seen := map[string]bool{}
	for _, id := range after {
		if _, id, _ = strings.Cut(id, "="); seen[id] {
			t.Fatalf("%s twice in %q", id, after)
		}
		seen[id] = true
	}
	dry := decision.Explanation{Outcome: decision.Started, WouldReject: decision.PressureHigh}
	if got := appendRejections(nil, "l", []decision.Explanation{dry}); len(got) != 1 || rejectionJSON(got[0]).Reason != "pressure_high" {
		t.Errorf("of a dry run: %v", got)
	}
	for outcome, want := range map[decision.Outcome]int{
		decision.Started: 0, decision.Executed: 0, decision.Rejected: 1, decision.OutcomeCanceled: 1,
	} {
		if got := appendRejections(nil, "l", []decision.Explanation{{Outcome: outcome}}); len(got) != want {
			t.Errorf("%s: listed %d times, want %d", outcome, len(got), want)
		}
	}
}

// TestNobodyIsCrowdedOut: of limiters and reasons that reject little and did so before, the last rejections are listed beside those
// of one that rejects all the time, and all of them in the order of time.
func TestNobodyIsCrowdedOut(t *testing.T) {
	// Of limiters a, b, …, each of which rejected later than all before it, or for the reasons a, b, … of one limiter.
	listed := func(one bool, most int, counts ...int) string {
		c := mustNew(t, Config{Warden: mustWarden(t, new(script))})
		c.maxRejections = most
		var rejected []decision.Explanation
		for i, n := range counts {
			for j := range n {
				e := decision.Explanation{Limiter: string(rune('a' + i)), At: time.Unix(int64(1000*i+j), 0)}
				if e.Task.Name = e.Limiter + fmt.Sprint(j); one {
					e.Limiter, e.Reason = "l", decision.RejectionReason(e.Limiter)
				}
				rejected = append(rejected, e)
			}
		}
		var b strings.Builder
		for _, r := range c.latestRejections(rejected) {
			b.WriteString(r.Task + " ")
		}
		return strings.TrimSpace(b.String())
	}
	for _, check := range []struct {
		most   int
		counts []int
		want   string
	}{
		{8, []int{0}, ""},
		{8, []int{3}, "a2 a1 a0"},
		{8, []int{100}, "a99 a98 a97 a96 a95 a94 a93 a92"},
		{8, []int{100, 100}, "b99 b98 b97 b96 b95 b94 a99 a98"},
		{8, []int{100, 1, 100}, "c99 c98 c97 c96 c95 c94 b0 a99"},
		{8, []int{1, 2, 3, 1, 100}, "e99 e98 e97 e96 d0 c2 b1 a0"},
		{2, []int{9, 9, 9}, "c8 b8"},
		{1, []int{9, 9}, "b8"},
	} {
		for _, one := range []bool{false, true} {
			if got := listed(one, check.most, check.counts...); got != check.want {
				t.Errorf("%d of %v, of one limiter: %v: %s, want %s", check.most, check.counts, one, got, check.want)
			}
		}
	}
}

// TestPhases: decisions whose reasons have the same codes are one phase, and the last phases are kept.
func TestPhases(t *testing.T) {
	var p history
	seq := uint64(0)
	add := func(target int, codes ...string) {
		seq++
		d := decision.ControlDecision{Seq: seq, TargetConcurrency: target, ShedProbability: float64(target) / 100}
		for _, code := range codes {
			d.Reasons = append(d.Reasons, decision.NewReason(code, fmt.Sprint("signal", seq), 1, decision.Hold))
		}
		p.add(warden.Reading{Decision: d, Sample: monitor.Sample{At: time.Unix(int64(seq), 0)}})
	}
	add(10, "calm")
	add(11, "calm")
	add(9, "queueing")
	add(7, "queueing")
	add(7, "queueing", "service_slow")
	var b strings.Builder
	for _, f := range p.phases {
		fmt.Fprintf(&b, "%d-%d@%d-%d:%d>%d:%v>%v %s;", f.FirstSeq, f.LastSeq, f.From.Unix(), f.To.Unix(), f.TargetFrom, f.TargetTo,
			f.ShedFrom, f.ShedTo, f.Reasons[0].Signal)
	}
	if want := "1-2@1-2:10>11:0.1>0.11 signal2;3-4@3-4:11>7:0.11>0.07 signal4;5-5@5-5:7>7:0.07>0.07 signal5;"; b.String() != want {
		t.Fatalf("%s\nwant\n%s", b.String(), want)
	}
	for i := range 3 * mostPhases {
		add(i, []string{"a", "b"}[i%2])
	}
	if n := len(p.phases); n != mostPhases || p.phases[n-1].LastSeq != seq || p.phases[0].FirstSeq != seq-mostPhases+1 {
		t.Fatalf("%d phases, from %d to %d of %d", n, p.phases[0].FirstSeq, p.phases[n-1].LastSeq, seq)
	}
}

// TestLowered: the last decision that lowered the limit is remembered with its first reason to, and the verdict quotes it for as
// long as it speaks of that time, unless the present decision has the same reason.
func TestLowered(t *testing.T) {
	var p history
	at := time.Unix(0, 0)
	add := func(target int, r decision.Reason) {
		at = at.Add(time.Second)
		p.add(warden.Reading{Decision: decision.ControlDecision{
			Seq: p.lastSeq + 1, At: at, TargetConcurrency: target,
			Reasons: []decision.Reason{decision.NewReason("calm", "utilization", 0.01, decision.Relax), r},
		}, Sample: monitor.Sample{At: at}})
	}
	memory := decision.NewReason("memory", "memory_bytes_per_task", 20e6, decision.Tighten).Because("20 MB a task, 9 of 9 fit")
	held := decision.NewReason("held", "service_long", 3, decision.Relax).Because("3 run for long")
	verdict := func() string {
		d := p.phases[len(p.phases)-1]
		w := &wardenState{Decision: &decisionFields{At: jsonTime{at}, Reasons: d.Reasons}, DecisionState: "applied", lowered: p.lowered}
		return w.verdict().Text
	}
	const quoted = "Lowered in the last 10 s: 20 MB a task, 9 of 9 fit (memory)."
	add(16, held)
	if p.lowered != (lowered{}) || strings.Contains(verdict(), "Lowered") {
		t.Errorf("nothing was lowered: %+v", p.lowered)
	}
	add(9, memory)
	if strings.Contains(verdict(), "Lowered") || !strings.Contains(verdict(), "9 of 9 fit (memory)") {
		t.Errorf("said twice, or not at all: %s", verdict())
	}
	for i := range 12 {
		add(9+i, held)
		if got, want := strings.Contains(verdict(), quoted), i < 9; got != want {
			t.Errorf("%d s later: %s", i+1, verdict())
		}
	}
}

// TestBounded: what the console remembers of limiters does not grow.
func TestBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := mustNew(t, Config{Limiters: map[string]*limiter.Limiter{"a": mustLimiter(t, 1)}, Interval: 100 * time.Millisecond})
		for range 3 * mostPoolPoints {
			c.state(new(cursor))
			time.Sleep(100 * time.Millisecond)
		}
		if n := len(c.history.pools); n != mostPoolPoints {
			t.Errorf("%d looks are remembered, want %d", n, mostPoolPoints)
		}
		if n := len(c.history.limits[0]); n < 100 || n > 102 {
			t.Errorf("%d tallies are remembered for a window of 100 intervals", n)
		}
	})
}
