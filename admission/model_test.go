// SPDX-License-Identifier: Apache-2.0

// The naive model of a gate, written from the contract alone, and a machine that drives gate and model side by side.

package admission_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/admission"
)

// model is what a gate means: a set of admissions, a limit, a switch.
type model struct {
	limit                      int
	closed                     bool
	live                       map[int]bool // admissions in flight, by number
	admitted, rejected, refOff uint64       // refOff: rejected because closed
}

func (m *model) enter() (id int, reason admission.Reason, ok bool) {
	switch {
	case m.closed:
		m.rejected++
		m.refOff++
		return 0, admission.Closed, false
	case len(m.live) == m.limit:
		m.rejected++
		return 0, admission.Saturated, false
	}
	m.admitted++
	m.live[int(m.admitted)] = true
	return int(m.admitted), 0, true
}

func (m *model) leave(id int) bool {
	was := m.live[id]
	delete(m.live, id)
	return was
}

// machine applies operations to a gate and to its model, and fails at the first difference, in words that begin with the number
// of the invariant.
type machine struct {
	fatalf func(format string, args ...any)
	g      *admission.Gate
	m      model
	ends   []ending
}

// ending is what ends an admission: the Release of its permit, or the callback of a Submit, which does not say what it did.
type ending struct {
	id   int
	end  func() bool
	mute bool
}

// agree compares an answer of the gate with the model's.
func (x *machine) agree(op string, err error, reason admission.Reason, ok bool) {
	var r *admission.RejectedError
	switch {
	case ok && err != nil:
		x.fatalf("A5: %s: rejected (%v), but only %d of %d are in flight", op, err, len(x.m.live), x.m.limit)
	case !ok && x.m.closed && !errors.As(err, &r):
		x.fatalf("A10: %s: %v of a closed gate", op, err)
	case !ok && !errors.As(err, &r):
		x.fatalf("A1: %s: %v, and %d of %d are in flight", op, err, len(x.m.live), x.m.limit)
	case !ok && (r.Reason != reason || r.Gate != "m" || r.Limit != x.m.limit || !errors.Is(err, admission.ErrRejected)):
		x.fatalf("A6: %s: %+v, want reason %v", op, r, reason)
	}
}

func (x *machine) tryAcquire() {
	p, err := x.g.TryAcquire()
	id, reason, ok := x.m.enter()
	x.agree("TryAcquire", err, reason, ok)
	if ok {
		x.ends = append(x.ends, ending{id: id, end: p.Release})
	} else if p.Release() {
		x.fatalf("A3: the permit of a rejection released something")
	}
}

// release ends any admission that there ever was: half of them for the second time or later.
func (x *machine) release(i int) {
	if len(x.ends) == 0 {
		return
	}
	e := x.ends[i%len(x.ends)]
	if got, want := e.end(), x.m.leave(e.id); got != want && !e.mute {
		x.fatalf("A3: Release of admission %d = %v, want %v", e.id, got, want)
	}
}

// The ways in which a function or a start may end.
const (
	returns = iota
	fails
	panics
	exits
	waysToEnd
)

var errMine = errors.New("mine")

// do runs a function that ends in the given way, with a result or without one, and uses the gate from inside.
func (x *machine) do(way int, call bool) {
	id, reason, ok := x.m.enter()
	ran, result := 0, 7
	fn := func() error {
		ran++
		x.inside("Do")
		return end(way)
	}
	ended, err := run(func() (err error) {
		if !call {
			return x.g.Do(fn)
		}
		result, err = admission.Call(x.g, func() (int, error) { return 7, fn() })
		return err
	})
	if !ok {
		x.agree("Do", err, reason, false)
		if ran != 0 || call && result != 0 {
			x.fatalf("A4: Do called a function that was rejected, %d times; result %d", ran, result)
		}
		return
	}
	if ran != 1 || ended != way || result != 7 {
		x.fatalf("A2: Do ran fn %d times, which ends in way %d; it ends in way %d: %v, result %d", ran, way, ended, err, result)
	}
	x.m.leave(id)
}

func end(way int) error {
	switch way {
	case fails:
		return errMine
	case panics:
		panic(errMine)
	case exits:
		runtime.Goexit()
	}
	return nil
}

// run calls f on a goroutine of its own and says in which way it ended.
func run(f func() error) (way int, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if v := recover(); v == any(errMine) {
				way = panics
			} else if v != nil {
				panic(v)
			}
		}()
		way = exits
		err = f()
		if way = returns; errors.Is(err, errMine) {
			way = fails
		}
	}()
	select {
	case <-done:
	case <-time.After(time.Hour): // at once where the others wait
		panic("A7: a call waits")
	}
	return way, err
}

// inside is called by a function that the gate has admitted. It may use the gate.
func (x *machine) inside(call string) {
	if got := x.g.Stats().InFlight; got != len(x.m.live) {
		x.fatalf("A4: inside %s: %d in flight, want %d", call, got, len(x.m.live))
	}
	x.tryAcquire()
	x.release(len(x.ends) - 1)
}

// The times that start calls done before it ends, 0 or more in a row, or as many as it can at once.
const (
	atOnce   = 3
	patterns = 4
)

func callDone(done func(), times int) {
	if times == atOnce {
		together(5, func(int) { done() })
		return
	}
	for range times {
		done()
	}
}

// submit starts an operation that ends in the given way, and calls back as often as it likes; it keeps done for later.
func (x *machine) submit(way, times int) {
	id, reason, ok := x.m.enter()
	started := 0
	var kept func()
	ended, err := run(func() error {
		return x.g.Submit(func(done func()) error {
			started++
			kept = done
			x.inside("Submit")
			callDone(done, times)
			return end(way)
		})
	})
	if !ok {
		x.agree("Submit", err, reason, false)
		if started != 0 {
			x.fatalf("A4: a rejected Submit called start %d times", started)
		}
		return
	}
	if started != 1 || ended != way {
		x.fatalf("A4: Submit called start %d times, which ends in way %d; it ends in way %d: %v", started, way, ended, err)
	}
	if way != returns || times > 0 {
		x.m.leave(id)
	}
	x.ends = append(x.ends, ending{id, func() bool { kept(); return false }, true})
}

func (x *machine) close() {
	x.g.Close()
	x.m.closed = true
}

// drain asks whether nothing is in flight: with a context that has ended, Drain does not wait for it.
func (x *machine) drain() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := x.g.Drain(ended); (err == nil) != (len(x.m.live) == 0) || err != nil && !errors.Is(err, context.Canceled) {
		x.fatalf("A10: Drain = %v with %d in flight", err, len(x.m.live))
	}
}

// check compares all that can be seen.
func (x *machine) check() {
	want := admission.Stats{
		Limit: x.m.limit, InFlight: len(x.m.live),
		Admitted: x.m.admitted, Released: x.m.admitted - uint64(len(x.m.live)),
		Rejected: x.m.rejected, RejectedClosed: x.m.refOff,
	}
	switch got := x.g.Stats(); {
	case got.InFlight > x.m.limit:
		x.fatalf("A1: %d in flight of %d", got.InFlight, x.m.limit)
	case got.InFlight != want.InFlight:
		x.fatalf("A2: %d in flight, want %d: %+v", got.InFlight, want.InFlight, got)
	case got != want:
		x.fatalf("A8: Stats = %+v, want %+v", got, want)
	}
}

// A step is an operation, in three small numbers.
type step struct{ op, a, b int }

func (x *machine) operate(s step) {
	switch s.op % 8 {
	case 0:
		x.tryAcquire()
	case 1:
		for range s.a % 48 {
			x.tryAcquire()
		}
	case 2, 5:
		x.release(s.a)
	case 3:
		x.do(s.a%waysToEnd, s.b%2 == 0)
	case 4:
		x.submit([]int{returns, returns, fails, panics, exits}[s.b%5], s.a%patterns)
	case 6:
		x.drain()
	case 7:
		if s.a%16 == 0 {
			x.close()
		}
	}
}

// play returns the first difference between a gate and its model, "" for none. Time passes only where all wait.
func play(t *testing.T, limit int, script []step) (failed string) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		x := &machine{g: mustNew(t, admission.Config{Name: "m", Limit: limit}), m: model{limit: limit, live: map[int]bool{}}}
		x.fatalf = func(f string, args ...any) {
			failed = cmp.Or(failed, fmt.Sprintf(f, args...))
			runtime.Goexit()
		}
		_, _ = run(func() error {
			for _, s := range script {
				x.operate(s)
				x.check()
				if !time.Now().Equal(began) {
					x.fatalf("A7: a call took its time")
				}
			}
			return nil
		})
	})
	return failed
}

// TestPropertyMachine holds the gate against its model over random histories: who is admitted, who is rejected and
// why, which release counts, what is started, what is counted, what closing does, and that nothing waits.
func TestPropertyMachine(t *testing.T) {
	steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{rapid.IntRange(0, 7).Draw(t, "op"), rapid.IntRange(0, 63).Draw(t, "a"), rapid.IntRange(0, 4).Draw(t, "b")}
	}), 1, 120)
	rapid.Check(t, func(rt *rapid.T) {
		limit := rapid.SampledFrom([]int{1, 2, 3, 9, 31, 33, 100}).Draw(rt, "limit")
		if failed := play(t, limit, steps.Draw(rt, "steps")); failed != "" {
			rt.Fatal(failed)
		}
	})
}

// FuzzMachine is the same machine, driven by coverage: three bytes a step, the first one is the limit.
func FuzzMachine(f *testing.F) {
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) == 0 || len(in) > 600 {
			return
		}
		limit := max(1, int(in[0]))
		var script []step
		for in = in[1:]; len(in) >= 3; in = in[3:] {
			script = append(script, step{int(in[0]), int(in[1]), int(in[2])})
		}
		if failed := play(t, limit, script); failed != "" {
			t.Fatal(failed)
		}
	})
}
