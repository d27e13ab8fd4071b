// SPDX-License-Identifier: Apache-2.0

// Every call of a partition's source and ledger as a step at which a member can be stopped.

package ownertest

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/internal/model"
)

// takingOver are the steps of taking a partition over. A torture has to stop a member at each of them.
func takingOver() []string {
	return append([]string{"taking, before work"},
		around("taking", "Committed", "Held", "Commit", "Reclaim", "Ready", "Fetch")...)
}

// otherSteps are those of work and of giving a partition back.
func otherSteps() []string {
	return append(around("working", "TryAcquire", "Succeed", "Fetch", "Commit", "Compact"),
		around("leaving", "Succeed", "Commit", "Compact")...)
}

// around are the steps before and after these calls.
func around(phase string, calls ...string) (steps []string) {
	for _, c := range calls {
		steps = append(steps, phase+", before "+c, phase+", after "+c)
	}
	return steps
}

// stepping is a partition that a member has. at is called at each step, and may stop the member.
type stepping struct {
	model.Through
	dispatch.Source
	at            func(step string)
	reads, leaves atomic.Bool // it was asked for records; its owner was asked to end
}

func (s *stepping) has(source dispatch.Source, ledger lease.Ledger) {
	s.Source = source
	s.Through = model.Through{Ledger: ledger, Make: func(ctx context.Context, c model.Call) model.Reply {
		end := s.step(c.Name())
		defer end()
		return c.Do(ctx, ledger)
	}}
}

// step is the call of that name, and returns its end.
func (s *stepping) step(call string) (end func()) {
	phase := "working"
	switch {
	case s.leaves.Load():
		phase = "leaving"
	case !s.reads.Load():
		phase = "taking"
	}
	s.at(phase + ", before " + call)
	return func() { s.at(phase + ", after " + call) }
}

func (s *stepping) Committed(ctx context.Context) (int64, error) {
	end := s.step("Committed")
	defer end()
	return s.Source.Committed(ctx)
}

func (s *stepping) Fetch(ctx context.Context, from int64, limit int) ([]dispatch.Record, error) {
	end := s.step("Fetch")
	defer end()
	s.reads.Store(true)
	return s.Source.Fetch(ctx, from, limit)
}

func (s *stepping) Commit(ctx context.Context, floor int64) error {
	end := s.step("Commit")
	defer end()
	return s.Source.Commit(ctx, floor)
}

// End makes the partition dispatch.Ended if its source is.
func (s *stepping) End(ctx context.Context) (int64, error) {
	if source, ok := s.Source.(dispatch.Ended); ok {
		return source.End(ctx)
	}
	return 0, errors.ErrUnsupported
}

func (s *stepping) Ready(ctx context.Context) iter.Seq2[lease.Head, error] {
	return listed(s, "Ready", s.Ledger.Ready(ctx))
}

func (s *stepping) Held(ctx context.Context) iter.Seq2[lease.Lease, error] {
	return listed(s, "Held", s.Ledger.Held(ctx))
}

// listed is a step as long as the list is read.
func listed[T any](s *stepping, call string, list iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		end := s.step(call)
		defer end()
		list(yield)
	}
}

// at stops a member if the torture waits for one at this step, until it is woken, or kills it.
func (w *torture) at(h *hand, step string) {
	w.crew.Lock()
	if w.armed != step || h.silent || h.die {
		w.crew.Unlock()
		return
	}
	w.armed, w.halted = "", h
	w.faults.Add(1)
	if w.deadly {
		h.die = true
		w.crew.Unlock()
		h.kill()
		return
	}
	still := make(chan struct{})
	h.silent, h.still = true, still
	w.count(step)
	h.cut()
	w.crew.Unlock()
	<-still
}

// hears returns when a member may know what it did not hear while it was stopped: when it goes on, or a little later.
func (w *torture) hears(h *hand) {
	w.crew.Lock()
	still := h.still
	w.crew.Unlock()
	if still != nil {
		<-still
		time.Sleep(w.group.Lease / 8) // it begins where it was stopped, and that takes a moment
	}
}

// stop stops a member at a step while another one is silent, whose leases are left. It goes on while the rest of the group
// takes over what it had, or when they have. It reports whether the group came to rest.
func (w *torture) stop(step string) bool {
	for range 5 { // chance may keep everybody away from the step
		for len(w.there()) < 3 {
			w.join()
		}
		w.write(20, 3, saySlow)
		w.begins()
		w.arm(step, false)
		other := w.pick()
		if strings.HasPrefix(step, "leaving") {
			w.leave(other)
		} else {
			w.freeze(other)
		}
		w.write(5, 20)
		rested := w.rnd.IntN(2) == 0
		if rested {
			if !w.settle("stopped " + step) {
				return false
			}
		} else {
			w.pause(2*w.group.Lease, 3*w.group.Lease)
		}
		halted := w.disarm()
		for _, h := range []*hand{halted, other} {
			if h != nil {
				w.wake(h)
			}
		}
		if !w.settle("stopped " + step + ", and going on") {
			return false
		}
		if halted != nil {
			break
		}
	}
	return true
}

func (w *torture) arm(step string, deadly bool) {
	w.crew.Lock()
	defer w.crew.Unlock()
	w.armed, w.deadly, w.halted = step, deadly, nil
}

// disarm returns the member that was stopped, or nil.
func (w *torture) disarm() *hand {
	w.crew.Lock()
	defer w.crew.Unlock()
	w.armed = ""
	return w.halted
}

// rouse lets a member go on, dead or not.
func (w *torture) rouse(h *hand) {
	w.crew.Lock()
	defer w.crew.Unlock()
	h.mend()
	h.goOnLocked()
}
