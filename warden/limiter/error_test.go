// SPDX-License-Identifier: Apache-2.0

// What the error of a task says that may not wait.

package limiter

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stopbank/stopbank/warden/decision"
)

// Where nobody may wait, no queue has overflowed, and the words say so.
func TestWhoMayNotWaitIsToldSo(t *testing.T) {
	l := must(New(Config{Name: "api", Initial: decision.ControlDecision{Seq: 1, TargetConcurrency: 1}}))(t)
	p := must(l.TryAcquire(Task{}))(t)
	defer p.Release()
	_, full := l.Acquire(t.Context(), Task{})
	_, busy := l.TryAcquire(Task{})
	for reason, err := range map[decision.RejectionReason]error{decision.QueueOverflow: full, decision.NoSlot: busy} {
		r := wantReason(t, err, reason)
		if r.Error() != fmt.Sprintf(`limiter: "api": rejected: %s (target reached, may not wait)`, reason) ||
			!strings.Contains(r.String(), "concurrency limit 1 reached, may not wait; decision 1") {
			t.Errorf("%v: %v", err, r)
		}
	}
}
