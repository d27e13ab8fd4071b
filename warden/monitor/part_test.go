// SPDX-License-Identifier: Apache-2.0

// Parts of a program (Recorder.Part), and what they add up to.

package monitor

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// What runs in a part inside of a task that is recorded as well counts once, and so does what runs in a part alone (M3).
func TestPartsAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		a, b := r.Part("a", 4), r.Part("b", 7)
		run := func(takes time.Duration, all ...*Recorder) {
			var spans []Span
			for _, r := range all {
				spans = append(spans, r.Start("a task"))
			}
			time.Sleep(takes)
			for _, s := range spans {
				s.End()
			}
		}
		for name, in := range map[string]struct {
			a, b []*Recorder
		}{"in parts": {[]*Recorder{a}, []*Recorder{b}}, "in parts inside of tasks": {[]*Recorder{r, a}, []*Recorder{r, b}}} {
			run(time.Second, in.a...)
			run(3*time.Second, in.b...)
			whole, parts := r.takeAll(time.Now())
			if whole.Count != 2 || whole.Concurrency != 1 || whole.Throughput != 0.5 || whole.Times[0] > 1100*time.Millisecond ||
				whole.Times[1] < 2900*time.Millisecond {
				t.Errorf("M3: %s: %+v", name, whole)
			}
			if len(parts) != 2 || parts[0].Name != "a" || parts[0].Limit != 4 || parts[1].Limit != 7 ||
				parts[0].Service.Count != 1 || parts[1].Service.Concurrency != 0.75 {
				t.Errorf("M3: %s: %+v", name, parts)
			}
		}
		if r.Part("a", 9) != a {
			t.Error("a known name has another recorder")
		}
		for i := range mostParts {
			r.Part(fmt.Sprint("part ", i), 1)
		}
		var none *Recorder
		for _, p := range []*Recorder{
			r.Part("beyond", 1),
			r.Part("no limit", 0), none.Part("of nil", 1), a.Part("of a part", 1), new(Recorder).Part("of zero", 1),
		} {
			p.Start("").End()
			if p != nil {
				t.Errorf("%+v", p)
			}
		}
		time.Sleep(time.Second)
		if _, parts := r.takeAll(time.Now()); len(parts) != mostParts || parts[0].Limit != 9 || parts[0].Service.Count != 0 {
			t.Errorf("%d parts, the first %+v", len(parts), parts[0])
		}
	})
}
