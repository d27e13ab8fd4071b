// SPDX-License-Identifier: Apache-2.0

package leasekafka_test

// Large records come over a link on which an answer with all that a broker has would arrive too late (L20).

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/stopbank/stopbank/lease/internal/testkit/ownertest"
	"github.com/stopbank/stopbank/lease/leasekafka"
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
	line.Slow(4 << 20)
	cfg := k.config()
	cfg.Session = 2 * time.Second // an answer has a quarter of it, and what the broker may wait
	cfg.Options = append(cfg.Options, kgo.Dialer(line.DialContext))
	group := must(leasekafka.OpenGroup(t.Context(), cfg))(t)
	nothing := func() {}
	if taken := ownertest.Handles(t, group, partitions, nothing, nothing); taken != partitions {
		t.Errorf("L20: %d partitions were taken %d times", partitions, taken)
	}
}
