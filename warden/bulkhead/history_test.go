// SPDX-License-Identifier: Apache-2.0

// Histories for the machine: what rapid and the fuzzer find, long ones, and sets that are wrong on purpose.

package bulkhead

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden/decision"
)

// drive runs a script and returns what went wrong.
func drive(t *testing.T, cfg Config, script []move, spoil, finally func(*machine)) (failed string) {
	synctest.Test(t, func(*testing.T) {
		x := newMachine(cfg)
		if spoil != nil {
			spoil(x)
		}
		for i, v := range script {
			if failed = x.step(v); failed == "" {
				failed = x.check()
			}
			if failed != "" {
				failed = fmt.Sprintf("%s; step %d, %+v", failed, i, v)
				break
			}
		}
		if finally != nil {
			finally(x)
		}
		for _, run := range x.calls {
			run.cancel()
			select {
			case <-run.leave:
			default:
				close(run.leave)
			}
		}
		synctest.Wait()
		snap := x.s.Snapshot()
		if failed == "" && snap.InFlight != 0 {
			failed = fmt.Sprintf("B5: at the end: %+v", snap)
		}
		x.s.Apply(decision.ControlDecision{Seq: 1 << 40, TargetConcurrency: 1}) // no timer is left
	})
	return failed
}

func TestPropertyMachine(t *testing.T) {
	made := 0
	rapid.Check(t, func(rt *rapid.T) {
		cfg := rapid.SampledFrom(shapes()).Draw(rt, "shape")
		script := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) move {
			return move{rapid.IntRange(0, 9).Draw(rt, "op"), rapid.IntRange(0, 31).Draw(rt, "a"), rapid.IntRange(0, 31).Draw(rt, "b")}
		}), 20, 120).Draw(rt, "script")
		if failed := drive(t, cfg, script, nil, nil); failed != "" {
			rt.Fatal(failed)
		}
		made += len(script)
	})
	t.Logf("%d steps", made)
}

// TestLongHistories runs the machine for longer than rapid does, and makes sure that it gets everywhere.
func TestLongHistories(t *testing.T) {
	const histories, steps = 40, 300
	seen := map[string]int{}
	for i := range histories {
		cfg := shapes()[i%len(shapes())]
		rng := rand.New(rand.NewPCG(5, uint64(i)))
		script := make([]move, steps)
		for j := range script {
			script[j] = move{rng.IntN(10), rng.IntN(32), rng.IntN(32)}
		}
		if failed := drive(t, cfg, script, nil, func(x *machine) {
			snap := x.s.Snapshot()
			for _, c := range snap.Compartments {
				for k, n := range union(c.Rejected, c.Left) {
					seen[k] += int(n)
				}
				seen["admitted"] += int(c.Admitted)
				seen["borrowed"] += c.Borrowed
				seen["lent"] += c.Lent
				if c.Tenants != nil {
					seen["evicted"] += int(c.Tenants.Evicted)
					seen["overflow"] += int(c.Tenants.Overflow)
				}
			}
			seen["resized"] += int(snap.Revision) - 1
			if snap.Stale {
				seen["stale"]++
			}
		}); failed != "" {
			t.Fatalf("history %d: %s", i, failed)
		}
	}
	for _, what := range []string{"queue_overflow", "timeout_queued", "canceled", "admitted", "borrowed", "lent", "evicted",
		"overflow", "resized", "stale"} {
		if t.Logf("%s: %d", what, seen[what]); seen[what] < 1 {
			t.Errorf("%s occurred %d times", what, seen[what])
		}
	}
}

// TestOneTurnIsOneSlot is a history that the machine has found: an owner that is served a slot kept for it must not
// take one of the unreserved in the same turn.
func TestOneTurnIsOneSlot(t *testing.T) {
	script := append(slices.Repeat([]move{{0, 0, 0}}, 9), move{0, 1, 0}, move{0, 1, 0}, move{8, 1, 2})
	if failed := drive(t, shapes()[1], script, nil, nil); failed != "" {
		t.Fatal(failed)
	}
}

// FuzzMachine is the machine, driven by coverage: the first byte is the shape, then three a step.
func FuzzMachine(f *testing.F) {
	f.Add([]byte{0, 0, 1, 0, 0, 1, 0, 0, 3, 1, 4, 0, 0, 9, 3, 2, 8, 1, 2})
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 8, 5, 2, 6, 0, 0, 7, 30, 0})
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) == 0 || len(in) > 300 {
			return
		}
		var script []move
		for c := range slices.Chunk(in[1:], 3) {
			if len(c) == 3 {
				script = append(script, move{int(c[0]), int(c[1] % 32), int(c[2] % 32)})
			}
		}
		all := shapes()
		if failed := drive(t, all[int(in[0])%len(all)], script, nil, nil); failed != "" {
			t.Fatal(failed)
		}
	})
}

// TestMachineHasTeeth lets the machine drive a set that is wrong on purpose.
func TestMachineHasTeeth(t *testing.T) {
	script := slices.Concat(slices.Repeat([]move{{0, 2, 0}}, 6), slices.Repeat([]move{{0, 0, 0}}, 3),
		slices.Repeat([]move{{0, 1, 0}}, 2), slices.Repeat([]move{{4, 0, 0}}, 4))
	if failed := drive(t, shapes()[1], script, nil, nil); failed != "" {
		t.Fatal(failed)
	}
	for name, spoil := range map[string]func(*Set){
		"a slot too many":       func(s *Set) { s.unreserved++ },
		"a slot that is lost":   func(s *Set) { s.unreserved-- },
		"a higher guarantee":    func(s *Set) { s.pools[1].share.Guaranteed++ },
		"another order":         func(s *Set) { s.pools[1].config.Criticality = 127 },
		"nothing is kept":       func(s *Set) { s.pools[0].share.Lendable = 3 },
		"a call that was not":   func(s *Set) { s.pools[0].countEarlyRejection(decision.Reentry) },
		"a failure that is not": func(s *Set) { s.pools[0].counts.rejectedFor[BreakerOpen]++ },
	} {
		failed := drive(t, shapes()[1], script, func(x *machine) { spoil(x.s) }, nil)
		if failed == "" {
			t.Errorf("%s: the machine noticed nothing", name)
		}
		t.Logf("%s: %s", name, failed)
	}
}
