// SPDX-License-Identifier: Apache-2.0

// Outcomes: what a limiter records of a decision about a task, and how its explanation is made of that.

package limiter

import (
	"context"
	"strings"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/fair"
	"github.com/stopbank/stopbank/warden/internal/queue"
)

// outcome records a decision about a task, with the limiter's state at that time: a grant, or the reason of a rejection.
type outcome struct { // 72 bytes: eight more cost each start 9 ns
	rule       *rule
	waited     time.Duration
	maxWait    time.Duration
	inFlight   int32
	queued     int32
	oldestHeld time.Duration
	cause      error // of a rejection: the context's error, if that is why
	grant      queue.Result
	trial      bool // what its kind needs does not count
	reason     queue.Result
	would      queue.Result // of a grant in a dry run: why Enforce would have rejected it
	cut        decision.Priority
}

// explain builds the explanation of an outcome, without At.
func (l *Limiter) explain(t Task, d deadline, o outcome) decision.Explanation {
	e := decision.Explanation{
		Limiter: l.name, Outcome: decision.Started, Grant: o.grant.Grant(), Reason: o.reason.Reason(), Task: t, Waited: o.waited,
		Deadline: d.at, DeadlineFrom: d.source(), MaxWait: o.maxWait, Decision: o.rule.decision, DecisionState: o.rule.decisionState,
		InFlight: int(o.inFlight), QueueLen: int(o.queued), OldestHeld: o.oldestHeld, ShedBelow: o.cut, WouldReject: o.would.Reason(),
		Mode: o.rule.mode,
	}
	if len(t.Tenant) > fair.LongestKey { // explanations are kept
		e.Task.Tenant = strings.Clone(t.Tenant[:fair.LongestKey])
	}
	switch {
	case o.reason == queue.Gone:
		e.Outcome, e.Grant = decision.OutcomeCanceled, ""
	case o.reason != 0:
		e.Outcome, e.Grant = decision.Rejected, ""
	}
	if why := o.reason + o.would; why != 0 && (o.waited > 0 || why < queue.Late) { // one of them is 0
		e.Bound, e.Limit = decision.BoundTarget, e.Decision.TargetConcurrency
	}
	return e
}

// rejection turns an outcome into the task's error, records it and notifies the observer. It makes one allocation.
func (l *Limiter) rejection(t Task, share decision.TenantShare, d deadline, o outcome) *decision.Rejection {
	r := &decision.Rejection{Explanation: l.explain(t, d, o), RetryAfter: o.retryAfter(share), Cause: o.cause}
	r.Tenant = share
	if r.At = time.Now(); o.reason == queue.Late { // which its context may not know yet
		r.Cause = context.DeadlineExceeded
	}
	l.rejections.Add(r.Explanation)
	if l.observer != nil {
		l.observe(Event{Explanation: r.Explanation})
	}
	return r
}

// retryAfter estimates when a slot comes free for one more task behind the queue, or behind that of its tenant, if every task takes the
// expected time.
func (o *outcome) retryAfter(share decision.TenantShare) time.Duration {
	d := o.rule.decision
	if o.reason == queue.Late || o.reason == queue.Gone || o.reason == queue.Closed || d.TargetConcurrency == 0 {
		return 0
	}
	rounds := 1 + int(o.queued)/d.TargetConcurrency
	if share.Share > 0 {
		rounds = 1 + int(float64(share.QueueLen)/max(1, share.Share))
	}
	return time.Duration(min(float64(d.Expected)*float64(rounds), float64(time.Minute)))
}
