// Traffic: clients that come whether the service answers or not, calm and then too many by turns.

package main

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// turn is how long it stays calm, and how long it floods.
const turn = 12 * time.Second

// traffic asks until ctx ends, and returns when the last request has its answer.
func (s *service) traffic(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	for _, k := range kinds {
		all.Go(func() {
			for began := time.Now(); ; {
				rate := k.calm
				if time.Since(began)/turn%2 == 1 {
					rate = k.flood
				}
				select {
				case <-ctx.Done():
					return
				case <-time.After(time.Duration(rand.ExpFloat64() / rate * float64(time.Second))):
				}
				all.Go(func() { _ = s.answer(ctx, k) })
			}
		})
	}
}
