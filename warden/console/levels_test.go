// Levels: a controller of somebody else may hang or panic when it is asked how it judges, and the console answers all the same.

package console

import (
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/control"
	"github.com/stopbank/stopbank/warden/monitor"
)

// gauge is a script that can be looked into.
type gauge struct {
	script
	pressure func() float64
	levels   func() float64
}

func (g *gauge) Pressure() float64 {
	if g.pressure == nil {
		return 0.25
	}
	return g.pressure()
}

func (g *gauge) Levels(monitor.Sample) []control.Level {
	return []control.Level{{Signal: "signal", Level: g.levels()}}
}

// watched makes a warden that g controls, and a console that shows it. Each call of turn has the warden take a sample.
func watched(t *testing.T, g *gauge) (c *Console, turn func()) {
	w := must(warden.New(warden.Config{Sampler: g, Controller: g}))(t)
	return mustNew(t, Config{Warden: w}), func() {
		time.Sleep(100 * time.Millisecond)
		w.SampleIfDue()
	}
}

const silent = "The controller does not say how it evaluates samples: Levels hangs or panics."

func wantSilent(t *testing.T, s *state, want bool) {
	t.Helper()
	level := map[bool]string{true: levelWatch, false: levelOK}[want]
	if v := s.Verdicts[0]; v.Level != level || strings.Contains(v.Text, silent) != want {
		t.Errorf("%s: %q, want silent %v", v.Level, v.Text, want)
	}
	for _, p := range s.History {
		if known := len(p.Levels) == 1 && p.Levels["signal"] == 0.5; known == want || p.Pressure != 0.25 {
			t.Errorf("a point has levels %v and pressure %v, want silent %v", p.Levels, p.Pressure, want)
		}
	}
}

// TestLevelsHang: looks have all the rest, those after the first without a wait; whatever else is asked for is answered meanwhile.
func TestLevelsHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		release := make(chan struct{})
		c, turn := watched(t, &gauge{levels: func() float64 { asked.Add(1); <-release; return 0.5 }})
		turn()
		turn()
		var looks sync.WaitGroup
		for range 2 { // at once: one asks, the other waits for it
			looks.Go(func() {
				s := c.state(new(cursor))
				if len(s.History) != 2 || s.Warden.Decision.Seq != 2 {
					t.Errorf("%d readings, decision %+v", len(s.History), s.Warden.Decision)
				}
				wantSilent(t, s, true)
			})
		}
		synctest.Wait()
		if code, _ := c.enter(); code != "" {
			t.Errorf("a stream is rejected: %s", code)
		}
		c.leave()
		looks.Wait()
		at, before := new(cursor), time.Now()
		for range 3 { // with readings, and then without
			wantSilent(t, c.state(at), true)
		}
		if waited := time.Since(before); waited != 0 || asked.Load() != 1 {
			t.Errorf("asked %d times, waited %s more; want once, and not again while it hangs", asked.Load(), waited)
		}
		close(release)
		synctest.Wait()
		turn()
		if s := c.state(new(cursor)); len(s.History) != 3 {
			t.Errorf("%d readings", len(s.History))
		} else {
			wantSilent(t, s, false)
		}
	})
}

// TestLevelsBreak: a controller that panics, or ends the goroutine that asks it, costs its levels and nothing else, until it
// answers again.
func TestLevelsBreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var how func()
		c, turn := watched(t, &gauge{levels: func() float64 { how(); return 0.5 }})
		turn()
		for _, how = range []func(){func() { panic("broken") }, runtime.Goexit} {
			wantSilent(t, c.state(new(cursor)), true)
		}
		how = func() {}
		at := new(cursor)
		for range 2 { // with a reading, and then without
			wantSilent(t, c.state(at), false)
		}
	})
}

// TestPressureHangs: the turn of the warden that it hangs in is not shown, and the page says so.
func TestPressureHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		c, turn := watched(t, &gauge{pressure: func() float64 { <-release; return 0.25 }, levels: func() float64 { return 0.5 }})
		ended := make(chan struct{})
		go func() { defer close(ended); turn() }()
		time.Sleep(time.Second)
		s := c.state(new(cursor))
		if v := s.Verdicts[0]; len(s.History) != 0 || v.Level != levelWatch ||
			!strings.Contains(v.Text, "The controller has not decided yet: the initial limit applies. A sample was begun and has not ended: the sampler or the controller hangs.") {
			t.Errorf("%d readings, %s: %s", len(s.History), v.Level, v.Text)
		}
		close(release)
		<-ended
		if s = c.state(new(cursor)); len(s.History) != 1 {
			t.Errorf("%d readings", len(s.History))
		}
		wantSilent(t, s, false)
	})
}
