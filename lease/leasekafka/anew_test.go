// SPDX-License-Identifier: Apache-2.0

package leasekafka_test

// A topic is deleted and made anew, mirrored, or ends below the group's offset (D13).

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/internal/adopt"
	"github.com/stopbank/stopbank/lease/internal/testkit/ownertest"
	"github.com/stopbank/stopbank/lease/leasekafka"
)

func TestTopicMadeAnew(t *testing.T) {
	for name, open := range map[string]func(t testing.TB) ownertest.Remade{
		"Durable":            func(t testing.TB) ownertest.Remade { return remade(t, false, false) },
		"DurableAndForgets":  func(t testing.TB) ownertest.Remade { return remade(t, false, true) },
		"InMemory":           func(t testing.TB) ownertest.Remade { return remade(t, true, false) },
		"InMemoryAndForgets": func(t testing.TB) ownertest.Remade { return remade(t, true, true) },
	} {
		t.Run(name, func(t *testing.T) { ownertest.MadeAnew(t, virtually, open) })
	}
}

// remade is a group on a topic of its own. The broker forgets the group's offsets with the topic, or does not, as the fake one.
func remade(t testing.TB, inMemory, forgets bool) ownertest.Remade {
	k := start(t, 1)
	cfg := k.config()
	if inMemory {
		cfg.OpenLedger, cfg.Ledger = nil, lease.Config{MaxRetries: 100}
	}
	return ownertest.Remade{
		Join: func() dispatch.Ownership {
			group := must(leasekafka.OpenGroup(t.Context(), cfg))(t)
			return group
		},
		Append: func(domain string, payload []byte) {
			k.produceTo(t, &kgo.Record{Key: []byte(domain), Value: payload})
		},
		Remake: func() {
			k.remake(t)
			if forgets {
				k.forgetOffsets(t)
			}
		},
		AtRest:  inMemory && !forgets,
		Forgets: inMemory && forgets,
		Adopt: func(ctx context.Context) error {
			all, err := leasekafka.Bindings(ctx, k.admin, k.topic)
			if err == nil && !inMemory {
				all, err = adopt.Ledgers(ctx, func(yield func(string, durable.Store) bool) { yield("0", k.store(k.topic+"/0")) })
			}
			if err != nil {
				return err
			}
			if len(all) != 1 || all[0].Of == all[0].Is || all[0].Bars != nil {
				return fmt.Errorf("found: %+v", all)
			}
			return all[0].Adopt(ctx)
		},
	}
}

// forgetOffsets deletes the group, which its members join anew.
func (k *kafka) forgetOffsets(t testing.TB) {
	t.Helper()
	for {
		for _, m := range must(k.describe(t.Context()))(t).Members {
			noError(t, k.forget(t.Context(), m.MemberID))
		}
		req := kmsg.NewPtrDeleteGroupsRequest()
		req.Groups = []string{k.topic}
		resp := must(req.RequestWith(t.Context(), k.admin))(t)
		if resp.Groups[0].ErrorCode != kerr.NonEmptyGroup.Code { // a member was faster
			return
		}
	}
}

// told is an observer.
type told func(dispatch.Event)

func (f told) Observe(e dispatch.Event) { f(e) }

// produceTo produces with a client that is as old as the topic: others stay with a topic that was deleted.
func (k *kafka) produceTo(t testing.TB, r *kgo.Record) {
	t.Helper()
	if k.fresh == nil {
		k.fresh = must(kgo.NewClient(kgo.SeedBrokers(k.brokers...), k.dialer(), kgo.DefaultProduceTopic(k.topic)))(t)
		t.Cleanup(k.fresh.Close)
	}
	noError(t, k.fresh.ProduceSync(t.Context(), r).FirstErr())
}

// remake deletes the topic, and creates one of the same name.
func (k *kafka) remake(t testing.TB) {
	t.Helper()
	k.remove(t)
	var err error
	for {
		if err = k.create(t); !errors.Is(err, kerr.TopicAlreadyExists) { // still being deleted
			break
		}
		time.Sleep(50 * time.Millisecond) // a broker tells nobody
	}
	if err != nil {
		t.Fatal(err)
	}
}

// remove deletes the topic.
func (k *kafka) remove(t testing.TB) {
	t.Helper()
	req := kmsg.NewPtrDeleteTopicsRequest()
	topic := kmsg.NewDeleteTopicsRequestTopic()
	topic.Topic = &k.topic
	req.Topics, req.TopicNames, req.TimeoutMillis = append(req.Topics, topic), []string{k.topic}, 10_000
	resp, err := req.RequestWith(t.Context(), k.admin)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A topic is made anew under two members. They read it, also when a third one has joined, and has left. (A member that joins while
// the topic is gone may find that nobody reads the new one before the next rebalance.)
func TestTopicMadeAnewUnderMembers(t *testing.T) {
	virtually(t, func(t *testing.T) {
		k := start(t, 4)
		var done atomic.Int64
		join := func() *running {
			return run(t, k.inMemory(3), dispatch.Config{Handler: func(context.Context, dispatch.Job) error { done.Add(1); return nil }})
		}
		two := []*running{join(), join()}
		k.produce(t, of(40, 20, 4)...)
		until(t, "the former topic is done", func() bool { return done.Load() >= 40 })
		k.remove(t)
		time.Sleep(2 * time.Second) // they look for the topic
		noError(t, k.create(t))
		k.forgetOffsets(t)
		reads := func() {
			done.Store(0)
			for i := range 40 {
				k.produceTo(t, &kgo.Record{Key: fmt.Append(nil, i)})
			}
			until(t, "D13: the new topic is done", func() bool { return done.Load() >= 40 })
		}
		reads()
		third := join()
		reads()
		third.stop(t)
		reads()
		for _, m := range two {
			m.stop(t)
		}
	})
}

// A topic is deleted for good: whoever runs the member hears of it, at once and then once a minute.
func TestATopicThatIsGoneIsTold(t *testing.T) {
	virtually(t, func(t *testing.T) {
		k := fake(t, 1)
		k.produce(t, of(50, 5, 1)...)
		var told atomic.Int64
		cfg := k.config()
		cfg.OnError = func(err error) {
			if errors.Is(err, kerr.UnknownTopicID) || errors.Is(err, kerr.UnknownTopicOrPartition) {
				told.Add(1)
			}
		}
		m := run(t, cfg, dispatch.Config{Handler: func(context.Context, dispatch.Job) error { return nil }})
		until(t, "all is committed", func() bool { return k.committed(t, 1)[0] == 50 })
		k.remove(t)
		time.Sleep(150 * time.Second)
		if n := told.Load(); n != 3 {
			t.Errorf("D12: told %d times in 150 s that the topic is gone", n)
		}
		m.cancel()
		<-m.result
	})
}

// A group's offset is beyond the end of the log: what comes is told, and not dropped as known.
func TestOffsetBeyondTheEnd(t *testing.T) {
	virtually(t, func(t *testing.T) {
		k := start(t, 1)
		k.produce(t, of(10, 5, 1)...)
		k.commit(t, 60, "")
		var done, rewound atomic.Int64
		m := run(t, k.config(), dispatch.Config{
			Handler: func(context.Context, dispatch.Job) error { done.Add(1); return nil },
			Observer: told(func(e dispatch.Event) {
				if e.Kind == dispatch.Stalled && e.Reason == "rewound" && errors.Is(e.Err, dispatch.ErrRewound) {
					rewound.Add(1)
				}
			}),
		})
		until(t, "D13: the log ends below the offset, and is told", func() bool { return rewound.Load() > 0 })
		k.produce(t, of(70, 5, 1)...)
		until(t, "D13: it is told again", func() bool { return rewound.Load() > 2 })
		if n := done.Load(); n > 0 {
			t.Errorf("D13: %d of 80 records are handled, and the others passed over", n)
		}
		m.cancel()
		<-m.result
	})
}

// The log was cut off below the offset by an unclean election while nobody worked, and written on beyond it: the broker tells by the
// leader's epoch, which is committed with the offset.
func TestLogCutOff(t *testing.T) {
	virtually(t, func(t *testing.T) {
		k := fake(t, 1)
		k.produce(t, of(40, 5, 1)...)
		var done, rewound atomic.Int64
		with := dispatch.Config{
			Handler: func(context.Context, dispatch.Job) error { done.Add(1); return nil },
			Observer: told(func(e dispatch.Event) {
				if e.Kind == dispatch.Stalled && e.Reason == "rewound" {
					rewound.Add(1)
				}
			}),
		}
		m := run(t, k.config(), with)
		until(t, "all is committed", func() bool { return k.committed(t, 1)[0] == 40 })
		m.stop(t)
		k.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(req kmsg.Request) (kmsg.Response, error, bool) {
			k.KeepControl()
			resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
			part := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			part.LeaderEpoch, part.EndOffset = 0, 30
			topic := kmsg.NewOffsetForLeaderEpochResponseTopic()
			topic.Topic, topic.Partitions = k.topic, []kmsg.OffsetForLeaderEpochResponseTopicPartition{part}
			resp.Topics = append(resp.Topics, topic)
			return resp, nil, true
		})
		k.produce(t, of(40, 5, 1)...)
		m = run(t, k.config(), with)
		until(t, "D13: the log that was cut off is told", func() bool { return rewound.Load() > 0 })
		if n := done.Load(); n != 40 {
			t.Errorf("D13: %d records are handled, want the 40 before the log was cut off", n)
		}
		m.cancel()
		<-m.result
	})
}
