// SPDX-License-Identifier: Apache-2.0

package leasekafka_test

// Large records come over a link on which an answer with all that a broker has would arrive too late (L20).

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/stopbank/stopbank/lease/dispatch"
)

func TestLargeRecordsOverASlowLink(t *testing.T) {
	const partitions = 24
	k := onLoopback(t, partitions)
	rnd := rand.NewChaCha8([32]byte{})
	for i := range int32(partitions) {
		payload := make([]byte, 900_000)
		_, _ = rnd.Read(payload) // never an error
		k.produce(t, &kgo.Record{Key: fmt.Append(nil, "k", i), Value: payload, Partition: i})
	}
	line := k.line(t)
	line.Slow(16 << 20)
	cfg := k.config()
	cfg.Session = 2 * time.Second // an answer has a quarter of it, and what the broker may wait
	cfg.Options = append(cfg.Options, kgo.Dialer(line.DialContext))
	var mu sync.Mutex
	seen, taken := map[string]bool{}, 0
	r := run(t, cfg, dispatch.Config{
		Observer: observing(func(e dispatch.Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.Kind == dispatch.Taken {
				taken++
			}
		}),
		Handler: func(_ context.Context, job dispatch.Job) error {
			mu.Lock()
			defer mu.Unlock()
			seen[job.Record.Domain] = true
			return nil
		},
	})
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) { // a broker tells nobody
		mu.Lock()
		n := len(seen)
		mu.Unlock()
		if n == partitions {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("L20: %d of %d records have come", n, partitions)
		}
	}
	r.stop(t)
	if taken != partitions {
		t.Errorf("L20: %d partitions were taken %d times", partitions, taken)
	}
}

type observing func(dispatch.Event)

func (o observing) Observe(e dispatch.Event) { o(e) }
