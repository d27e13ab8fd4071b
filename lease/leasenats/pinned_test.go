// SPDX-License-Identifier: Apache-2.0

package leasenats_test

// Pinned consumers, with which a server of 2.11 or later sends all messages of a consumer to one of its clients, cannot elect the
// owners of a Group: the test shows why.

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

func TestPinnedConsumersDoNotShare(t *testing.T) {
	dir := t.TempDir()
	server := single(t, dir, 0)
	at := port(t, server)
	nc := connect(t, server.ClientURL())
	js := partitioned(t, nc)
	var consumers []jetstream.Consumer
	for p := range parts {
		c := must(js.CreateConsumer(ctx, "ORDERS", jetstream.ConsumerConfig{
			Durable: fmt.Sprint("p", p), FilterSubject: fmt.Sprintf("orders.%d.>", p), AckPolicy: jetstream.AckExplicitPolicy,
			PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{"owners"}, PinnedTTL: time.Minute,
		}))(t)
		consumers = append(consumers, c)
	}
	pins := func() (pins [parts]string) {
		t.Helper()
		for p, c := range consumers {
			info := must(c.Info(ctx))(t)
			pins[p] = info.PriorityGroups[0].PinnedClientID
		}
		return pins
	}
	got := make(chan string, 1000)
	member := func(name string) {
		js := must(jetstream.New(connect(t, nc.ConnectedUrl())))(t)
		for p := range parts {
			c := must(js.Consumer(ctx, "ORDERS", fmt.Sprint("p", p)))(t)
			messages := must(c.Messages(jetstream.PullPriorityGroup("owners"), jetstream.PullMaxMessages(1),
				jetstream.PullExpiry(30*time.Second)))(t)
			t.Cleanup(messages.Stop)
			go func() {
				for {
					m, err := messages.Next()
					if err != nil {
						return
					}
					_ = m.Ack()
					got <- name
				}
			}()
		}
		eventually(t, name+" waits", func() bool {
			for _, c := range consumers {
				if info, err := c.Info(ctx); err != nil || info.NumWaiting == 0 {
					return false
				}
			}
			return true
		})
	}
	round := func() (by map[string]int) {
		t.Helper()
		by = map[string]int{}
		for i := range keys {
			must(js.Publish(ctx, fmt.Sprint("orders.customer-", i), nil))(t)
		}
		for range keys {
			by[<-got]++
		}
		return by
	}

	// A partition without messages never has an owner: only a message pins a client.
	member("first")
	if pins() != [parts]string{} {
		t.Errorf("pinned without a message: %v", pins())
	}
	// The first client is pinned to all partitions. A second client changes nothing: partitions are not shared out.
	if by := round(); by["first"] != keys {
		t.Errorf("one member: %v", by)
	}
	before := pins()
	member("second")
	if by := round(); by["first"] != keys || pins() != before {
		t.Errorf("two members: %v", by)
	}
	// Any client can unpin without naming the pinned one: a late request unpins the next owner.
	stranger := must(jetstream.New(connect(t, nc.ConnectedUrl())))(t)
	c, err := stranger.Stream(ctx, "ORDERS")
	if err != nil {
		t.Fatal(err)
	}
	noError(t, c.UnpinConsumer(ctx, "p0", "owners"))
	if after := pins(); after[0] == before[0] {
		t.Errorf("the pin stayed: %v", after)
	}
	// And a restart forgets all pins.
	stop(server)
	single(t, dir, at)
	eventually(t, "the server is back", func() bool { _, err := consumers[0].Info(ctx); return err == nil })
	if pins() != [parts]string{} {
		t.Errorf("pinned after a restart: %v", pins())
	}
}
