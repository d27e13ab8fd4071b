// SPDX-License-Identifier: Apache-2.0

package leasekafka_test

// In a stall the group is stable and the heartbeats flow, but no member works on a partition. The tests cover three stalls that
// parallel-consumer had after rebalances (its issue 857), and those of the client. They need a broker with scripted answers.

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/leasekafka"
)

const (
	offsetCommit = 8
	offsetFetch  = 9
	joinGroup    = 11
)

// answer refuses a commit.
func answer(commit *kmsg.OffsetCommitRequest, why *kerr.Error) kmsg.Response {
	resp := commit.ResponseKind().(*kmsg.OffsetCommitResponse)
	for _, rt := range commit.Topics {
		topic := kmsg.NewOffsetCommitResponseTopic()
		topic.Topic, topic.TopicID = rt.Topic, rt.TopicID
		for _, rp := range rt.Partitions {
			part := kmsg.NewOffsetCommitResponseTopicPartition()
			part.Partition, part.ErrorCode = rp.Partition, why.Code
			topic.Partitions = append(topic.Partitions, part)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return resp
}

// The first: a commit during a rebalance is rejected, and the caller waits for ever.
func TestStall857CommitDuringRebalance(t *testing.T) {
	virtually(t, func(t *testing.T) {
		const records, partitions = 400, 2
		k := fake(t, partitions)
		k.produce(t, of(records, 20, partitions)...)
		var refused atomic.Int64
		k.ControlKey(offsetCommit, func(req kmsg.Request) (kmsg.Response, error, bool) {
			k.KeepControl()
			if refused.Add(1) > 10 {
				return nil, nil, false
			}
			return answer(req.(*kmsg.OffsetCommitRequest), kerr.RebalanceInProgress), nil, true
		})
		g := newRegister()
		m := run(t, k.config(), dispatch.Config{Handler: g.handler(time.Millisecond)})
		until(t, "all of them", func() bool { return g.count() >= records })
		m.stop(t)
		if refused.Load() <= 10 {
			t.Errorf("%d commits, all refused", refused.Load())
		}
		k.check(t, g, records, partitions)
	})
}

// The second: a draining member takes part in no rebalance, and keeps its partitions until the group removes it.
func TestStall857DrainingMemberTakesPart(t *testing.T) {
	virtually(t, func(t *testing.T) {
		const records, partitions = 40, 2
		k := fake(t, partitions)
		k.produce(t, of(records, 10, partitions)...)
		g := newRegister()
		stuck, release := make(chan struct{}), make(chan struct{})
		var first atomic.Bool
		cfg := k.config()
		cfg.Session, cfg.DrainTimeout = 500*time.Millisecond, 20*time.Second
		a := run(t, cfg, dispatch.Config{Handler: func(_ context.Context, job dispatch.Job) error {
			if !first.Swap(true) {
				close(stuck)
				<-release
			}
			g.write(job, 0)
			return nil
		}})
		<-stuck
		until(t, "all but the key that is stuck", func() bool { return g.count() >= records-records/10 })
		a.cancel()

		// For three sessions it drains, and is no less a member: one that joins meanwhile becomes its equal.
		b := run(t, cfg, dispatch.Config{Handler: g.handler(0)})
		var ids []string
		until(t, "both to be members", func() bool {
			ids, _ = k.members(t)
			return len(ids) == 2
		})
		time.Sleep(3 * cfg.Session) // what a zombie is thrown out after
		if now, _ := k.members(t); len(now) != 2 || !slices.Contains(now, ids[0]) || !slices.Contains(now, ids[1]) {
			t.Errorf("members %v, were %v", now, ids)
		}
		close(release)
		if err := <-a.result; err != nil {
			t.Errorf("the member that drained: %v", err)
		}
		until(t, "all of them", func() bool { return g.count() >= records })
		b.stop(t)
		k.check(t, g, records, partitions)
	})
}

// The third: the rebalance waits for a commit, and the commit for the rebalance.
func TestStall857RevokeWhileCommitting(t *testing.T) {
	virtually(t, func(t *testing.T) {
		const records, partitions = 400, 2
		k := fake(t, partitions)
		k.produce(t, of(records/2, 20, partitions)...)
		g := newRegister()
		work := func() dispatch.Config {
			return dispatch.Config{Handler: g.handler(time.Millisecond)}
		}
		hang := make(chan struct{})
		var hanging atomic.Int64
		k.ControlKey(offsetCommit, func(kmsg.Request) (kmsg.Response, error, bool) {
			k.KeepControl()
			hanging.Add(1)
			k.SleepControl(func() { <-hang })
			return nil, nil, false
		})
		a := run(t, k.config(), work())
		until(t, "a commit that is not answered", func() bool { return hanging.Load() > 0 })
		b := run(t, k.config(), work())
		until(t, "a rebalance", func() bool {
			ids, _ := k.members(t)
			return len(ids) == 2
		})
		time.Sleep(500 * time.Millisecond) // it is under way, and a partition is asked back
		close(hang)
		k.produce(t, of(records/2, 20, partitions)...)
		until(t, "all of them", func() bool { return g.count() >= records })
		until(t, "both at work", func() bool {
			ids, settled := k.members(t)
			return settled && len(ids) == 2
		})
		a.stop(t)
		b.stop(t)
		k.check(t, g, records, partitions)
	})
}

// The client's own: the group forgets a member that is about to join again. It gets a new ID and its partitions, and no callback
// says that it had lost them, although another member could have owned them in between.
func TestForgottenWhileJoining(t *testing.T) {
	virtually(t, func(t *testing.T) {
		const partitions = 2
		k := fake(t, partitions)
		k.produce(t, of(40, 10, partitions)...)
		a := hold(t, k.config())
		old := []held{<-a.taken, <-a.taken}
		for _, p := range old {
			noError(t, p.Source.Commit(t.Context(), 5))
		}
		ids, _ := k.members(t)
		forgotten := make(chan struct{})
		k.ControlKey(joinGroup, func(req kmsg.Request) (kmsg.Response, error, bool) {
			join := req.(*kmsg.JoinGroupRequest)
			if join.MemberID != ids[0] {
				return nil, nil, false
			}
			resp := join.ResponseKind().(*kmsg.JoinGroupResponse)
			resp.ErrorCode = kerr.UnknownMemberID.Code
			close(forgotten)
			return resp, nil, true
		})
		b := hold(t, k.config())
		<-forgotten
		noError(t, k.forget(t.Context(), ids[0]))
		for _, p := range old {
			<-p.ctx.Done() // of both, before the work of any has returned
			if cause := context.Cause(p.ctx); !errors.Is(cause, leasekafka.ErrForgotten) {
				t.Errorf("%s ended for %v", p.Name, cause)
			}
			if err := p.Source.Commit(t.Context(), 6); !errors.Is(err, dispatch.ErrLost) {
				t.Errorf("%s: a commit under the old name: %v", p.Name, err)
			}
		}
		for _, p := range old {
			close(p.over)
		}
		names := map[string]bool{}
		for len(names) < partitions {
			var p held
			select {
			case p = <-a.taken:
			case p = <-b.taken:
			case <-time.After(5 * time.Minute):
				t.Fatalf("of %d partitions %v are worked on", partitions, names)
			}
			go func() {
				<-p.ctx.Done()
				close(p.over)
			}()
			floor, err := p.Source.Committed(t.Context())
			if err != nil { // given on at once
				continue
			}
			if floor != 5 {
				t.Errorf("%s begins at %d", p.Name, floor)
			}
			if got := read(t, p.Source, floor, 15); got[0].Offset != 5 {
				t.Errorf("%s: read from %d", p.Name, got[0].Offset)
			}
			names[p.Name] = true
		}
		a.cancel()
		b.cancel()
		a.end(t)
		b.end(t)
	})
}

// The broker does not say, once, what is committed of a partition: the client would pass it over for as long as the member has
// it.
func TestStallOffsetNotTold(t *testing.T) {
	for name, config := range map[string]func(*kafka) leasekafka.GroupConfig{
		"durable": (*kafka).config, "in memory": func(k *kafka) leasekafka.GroupConfig { return k.inMemory(3) },
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				const records, partitions = 40, 2
				k := fake(t, partitions)
				k.produce(t, of(records, 10, partitions)...)
				k.ControlKey(offsetFetch, func(req kmsg.Request) (kmsg.Response, error, bool) {
					resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
					for _, asked := range req.(*kmsg.OffsetFetchRequest).Groups {
						group := kmsg.NewOffsetFetchResponseGroup()
						group.Group = asked.Group
						for _, at := range asked.Topics {
							topic := kmsg.NewOffsetFetchResponseGroupTopic()
							topic.Topic, topic.TopicID = at.Topic, at.TopicID
							for _, number := range at.Partitions {
								part := kmsg.NewOffsetFetchResponseGroupTopicPartition()
								part.Partition, part.Offset = number, -1
								if number == 1 {
									part.ErrorCode = kerr.UnknownServerError.Code
								}
								topic.Partitions = append(topic.Partitions, part)
							}
							group.Topics = append(group.Topics, topic)
						}
						resp.Groups = append(resp.Groups, group)
					}
					return resp, nil, true
				})
				g := newRegister()
				m := run(t, config(k), dispatch.Config{Handler: g.handler(time.Millisecond)})
				until(t, "all of them", func() bool { return g.count() >= records })
				m.stop(t)
				k.check(t, g, records, partitions)
			})
		})
	}
}

// A broker says of a member's commit that it does not know the member, and nothing of that to its client: the work ends, and
// begins again within a session.
func TestStallCommitOfAKnownMember(t *testing.T) {
	virtually(t, func(t *testing.T) {
		const records, partitions = 400, 2
		k := fake(t, partitions)
		k.produce(t, of(records, 20, partitions)...)
		k.ControlKey(offsetCommit, func(req kmsg.Request) (kmsg.Response, error, bool) {
			return answer(req.(*kmsg.OffsetCommitRequest), kerr.UnknownMemberID), nil, true
		})
		g := newRegister()
		var got reports
		cfg := k.config()
		cfg.OnError = got.add
		m := run(t, cfg, dispatch.Config{MaxInFlight: 1, Handler: g.handler(10 * time.Millisecond)})
		until(t, "all of them", func() bool { return g.count() >= records })
		m.stop(t)
		k.check(t, g, records, partitions)
		if n, err := got.last(); n != 1 || !strings.Contains(err.Error(), k.topic) {
			t.Errorf("%d reports: %v", n, err)
		}
	})
}
