// SPDX-License-Identifier: Apache-2.0

package leasekafka_test

// kfake has two defects. A member whose connection ends while its JoinGroup waits stays in the group for ever, with partitions,
// where Kafka removes it after a session: its group.reply begins a session only if the reply could be sent. One that leaves in the
// moment in which its session ends is subtracted twice, and from then on the group rejects everybody: a timer of its
// group.updateHeartbeat that has fired removes a member again. The torture removes such members, and no others, and lets late leavers
// time out. Without that TestTortureOwners meets a group that comes to no rest within a minute of -torture.time; when it does not, this
// file can be deleted.

import (
	"context"
	"sync"
	"testing"
	"time"

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
