// CPU work: rounds of hashing, calibrated to take a given time on this machine when idle.
package main

import (
	"context"
	"crypto/sha256"
	"time"
)

// work is a number of rounds.
type work int

// round takes some ten microseconds.
func round(seed byte) byte {
	block := [8 << 10]byte{seed}
	return sha256.Sum256(block[:])[0]
}

// workOf measures how many rounds take d. The fastest of several measurements counts: other load has slowed the rest.
func workOf(d time.Duration) work {
	if d <= 0 {
		return 0
	}
	const rounds = 100
	fastest := time.Duration(1 << 62)
	for range 20 {
		start, x := time.Now(), byte(0)
		for range rounds {
			x = round(x)
		}
		fastest = min(fastest, time.Since(start))
	}
	return work(max(1, rounds*d/max(1, fastest)))
}

// do computes, without a scheduling point. ctx is the server's, not the request's: a client that leaves does not stop it.
func (n work) do(ctx context.Context) {
	for x := byte(0); n > 0 && ctx.Err() == nil; n-- {
		x = round(x)
	}
}
