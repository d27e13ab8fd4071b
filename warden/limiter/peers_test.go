// SPDX-License-Identifier: Apache-2.0

// Bugs that others had, by the issue in which they were told, tried on the limiter.

package limiter

import (
	"context"
	"sync"
	"testing"

	"github.com/stopbank/stopbank/warden/decision"
)

// songzhibin97/gkit #72 and aviddiviner/gin-limit #1: a panic of the work kept its slot for ever.
func TestPeer_APanicKeepsItsSlot(t *testing.T) {
	l := mustNew(t, Config{Initial: fixed(1)})
	for range 3 {
		func() {
			defer func() { _ = recover() }()
			_, _ = Do(t.Context(), l, Task{}, func(context.Context) (int, error) { panic("on purpose") })
		}()
	}
	must(l.TryAcquire(Task{}))(t).Release()
	if s := l.Stats(); s.Executed != 4 || s.Failed != 3 || s.Running != 0 {
		t.Errorf("%+v", s)
	}
}

// olric-data/olric #199, elastic/beats #16397 and others: a release after a failed acquisition panics ("semaphore: released more
// than held"). songzhibin97/gkit #72: a second release made the number in flight negative. llm-d/llm-d-batch-gateway #206: a
// second release lost a slot for good.
func TestPeer_ReleasedMoreThanHeld(t *testing.T) {
	l := mustNew(t, Config{Initial: fixed(2)})
	first, second := must(l.TryAcquire(Task{}))(t), must(l.TryAcquire(Task{}))(t)
	none, err := l.TryAcquire(Task{})
	wantReason(t, err, decision.NoSlot)
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() { none.Release(); first.Release(); first.Abandon(); first.Fail() })
	}
	all.Wait()
	if s := l.Stats(); s.Running != 1 || s.Executed != 1 {
		t.Errorf("one of two is released, and %+v", s)
	}
	third := must(l.TryAcquire(Task{}))(t)
	_, err = l.TryAcquire(Task{})
	wantReason(t, err, decision.NoSlot)
	second.Release()
	third.Release()
}

// apache/pulsar-client-go #845: a release woke nobody, or somebody although no slot was free.
func TestPeer_AReleaseWakesNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, p := occupied(t, Config{MaxQueue: 3})
		q := newLine(t, l)
		q.join(named(1, decision.Normal))
		q.join(named(2, decision.Normal))
		q.wantOrder(p, "1", "2")
	})
}
