// SPDX-License-Identifier: Apache-2.0

// The naive model of a gate, written from the contract alone, and a machine that drives gate and model side by side.

package admission_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"

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
	fatalf  func(format string, args ...any)
	g       *admission.Gate
	m       model
	permits []admitted[admission.Permit]
	dones   []admitted[func()]
}

// admitted is what ends an admission: a permit, or the callback of a Submit.
type admitted[T any] struct {
	id  int
	end T
}

func newMachine(limit int, fatalf func(string, ...any)) *machine {
	g, err := admission.New(admission.Config{Name: "m", Limit: limit})
	if err != nil {
		fatalf("New: %v", err)
	}
	return &machine{fatalf: fatalf, g: g, m: model{limit: limit, live: map[int]bool{}}}
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
		x.fatalf("A10: %s: %+v, want reason %v", op, r, reason)
	}
}

func (x *machine) tryAcquire() {
	p, err := x.g.TryAcquire()
	id, reason, ok := x.m.enter()
	x.agree("TryAcquire", err, reason, ok)
	if ok {
		x.permits = append(x.permits, admitted[admission.Permit]{id, p})
	} else if p.Release() {
		x.fatalf("A3: the permit of a rejection released something")
	}
}

// release releases any permit that was ever given out: half of them for the second time or later.
func (x *machine) release(i int) {
	if len(x.permits) == 0 {
		return
	}
	p := x.permits[i%len(x.permits)]
	if got, want := p.end.Release(), x.m.leave(p.id); got != want {
		x.fatalf("A3: Release of admission %d = %v, want %v", p.id, got, want)
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

// do runs a function that ends in the given way, and looks at the gate from inside.
func (x *machine) do(way int) {
	id, reason, ok := x.m.enter()
	ran := 0
	err, thrown, exited := run(func() error {
		return x.g.Do(func() error {
			ran++
			x.inside("Do")
			return end(way)
		})
	})
	if !ok {
		x.agree("Do", err, reason, false)
		if ran != 0 {
			x.fatalf("A4: Do called a function that was rejected")
		}
		return
	}
	if ran != 1 || (err != nil) != (way == fails) || (thrown != nil) != (way == panics) || exited != (way == exits) {
		x.fatalf("A2: Do ran fn %d times, way %d: err %v, panic %v, Goexit %v", ran, way, err, thrown, exited)
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

// run calls f on a goroutine of its own and says how it ended.
func run(f func() error) (err error, thrown any, exited bool) { //nolint:revive,staticcheck // by likelihood
	done := make(chan struct{})
	go func() {
		defer close(done)
		returned := false
		defer func() {
			thrown = recover()
			exited = thrown == nil && !returned
		}()
		err = f()
		returned = true
	}()
	<-done
	return err, thrown, exited
}

// inside is called by a function that the gate has admitted.
func (x *machine) inside(call string) {
	if got := x.g.Stats().InFlight; got != len(x.m.live) {
		x.fatalf("A4: inside %s: %d in flight, want %d", call, got, len(x.m.live))
	}
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
	err, thrown, exited := run(func() error {
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
	if started != 1 {
		x.fatalf("A4: Submit called start %d times", started)
	}
	if errors.Is(err, errMine) != (way == fails) || (thrown != nil) != (way == panics) || exited != (way == exits) {
		x.fatalf("A2: Submit with a start that ends in way %d: err %v, panic %v, Goexit %v", way, err, thrown, exited)
	}
	if way != returns || times > 0 {
		x.m.leave(id)
	}
	x.dones = append(x.dones, admitted[func()]{id, kept})
}

// finish calls a done, for the first time or once more.
func (x *machine) finish(i int) {
	if len(x.dones) == 0 {
		return
	}
	d := x.dones[i%len(x.dones)]
	d.end()
	x.m.leave(d.id)
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

// step applies the operation that three small numbers encode.
func (x *machine) step(op, a, b int) {
	x.operate(op, a, b)
	x.check()
}

func (x *machine) operate(op, a, b int) {
	switch op % 8 {
	case 0:
		x.tryAcquire()
	case 1:
		for range a % 48 {
			x.tryAcquire()
		}
	case 2:
		x.release(a)
	case 3:
		x.do(a % waysToEnd)
	case 4:
		x.submit([]int{returns, returns, fails, panics, exits}[b%5], a%patterns)
	case 5:
		x.finish(a)
	case 6:
		x.drain()
	case 7:
		if a%16 == 0 {
			x.close()
		}
	}
}

// TestPropertyMachine holds the gate against its model over random histories: who is admitted, who is rejected and
// why, which release counts, what is started, what is counted, what closing does.
func TestPropertyMachine(t *testing.T) {
	made := 0
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.SampledFrom([]int{1, 2, 3, 9, 31, 33, 100}).Draw(t, "limit")
		x := newMachine(limit, func(f string, args ...any) { t.Helper(); t.Fatalf(f, args...) })
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			x.step(rapid.IntRange(0, 7).Draw(t, "op"), rapid.IntRange(0, 63).Draw(t, "a"), rapid.IntRange(0, 4).Draw(t, "b"))
			made++
		}
	})
	t.Logf("%d steps", made)
}

// FuzzMachine is the same machine, driven by coverage: three bytes a step, the first one is the limit.
func FuzzMachine(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 2, 0, 0, 2, 0, 0})
	f.Add([]byte{3, 4, 1, 0, 4, 5, 0, 5, 0, 0, 6, 1, 0, 3, 2, 0, 7, 0, 0, 0, 0, 0})
	f.Add([]byte{20, 6, 1, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 2, 0, 0, 2, 1, 0})
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) == 0 || len(in) > 600 {
			return
		}
		x := newMachine(max(1, int(in[0])), t.Fatalf)
		for in = in[1:]; len(in) >= 3; in = in[3:] {
			x.step(int(in[0]), int(in[1]), int(in[2]))
		}
	})
}

// TestModelHasTeeth lets the machine drive a gate that is not what the model says.
func TestModelHasTeeth(t *testing.T) {
	for name, spoil := range map[string]func(x *machine){
		"a slot too many":        func(x *machine) { x.g = mustNew(t, admission.Config{Name: "m", Limit: 3}) },
		"a slot that was leaked": func(x *machine) { x.g.TryAcquire(); x.m.admitted++ },
		"a rejection too few":    func(x *machine) { x.m.rejected++ },
		"closed by another hand": func(x *machine) { x.g.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			failed := ""
			x := newMachine(2, func(f string, args ...any) { failed = fmt.Sprintf(f, args...); runtime.Goexit() })
			spoil(x)
			_, _, _ = run(func() error {
				for range 3 {
					x.step(0, 0, 0)
				}
				return nil
			})
			if failed == "" {
				t.Fatal("the machine noticed nothing")
			}
			t.Log(failed)
		})
	}
}
