package ownertest

// This file tortures the group in memory, sound and broken: what is broken has to be found.

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
)

func TestTortureOwners(t *testing.T) {
	Torture(t, func(t testing.TB, partitions int) Group { return newPlain(t, "", partitions) })
}

// torment lets a group live, in virtual time, and returns what was found.
func torment(t *testing.T, seed uint64, open Open) (a *account, said string) {
	synctest.Test(t, func(t *testing.T) {
		said = watch(t, check{run: func(t testing.TB, open Open) {
			w := &torture{TB: t, account: newAccount(), server: new(sync.RWMutex), rnd: rand.New(rand.NewPCG(seed, 1)), rounds: map[string]int{}}
			a = w.account
			w.run(open)
		}}, open)
	})
	return a, said
}

func TestTortureHasTeeth(t *testing.T) {
	for seed := range uint64(20) {
		if _, said := torment(t, seed, func(t testing.TB, partitions int) Group { return newPlain(t, "", partitions) }); said != "" {
			t.Errorf("the sound one, seed %d: %s", seed, said)
		}
	}
	for _, fault := range []string{
		"the dead keep what they have", "nobody claims", "a member that hears nothing ends",
		"what is given back is kept", "who leaves is silent", "who comes first has all",
	} {
		t.Run(fault, func(t *testing.T) {
			for seed := range uint64(20) {
				if _, said := torment(t, seed, func(t testing.TB, partitions int) Group { return newPlain(t, fault, partitions) }); said != "" {
					t.Logf("seed %d: %.600s", seed, said)
					return
				}
			}
			t.Error("not found")
		})
	}
}
