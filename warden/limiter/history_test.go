// SPDX-License-Identifier: Apache-2.0

// Histories for the machine: what rapid and the fuzzer find, long ones, and limiters that are wrong on purpose.

package limiter

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/queue"
)

// drive runs a script in a bubble and returns what went wrong.
func drive(t *testing.T, s setup, script []move, before, after func(*machine)) (failed string) {
	synctest.Test(t, func(*testing.T) {
		type stop struct{}
		x := newMachine(s, func(format string, args ...any) { panic(stop{}) })
		x.fatalf = func(format string, args ...any) {
			failed = fmt.Sprintf(format, args...)
			panic(stop{})
		}
		defer x.stop()
		defer func() {
			if v := recover(); v != nil && v != (stop{}) {
				panic(v)
			}
		}()
		if after != nil {
			defer after(x)
		}
		if before != nil {
			before(x)
		}
		for _, s := range script {
			x.step(s)
		}
		x.finish()
	})
	return failed
}

// finish ends all that runs, until nobody runs and, if the target allows, nobody waits.
func (x *machine) finish() {
	for again := true; again; {
		again = false
		for _, run := range x.tasks {
			if run.is.state == runs {
				x.releaseTask(run, answered)
				synctest.Wait()
				x.check()
				again = true
			}
		}
	}
}

var setups = []setup{
	{maxQueue: 4, target: 2},
	{maxQueue: 3, target: 1},
	{maxQueue: 0, target: 2},
	{maxQueue: 8, target: 1, every: 2},
	{maxQueue: 3, target: 1, every: 3},
	{maxQueue: 6, target: 0},
	{maxQueue: 4, target: 3},
	{maxQueue: 5, target: 2, every: 4},
}

func TestPropertyMachine(t *testing.T) {
	made := 0
	rapid.Check(t, func(rt *rapid.T) {
		s := rapid.SampledFrom(setups).Draw(rt, "setup")
		script := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) move {
			return move{rapid.SampledFrom(ops).Draw(rt, "op"), rapid.IntRange(0, 31).Draw(rt, "a"), rapid.IntRange(0, 31).Draw(rt, "b")}
		}), 20, 120).Draw(rt, "script")
		if failed := drive(t, s, script, nil, nil); failed != "" {
			rt.Fatal(failed)
		}
		made += len(script)
	})
	t.Logf("%d steps", made)
}

// TestLongHistories runs the machine for longer than rapid does, and makes sure that it
// gets everywhere.
func TestLongHistories(t *testing.T) {
	const histories, steps = 20, 300
	seen := map[any]int{}
	for i := range histories * len(setups) {
		rng := rand.New(rand.NewPCG(3, uint64(i)))
		script := make([]move, steps)
		for j := range script {
			script[j] = move{ops[rng.IntN(len(ops))], rng.IntN(32), rng.IntN(32)}
		}
		failed := drive(t, setups[i%len(setups)], script, nil, func(x *machine) {
			for _, run := range x.tasks {
				seen[run.is.grant]++
				seen[run.is.reason]++
				seen[run.is.decisionState]++
			}
		})
		if failed != "" {
			t.Fatalf("history %d: %s", i, failed)
		}
	}
	for _, want := range []any{decision.Grant("slot_free"), decision.Grant("queue_oldest"), decision.Grant("queue_newest"),
		decision.Grant("starvation_turn"), decision.PressureHigh, decision.QueueOverflow, decision.NoSlot,
		decision.ProbabilisticShedding,
		decision.PriorityDrop, decision.MaxWaitExceeded, decision.DeadlineExceeded, decision.Canceled, decision.Closed,
		decision.Initial, decision.Applied, decision.Stale} {
		if t.Logf("%s: %d", want, seen[want]); seen[want] < 10 {
			t.Errorf("%s occurred %d times", want, seen[want])
		}
	}
}

// TestMachineHasTeeth lets the machine drive a limiter that is wrong on purpose.
func TestMachineHasTeeth(t *testing.T) {
	script := []move{{0, 2, 0}, {0, 2, 0}, {0, 4, 0}, {0, 3, 0}, {6, 25, 0}, {4, 0, 0}, {4, 0, 0}, {6, 9, 0}, {5, 3, 0}}
	if failed := drive(t, setups[1], script, nil, nil); failed != "" {
		t.Fatal(failed)
	}
	for name, spoil := range map[string]func(*Limiter){
		"a slot too many":         func(l *Limiter) { l.running-- },
		"a slot that is lost":     func(l *Limiter) { l.running++ },
		"always newest first":     func(l *Limiter) { l.rule.decision.Burst = 1 },
		"a shorter queue":         func(l *Limiter) { l.queue.Limit-- },
		"another class":           func(l *Limiter) { l.classes[1].Submitted--; l.classes[2].Submitted++ },
		"a rejection that is not": func(l *Limiter) { l.classes[1].byReason[queue.Closed]++ },
	} {
		t.Run(name, func(t *testing.T) {
			failed := drive(t, setups[1], script, func(x *machine) { spoil(x.l) }, nil)
			if failed == "" {
				t.Fatal("the machine noticed nothing")
			}
			t.Log(failed)
		})
	}
}

// FuzzMachine is the same machine, driven by coverage: the first byte is the setup, then three
// a step.
func FuzzMachine(f *testing.F) {
	f.Add([]byte{0, 0, 2, 0, 0, 2, 0, 0, 5, 0, 4, 0, 0})
	f.Add([]byte{3, 0, 2, 0, 0, 2, 0, 0, 0, 0, 0, 5, 0, 6, 30, 0, 4, 0, 0, 4, 1, 0})
	f.Add([]byte{6, 0, 2, 0, 0, 2, 0, 8, 0, 0, 7, 2, 6, 6, 31, 0, 9, 0, 0})
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) == 0 || len(in) > 400 {
			return
		}
		var script []move
		for c := range slices.Chunk(in[1:], 3) {
			if len(c) == 3 {
				script = append(script, move{int(c[0]), int(c[1] % 32), int(c[2] % 32)})
			}
		}
		if failed := drive(t, setups[int(in[0])%len(setups)], script, nil, nil); failed != "" {
			t.Fatal(failed)
		}
	})
}
