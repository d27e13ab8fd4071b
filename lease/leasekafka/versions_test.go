// SPDX-License-Identifier: Apache-2.0

package leasekafka_test

// Members of other programs are in the group: one that supports another balancer as well, and one that supports only another.

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/stopbank/stopbank/lease/leasekafka"
)

// other is a member of another program.
func (k *kafka) other(t *testing.T, balancers ...kgo.GroupBalancer) (holds func() []int32, leave func()) {
	t.Helper()
	var mu sync.Mutex
	var held []int32
	lose := func(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
		mu.Lock()
		defer mu.Unlock()
		held = slices.DeleteFunc(held, func(p int32) bool { return slices.Contains(lost[k.topic], p) })
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(k.brokers...), k.dialer(), kgo.ConsumerGroup(k.topic), kgo.ConsumeTopics(k.topic), kgo.Balancers(balancers...),
		kgo.DisableAutoCommit(),
		kgo.SessionTimeout(k.config().Session), kgo.HeartbeatInterval(k.config().Session/3),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, given map[string][]int32) {
			mu.Lock()
			defer mu.Unlock()
			held = append(held, given[k.topic]...)
		}),
		kgo.OnPartitionsRevoked(lose), kgo.OnPartitionsLost(lose))
	if err != nil {
		t.Fatal(err)
	}
	leave = sync.OnceFunc(client.Close)
	t.Cleanup(leave)
	return func() []int32 {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(held)
	}, leave
}

// Members that have one balancer in common, whatever others they support, form one group in which partitions move.
func TestMemberWithMoreBalancers(t *testing.T) {
	virtually(t, func(t *testing.T) {
		const partitions = 4
		k := start(t, partitions)
		holds, leave := k.other(t, kgo.RangeBalancer(), kgo.CooperativeStickyBalancer())
		until(t, "it has all", func() bool { return len(holds()) == partitions })
		h := hold(t, k.config())
		own := []held{<-h.taken, <-h.taken}
		until(t, "it has the other half", func() bool { return len(holds()) == partitions/2 })
		leave()
		own = append(own, <-h.taken, <-h.taken)
		h.cancel()
		for _, p := range own {
			close(p.over)
		}
		h.stop(t)
	})
}

// A member without a balancer in common with the group is rejected, and ends; the group goes on.
func TestMemberWithOtherBalancers(t *testing.T) {
	virtually(t, func(t *testing.T) {
		const partitions = 2
		k := start(t, partitions)
		holds, _ := k.other(t, kgo.RangeBalancer())
		until(t, "it has all", func() bool { return len(holds()) == partitions })
		group := must(leasekafka.OpenGroup(t.Context(), k.config()))(t)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if err := group.Hold(ctx, nothing); !errors.Is(err, kerr.InconsistentGroupProtocol) {
			t.Errorf("Hold: %v", err)
		}
		if n := len(holds()); n != partitions {
			t.Errorf("the other member has %d partitions", n)
		}
	})
}
