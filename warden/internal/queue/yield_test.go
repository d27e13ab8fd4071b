// SPDX-License-Identifier: Apache-2.0

// How often a task lets others run before it starts (Q15).

package queue

import (
	"runtime"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

// A task looks once at how many have arrived, and again after each time that it has let others run: until nobody has come since,
// or Yields is used up. On one core, others run in between, but where Go's scheduler takes its own turn, as it does once in 61
// times.
func TestPropertyYieldsWhileOthersArrive(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	yielded, unseen := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		yields := rapid.IntRange(0, 9).Draw(t, "yields")
		come := rapid.SliceOfN(rapid.Uint64Range(0, 2), 10, 10).Draw(t, "come")
		looks := 0
		for i := 0; yields > 0 && looks == i && i <= yields; i++ {
			if looks++; i > 0 && come[i-1] == 0 {
				break
			}
		}
		var others atomic.Uint64
		var stop atomic.Bool
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for ; !stop.Load(); runtime.Gosched() {
				others.Add(1)
			}
		}()
		had, looked, came := uint64(0), 0, uint64(100)
		Yield(yields, func() uint64 {
			if looked++; looked > 1 {
				came += come[looked-2]
				if yielded++; others.Load() == had {
					unseen++
				}
			}
			had = others.Load()
			return came
		})
		stop.Store(true)
		<-ended
		if looked != looks {
			t.Fatalf("Q15: of %d yields at most, with arrivals %v: %d looks, want %d", yields, come, looked, looks)
		}
	})
	if t.Logf("%d of %d yields let nobody run", unseen, yielded); yielded == 0 || unseen > yielded/2 {
		t.Errorf("Q15: %d of %d yields let nobody run", unseen, yielded)
	}
}
