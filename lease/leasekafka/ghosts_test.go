// SPDX-License-Identifier: Apache-2.0

package leasekafka_test

// kfake has two defects. A member whose connection ends while its JoinGroup waits stays in the group for ever, with partitions,
// where Kafka removes it after a session. One that leaves in the moment in which its session ends is subtracted twice, and from
// then on the group rejects everybody. Tests show the defects; the torture removes such members, and no others, and lets late
// leavers time out.

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	heartbeat  = 12
	leaveGroup = 13
	syncGroup  = 14
)

// removeGhosts removes from the group, until the test ends, each member that has sent nothing for two sessions and whose client
// has ended or has another member ID by now. It returns a function to be called for each client that has ended. Members of
// running clients stay, so that their faults are noticed.
func (k *kafka) removeGhosts(t testing.TB, session time.Duration) (ended func(client string)) {
	var mu sync.Mutex // guards both
	over, heard := map[string]bool{}, map[string]time.Time{}
	hear := func(member string) (kmsg.Response, error, bool) {
		k.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		heard[member] = time.Now()
		return nil, nil, false
	}
	k.ControlKey(joinGroup, func(req kmsg.Request) (kmsg.Response, error, bool) {
		return hear(req.(*kmsg.JoinGroupRequest).MemberID)
	})
	k.ControlKey(heartbeat, func(req kmsg.Request) (kmsg.Response, error, bool) {
		return hear(req.(*kmsg.HeartbeatRequest).MemberID)
	})
	k.ControlKey(syncGroup, func(req kmsg.Request) (kmsg.Response, error, bool) {
		return hear(req.(*kmsg.SyncGroupRequest).MemberID)
	})
	k.ControlKey(leaveGroup, func(req kmsg.Request) (kmsg.Response, error, bool) {
		k.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		leave := req.(*kmsg.LeaveGroupRequest)
		resp := leave.ResponseKind().(*kmsg.LeaveGroupResponse)
		for _, m := range leave.Members {
			silent := time.Since(heard[m.MemberID])
			resp.Members = append(resp.Members, kmsg.LeaveGroupResponseMember{MemberID: m.MemberID})
			if silent < session/2 || silent > 2*session {
				return nil, nil, false
			}
		}
		return resp, nil, true
	})
	ghosts := func(members []kmsg.DescribeGroupsResponseGroupMember) (names []string) {
		mu.Lock()
		defer mu.Unlock()
		last := map[string]string{} // name of each client
		for _, m := range members {
			if heard[m.MemberID].After(heard[last[m.ClientID]]) {
				last[m.ClientID] = m.MemberID
			}
		}
		for _, m := range members {
			if at, known := heard[m.MemberID]; known && time.Since(at) > 2*session &&
				(over[m.ClientID] || last[m.ClientID] != m.MemberID) {
				names = append(names, m.MemberID)
			}
		}
		return names
	}
	ctx, end := context.WithCancel(context.Background())
	done := make(chan struct{})
	t.Cleanup(func() {
		end()
		<-done
	})
	go func() {
		defer close(done)
		removed := 0
		for ctx.Err() == nil {
			if group, err := k.describe(ctx); err == nil {
				for _, name := range ghosts(group.Members) {
					if k.forget(ctx, name) == nil {
						removed++
					}
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(session / 4):
			}
		}
		if removed > 0 {
			t.Logf("kfake kept %d dead members", removed)
		}
	}()
	return func(client string) {
		mu.Lock()
		defer mu.Unlock()
		over[client] = true
	}
}

// When this fails, kfake has been fixed in that: its group.reply begins a member's session only if the reply could be sent, which
// is random when the connection has just ended. When both tests fail, this file can be deleted.
func TestKfakeKeepsWhoDiedWhileJoining(t *testing.T) {
	kept := 0
	for range 20 {
		synctest.Test(t, func(t *testing.T) { kept += fake(t, 4).diesWhileJoining(t) })
	}
	if kept == 0 {
		t.Error("kfake threw out every member that had died")
	}
}

// diesWhileJoining runs one member, and ends another while its JoinGroup waits. It returns 1 if the latter is still in the group
// twenty sessions later.
func (k *kafka) diesWhileJoining(t *testing.T) int {
	const session = 500 * time.Millisecond
	request := func(c *kgo.Client, req kmsg.Request) kmsg.Response { return requested(t, c, req) }
	join := func(c *kgo.Client, id string) *kmsg.JoinGroupResponse { return k.joins(t, c, id, session) }
	leads := func(c *kgo.Client, id string) *kmsg.JoinGroupResponse {
		joined := join(c, id)
		req := kmsg.NewPtrSyncGroupRequest()
		req.Group, req.MemberID, req.Generation = k.topic, id, joined.Generation
		for _, m := range joined.Members {
			req.GroupAssignment = append(req.GroupAssignment,
				kmsg.SyncGroupRequestGroupAssignment{MemberID: m.MemberID, MemberAssignment: []byte("a part")})
		}
		request(c, req)
		return joined
	}
	lives, dies := k.client(t), k.client(t)
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
			return 0 // the other one was removed, as it should be
		}
	}
	if ids, _ := k.members(t); len(ids) != 2 || !slices.Contains(ids, ghost) {
		return 0
	}
	return 1
}

// When this fails, kfake has been fixed in that: a timer of its group.updateHeartbeat that has fired removes a member again.
func TestKfakeSubtractsWhoLeavesTooLate(t *testing.T) {
	rejects := false
	for n := 0; n < 5000 && !rejects; n++ {
		synctest.Test(t, func(t *testing.T) {
			const session = 500 * time.Millisecond
			k := fake(t, 1)
			leave := kmsg.NewPtrLeaveGroupRequest()
			leave.Group = k.topic
			var all sync.WaitGroup
			for range 10 {
				m := kmsg.LeaveGroupRequestMember{MemberID: k.joins(t, k.admin, "", session).MemberID}
				leave.Members = append(leave.Members, m)
				all.Go(func() { k.joins(t, k.client(t), m.MemberID, session) })
			}
			all.Wait()
			time.Sleep(session)
			requested(t, k.admin, leave)
			again := k.joins(t, k.admin, "", session)
			rejects = again.ErrorCode == kerr.InconsistentGroupProtocol.Code
		})
	}
	if !rejects {
		t.Error("kfake never subtracted a member twice")
	}
}

func (k *kafka) joins(t *testing.T, c *kgo.Client, id string, session time.Duration) *kmsg.JoinGroupResponse {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.MemberID, req.ProtocolType = k.topic, id, "consumer"
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = int32(session.Milliseconds()), int32(5*session.Milliseconds())
	req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "any"}}
	return requested(t, c, req).(*kmsg.JoinGroupResponse)
}

func (k *kafka) client(t *testing.T) *kgo.Client {
	c, err := kgo.NewClient(kgo.SeedBrokers(k.brokers...), k.dialer())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func requested(t *testing.T, c *kgo.Client, req kmsg.Request) kmsg.Response {
	resp, err := c.Request(t.Context(), req)
	if err != nil {
		return req.ResponseKind() // the client was closed
	}
	return resp
}
