// Work for a processor: rounds of hashing, as many as this machine does in a given time when it is left alone.
package main

import (
	"context"
	"crypto/sha256"
	"time"
)

// work is a number of rounds; 0: none.
type work int

// round is one unit of work, some ten microseconds.
func round(seed byte) byte {
	block := [8 << 10]byte{seed}
	return sha256.Sum256(block[:])[0]
}

// workOf measures how many rounds take d. The fastest of several tries counts: the others were disturbed.
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

// do computes. It has no scheduling point and does not look for the client: only the end of ctx, the server's, ends it early.
func (n work) do(ctx context.Context) {
	for x := byte(0); n > 0 && ctx.Err() == nil; n-- {
		x = round(x)
	}
}
