// SPDX-License-Identifier: Apache-2.0

package dispatch_test

// This file has partitions that are assigned and cannot be opened yet (D12): they say so, and work begins when they can; all in
// virtual time.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
)

// opening is a partition that can be opened from a moment on. Until then Open fails, or hangs.
type opening struct {
	dispatch.Partition
	from  time.Time
	hangs bool
	was   time.Time // when it was opened
	fails int
}

func (o *opening) open(ctx context.Context) (dispatch.Source, lease.Ledger, error) {
	wait := time.Until(o.from)
	switch {
	case ctx.Err() != nil:
		return nil, nil, ctx.Err()
	case wait > 0 && !o.hangs:
		o.fails++
		return nil, nil, errDead
	case wait > 0:
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
	o.was = time.Now()
	return o.Source, o.Ledger, nil
}

// The model is D12's sentence: each partition is stalled at each look, but the first, before it was opened, and at no other.
func TestPropertyUnopened(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const period = 10 * time.Second
		n := rapid.IntRange(1, 4).Draw(rt, "partitions")
		all := make([]*opening, n)
		for i := range all {
			all[i] = &opening{Partition: filled(t, fmt.Sprint("p", i), 3), hangs: rapid.Bool().Draw(rt, "hangs")}
		}
		after := rapid.SliceOfN(rapid.IntRange(0, 60), n, n).Draw(rt, "seconds")
		leave := rapid.IntRange(20, 80).Draw(rt, "leaves")
		synctest.Test(t, func(*testing.T) {
			began := time.Now()
			c := consume(t, dispatch.Config{AttemptTimeout: period})
			for i, o := range all {
				o.from = began.Add(time.Duration(after[i])*time.Second + time.Millisecond)
				c.give(dispatch.Partition{Name: o.Name, Open: o.open})
			}
			time.Sleep(time.Duration(leave)*time.Second + time.Second/2)
			for _, s := range c.Stats() {
				i := 0
				_, _ = fmt.Sscanf(s.Name, "p%d", &i)
				opened := !all[i].was.IsZero()
				if s.Held != opened || opened != (s.Stalled == "") && leave >= 21 {
					rt.Errorf("D12: opened %v: %+v", opened, s)
				}
			}
			if err := c.stop(); err != nil {
				rt.Errorf("D12: a partition that is not open keeps its member: %v", err)
			}
			for i, o := range all {
				until, done := began.Add(time.Duration(leave)*time.Second), int64(0)
				if !o.was.IsZero() {
					until, done = o.was, 3
				}
				told, failed := 0, 0
				for _, e := range c.seen.all {
					switch {
					case e.Name != o.Name:
					case e.Kind == dispatch.TakeFailed && errors.Is(e.Err, errDead):
						failed++
					case e.Kind == dispatch.Stalled && e.Reason == "unopened":
						told++
					case e.Kind == dispatch.Stalled:
						rt.Errorf("D12: %s, %v", o.Name, e.Reason)
					}
				}
				if want := max(0, int(until.Sub(began)/period)-1); told != want {
					rt.Errorf("D12: %s told %d times that it is not open, want %d, open %v after the start", o.Name, told,
						want, until.Sub(began))
				}
				if failed != o.fails {
					rt.Errorf("D12: %s told %d of %d errors", o.Name, failed, o.fails)
				}
				if floor, _ := o.Source.Committed(t.Context()); floor != done {
					rt.Errorf("D12: %s, opened after %v: floor %d, want %d", o.Name, after[i], floor, done)
				}
			}
		})
	})
}

// What Open returns is checked like what a Partition has, and a partition that has both is rejected.
func TestOpenReturnsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := consume(t, dispatch.Config{Handler: func(context.Context, dispatch.Job) error { return nil }})
		var once sync.Once
		whole := filled(t, "a", 1)
		c.give(dispatch.Partition{Name: "a", Open: func(context.Context) (source dispatch.Source, ledger lease.Ledger,
			err error) {
			source, ledger = whole.Source, whole.Ledger
			once.Do(func() { source, ledger = (*dispatch.Log)(nil), nil })
			return source, ledger, nil
		}})
		time.Sleep(time.Minute)
		failed := c.seen.of(dispatch.TakeFailed)
		if len(failed) != 1 || !errors.Is(failed[0].Err, lease.ErrInvalid) {
			t.Errorf("told of nothing: %v", failed)
		}
		equal(t, "D12: done", c.Stats()[0].Succeeded, 1)
		whole.Open = func(context.Context) (dispatch.Source, lease.Ledger, error) { return nil, nil, nil }
		c.give(whole)
		var invalid *lease.InvalidError
		if err := <-c.result; !errors.As(err, &invalid) || invalid.Field != "dispatch.Partition.Open" {
			t.Errorf("Run: %v", err)
		}
	})
}
