package leasekafka_test

// This file is a defect of kfake: a member whose connection ends while its JoinGroup waits stays in the group for ever, with partitions, where
// Kafka throws it out after a session. A test shows it, and a torture takes such members out, and no others.

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	heartbeat = 12
	syncGroup = 14
)

// removeGhosts takes out of the group, until the test ends, each member that Kafka would have thrown out: its last JoinGroup was answered, and for two
// sessions the broker has received nothing from it. One of ours that is at fault, but alive, is heard of.
func (k *kafka) removeGhosts(t testing.TB, session time.Duration) {
	var mu sync.Mutex // guards heard
	heard := map[string]time.Time{}
	hear := func(member string) {
		mu.Lock()
		defer mu.Unlock()
		heard[member] = time.Now()
	}
	for _, key := range []int16{joinGroup, heartbeat, syncGroup} {
		k.ControlKey(key, func(req kmsg.Request) (kmsg.Response, error, bool) {
			k.KeepControl()
			switch req := req.(type) {
			case *kmsg.JoinGroupRequest:
				hear(req.MemberID)
			case *kmsg.HeartbeatRequest:
				hear(req.MemberID)
			case *kmsg.SyncGroupRequest:
				hear(req.MemberID)
			}
			return nil, nil, false
		})
	}
	var answered time.Time // every JoinGroup before it
	ghost := func(member string) bool {
		mu.Lock()
		defer mu.Unlock()
		last, known := heard[member]
		return known && time.Since(last) > 2*session && last.Before(answered)
	}
	ctx, end := context.WithCancel(context.Background())
	over := make(chan struct{})
	t.Cleanup(func() {
		end()
		<-over
	})
	go func() {
		defer close(over)
		removed := 0
		for ctx.Err() == nil {
			asked := time.Now()
			group, err := k.describe(ctx)
			if err == nil && group.State != "PreparingRebalance" {
				answered = asked
			}
			for _, m := range group.Members { // who waits for the leader's SyncGroup sends nothing
				if group.State != "CompletingRebalance" && ghost(m.MemberID) && k.forget(ctx, m.MemberID) == nil {
					removed++
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(session / 4):
			}
		}
		if removed > 0 {
			t.Logf("kfake kept %d members that it had not heard of for two sessions", removed)
		}
	}()
}

// When this fails, kfake is mended, and this file can go: its group.reply begins a member's session only if the reply could be sent, and which of
// the two happens is drawn when the connection has just ended.
func TestKfakeKeepsWhoDiedWhileJoining(t *testing.T) {
	kept := 0
	for range 20 {
		synctest.Test(t, func(t *testing.T) { kept += fake(t, 4).diesWhileJoining(t) })
	}
	if kept == 0 {
		t.Error("kfake threw out every member that had died")
	}
}

// diesWhileJoining has one member live, and another end while its JoinGroup waits. It returns 1 if that is a member twenty sessions later.
func (k *kafka) diesWhileJoining(t *testing.T) int {
	const session = 500 * time.Millisecond
	request := func(c *kgo.Client, req kmsg.Request) kmsg.Response {
		resp, err := c.Request(t.Context(), req)
		if err != nil {
			return req.ResponseKind() // the client was closed
		}
		return resp
	}
	join := func(c *kgo.Client, id string) *kmsg.JoinGroupResponse {
		req := kmsg.NewPtrJoinGroupRequest()
		req.Group, req.MemberID, req.ProtocolType = k.topic, id, "consumer"
		req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = int32(session.Milliseconds()), int32(5*session.Milliseconds())
		req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "any"}}
		return request(c, req).(*kmsg.JoinGroupResponse)
	}
	leads := func(c *kgo.Client, id string) *kmsg.JoinGroupResponse {
		joined := join(c, id)
		req := kmsg.NewPtrSyncGroupRequest()
		req.Group, req.MemberID, req.Generation = k.topic, id, joined.Generation
		for _, m := range joined.Members {
			req.GroupAssignment = append(req.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: m.MemberID, MemberAssignment: []byte("a part")})
		}
		request(c, req)
		return joined
	}
	client := func() *kgo.Client {
		c, err := kgo.NewClient(kgo.SeedBrokers(k.brokers...), k.dialer())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	lives, dies := client(), client()
	id, ghost := join(lives, "").MemberID, join(dies, "").MemberID
	leads(lives, id)
	over := make(chan struct{})
	go func() {
		defer close(over)
		join(dies, ghost)
	}()
	time.Sleep(session / 2)
	dies.Close()
	<-over
	generation := leads(lives, id).Generation
	for range 100 {
		time.Sleep(session / 5)
		req := kmsg.NewPtrHeartbeatRequest()
		req.Group, req.MemberID, req.Generation = k.topic, id, generation
		if request(lives, req).(*kmsg.HeartbeatResponse).ErrorCode != 0 {
			return 0 // the other one is thrown out, as it should be
		}
	}
	if ids, _ := k.members(t); len(ids) != 2 || !slices.Contains(ids, ghost) {
		return 0
	}
	return 1
}
