// Traffic: an open-loop load generator that alternates between normal load and overload.

package main

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// period is the length of each period of normal load and of overload.
const period = 12 * time.Second

// traffic sends requests until ctx ends and returns after the last response.
func (s *service) traffic(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	for _, k := range kinds {
		all.Go(func() {
			for began := time.Now(); ; {
				rate := k.calm
				if time.Since(began)/period%2 == 1 {
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
