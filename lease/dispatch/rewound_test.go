// SPDX-License-Identifier: Apache-2.0

package dispatch_test

// This file has logs that are other ones, or were put back (D13): whichever call tells, nothing is read or committed until that is
// over; all in virtual time.

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
)

// telling is a log of which one call says that it is rewound, and End with it.
type telling struct {
	*dispatch.Log
	mu       sync.Mutex // guards all below
	call     string     // that says so; "": none
	identity string
	end      int64         // what End says in place of the end; 0: the end
	ends     int           // how often, at most; 0: for ever
	slow     time.Duration // that Fetch takes to return what it has
}

func (s *telling) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

var errOther = errors.New("it was put back on Monday")

func (s *telling) says(calls ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(calls, s.call) {
		return dispatch.Rewound("p", errOther)
	}
	return nil
}

func (s *telling) Identity(context.Context) (string, error) {
	err := s.says("Identity")
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.identity, err
}

func (s *telling) Committed(ctx context.Context) (int64, error) {
	floor, err := s.Log.Committed(ctx)
	return floor, errors.Join(err, s.says("Committed"))
}

func (s *telling) Fetch(ctx context.Context, from int64, limit int) ([]dispatch.Record, error) {
	records, err := s.Log.Fetch(ctx, from, limit)
	if s.slow > 0 {
		time.Sleep(s.slow)
	}
	if says := s.says("Fetch"); says != nil {
		return nil, says
	}
	return records, err
}

func (s *telling) Commit(ctx context.Context, floor int64) error {
	if err := s.says("Commit"); err != nil {
		return err
	}
	return s.Log.Commit(ctx, floor)
}

func (s *telling) End(ctx context.Context) (int64, error) {
	if err := s.says("Fetch", "Commit", "End"); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if end := s.end; end > 0 {
		if s.ends--; s.ends == 0 {
			s.end = 0
		}
		return end, nil
	}
	return s.Log.End(ctx)
}

// told is a run over a telling log.
func told(t *testing.T, s dispatch.Source) *running {
	t.Helper()
	return run(t, dispatch.Partition{Name: "p", Source: s, Ledger: memory(t, 0)}, patient)
}

// patient is how all of these run: what is stalled says so before AttemptTimeout.
var patient = dispatch.Config{AttemptTimeout: time.Hour, CommitEvery: time.Second}

// rewound demands that the run says that the log is rewound, and why, and committed no more than floor.
func rewound(t *testing.T, r *running, floor int64) {
	t.Helper()
	stalls := r.seen.of(dispatch.Stalled)
	if len(stalls) == 0 || stalls[0].Reason != "rewound" || !errors.Is(stalls[0].Err, dispatch.ErrRewound) {
		t.Errorf("D13: told %+v, want at once that it is rewound", stalls)
	}
	if s := r.Stats(); s.Stalled != "rewound" || s.Lag != -1 || s.Committed > floor {
		t.Errorf("D13: stalled %q, lag %d, committed %d; want rewound, -1, %d", s.Stalled, s.Lag, s.Committed, floor)
	}
}

func TestRewound(t *testing.T) {
	for call, c := range map[string]struct {
		taking  bool // it is told when the partition is taken
		handled int
	}{
		"Open": {taking: true}, "Identity": {handled: 3}, "Committed": {taking: true}, "Fetch": {handled: 3},
		"Commit": {handled: 5}, // that were read before
		"End":    {handled: 3},
	} {
		bubble(t, call, func(t *testing.T) {
			s := &telling{Log: fill("a", "b", "c")}
			if c.taking {
				s.call = call
			}
			ledger := memory(t, 0)
			r := run(t, dispatch.Partition{Name: "p", Open: func(context.Context) (dispatch.Source, lease.Ledger, error) {
				err := s.says("Open")
				return s, ledger, err
			}}, patient)
			time.Sleep(10*time.Second + time.Second/2) // between two commits
			s.set(func() { s.call = call })
			if call != "Commit" {
				time.Sleep(2 * time.Second)
			}
			s.Append("a", nil)
			s.Append("b", nil)
			time.Sleep(10 * time.Second)
			floor := int64(3)
			if c.taking {
				floor = 0
			}
			rewound(t, r, floor)
			if n := r.total(); n != c.handled {
				t.Errorf("D13: %d records are handled, want %d", n, c.handled)
			}
			s.set(func() { s.call = "" })
			time.Sleep(10 * time.Second)
			if stats := r.Stats(); r.total() != 5 || stats.Stalled != "" || stats.Committed != 5 || stats.Lag != 0 {
				t.Errorf("D13: after it was repaired %d are handled; %+v", r.total(), stats)
			}
			r.mustStop(t)
		})
	}
}

// A source with no other way to tell is asked by Fetch. What the drain cannot commit it says.
func TestRewoundByFetchAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &telling{Log: fill("a", "b", "c"), call: "Fetch"}
		r := told(t, struct{ dispatch.Source }{s})
		time.Sleep(10 * time.Second)
		rewound(t, r, 0)
		s.set(func() { s.call = "" })
		time.Sleep(10 * time.Second)
		equal(t, "D13: handled after it was repaired", r.total(), 3)
		s.set(func() { s.call = "Commit" })
		s.Append("a", nil)
		time.Sleep(10 * time.Second)
		if err := r.stop(); !errors.Is(err, dispatch.ErrDrain) || !errors.Is(err, errOther) {
			t.Errorf("D13: the drain of a rewound log: %v", err)
		}
	})
}

// An end below what was read may be an old one. A second such end in a row is not.
func TestEndBelowThePosition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &telling{Log: fill("a", "b", "c")}
		r := told(t, s)
		time.Sleep(10*time.Second + time.Second/2) // between two looks
		for range 3 {
			s.set(func() { s.end, s.ends = 2, 1 })
			time.Sleep(2 * time.Second)
		}
		if n := len(r.seen.of(dispatch.Stalled)); n > 0 {
			t.Errorf("D13: told %d times of an old end", n)
		}
		s.set(func() { s.end, s.ends = 2, 2 })
		time.Sleep(2 * time.Second)
		rewound(t, r, 3)
		time.Sleep(time.Second)
		equal(t, "D13: stalled where the end is right again", r.Stats().Stalled, "")
		r.mustStop(t)
	})
}

// A ledger that keeps no log is of the Run's first one.
func TestAnotherLogInARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &telling{Log: fill("a"), identity: "one"}
		r := told(t, s)
		time.Sleep(10 * time.Second)
		s.set(func() { s.identity = "another" })
		time.Sleep(2 * time.Second)
		s.Append("b", nil)
		time.Sleep(10 * time.Second)
		rewound(t, r, 1)
		equal(t, "D13: handled of both logs", r.total(), 1)
		r.mustStop(t)
	})
}

// What was read before is finished. It is not committed to the other log.
func TestNothingIsCommittedToAnotherLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, finish := &telling{Log: fill("a")}, make(chan struct{})
		r := run(t, dispatch.Partition{Name: "p", Source: s, Ledger: memory(t, 0)}, dispatch.Config{
			AttemptTimeout: time.Hour, Handler: func(context.Context, dispatch.Job) error { <-finish; return nil },
		})
		time.Sleep(10 * time.Second)
		s.set(func() { s.call = "End" })
		time.Sleep(10 * time.Second)
		close(finish)
		time.Sleep(10 * time.Second)
		rewound(t, r, 0)
		if floor, _ := s.Log.Committed(t.Context()); floor != 0 || len(r.seen.of(dispatch.Succeeded)) != 1 {
			t.Errorf("D13: %d is committed to the other log; %d succeeded", floor, len(r.seen.of(dispatch.Succeeded)))
		}
		s.set(func() { s.call = "" })
		time.Sleep(10 * time.Second)
		equal(t, "D13: committed after it was repaired", r.Stats().Committed, 1)
		r.mustStop(t)
	})
}

// What a Fetch returns that was under way when the log was told is read again.
func TestFetchUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &telling{Log: fill("a"), slow: 10 * time.Second, call: "End"}
		r := told(t, s)
		time.Sleep(30 * time.Second)
		rewound(t, r, 0)
		equal(t, "D13: handled of another log", r.total(), 0)
		s.set(func() { s.call = "" })
		time.Sleep(30 * time.Second)
		equal(t, "D13: handled after it was repaired", r.total(), 1)
		r.mustStop(t)
	})
}
