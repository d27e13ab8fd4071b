// SPDX-License-Identifier: Apache-2.0

// Package group is one member of a consumer group that shares partitions out: when it takes a partition, when it gives one
// back, when it has lost what it holds, and how it leaves. A server says who is there and who holds what; the packages of the
// engines tell it in their own way, as a Server.
package group

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/internal/episode"
)

// Server is a member's place in its group on a server. One goroutine calls it.
type Server[P comparable] interface {
	// Round gives a sign of life, gives back what the member holds of the partitions whose work has returned (works has true
	// for them), and takes free ones until the member holds its share, but none that is in works. It returns what the member
	// holds now, those that it would keep longest first, and its share. A member that leaves takes nothing, has no share, and
	// is out of the group when it holds nothing.
	Round(ctx context.Context, leaving bool, works map[P]bool) (holds []P, share int, err error)
	// Expired reports whether the server may have given this member's partitions to others, for want of a sign of life.
	Expired() bool
	// Final reports whether an error of Round would come again however often it is called.
	Final(err error) bool
	// Wait returns when the next round is due, or ctx is done. Its error is the end of what the member holds.
	Wait(ctx context.Context) error
}

// Member is one member. The zero value of the fields that are not exported is a member that has not joined.
type Member[P comparable] struct {
	Server  Server[P]
	Work    func(ctx context.Context, partition P) // ends with ctx, whose cause is dispatch.ErrLost if the partition is lost
	Name    func(partition P) string
	OnError func(error)
	Trouble *episode.Episode // from a failure to the next round that succeeds

	mu       sync.Mutex // guards all below; nothing foreign runs under it
	works    map[P]*work
	returned bool               // a work has, since the last snapshot
	wake     context.CancelFunc // ends the wait; nil while there is none
}

// work is a partition on which work was started, and that was not given back.
type work struct {
	end      context.CancelCauseFunc
	ended    bool // end was called
	returned bool
}

var (
	errSilent = errors.New("lease: this member was silent for its session")
	errTaken  = errors.New("lease: the group has taken this member out")
)

// Run is a member until ctx is done and all its works have returned: nil; or until an error of the server is final.
func (m *Member[P]) Run(ctx context.Context) error {
	m.works = map[P]*work{}
	for {
		leaving := ctx.Err() != nil
		works, running := m.snapshot()
		holds, share, err := m.Server.Round(ctx, leaving, works)
		switch {
		case err != nil && m.Server.Final(err):
			m.lose(err)
			for running > 0 {
				_ = m.wait(context.Background(), func(ctx context.Context) error { <-ctx.Done(); return nil })
				_, running = m.snapshot()
			}
			return err
		case leaving && running == 0: // the round has said so; if it failed, the others will notice
			return nil
		case err == nil:
			m.Trouble.Tell(m.OnError, nil)
			m.apply(ctx, works, holds, share)
		default:
			m.fail(ctx, leaving, err)
		}
		m.loseIfExpired(ctx, leaving, err)
		during := ctx
		if leaving {
			during = context.WithoutCancel(ctx)
		}
		if broken := m.wait(during, m.Server.Wait); broken != nil {
			m.fail(ctx, leaving, broken)
			err = broken
		}
		m.loseIfExpired(ctx, leaving, err)
	}
}

// fail reports an error, unless it is that the member was told to leave in the middle of a round.
func (m *Member[P]) fail(ctx context.Context, leaving bool, err error) {
	if leaving || ctx.Err() == nil {
		m.Trouble.Tell(m.OnError, err)
	}
}

// loseIfExpired loses everything if others may have it; err is why this member could not tell that it lives, if it knows.
func (m *Member[P]) loseIfExpired(ctx context.Context, leaving bool, err error) {
	if m.Server.Expired() {
		err = cmp.Or(err, errSilent)
		m.fail(ctx, leaving, err)
		m.lose(err)
	}
}

// snapshot returns the partitions that were started and not given back, and whether their works have returned; and how many
// have not.
func (m *Member[P]) snapshot() (works map[P]bool, running int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.returned = false
	works = make(map[P]bool, len(m.works))
	for p, w := range m.works {
		if works[p] = w.returned; !w.returned {
			running++
		}
	}
	return works, running
}

// apply does what a round has found: it starts what is new, ends what is gone, and asks for the return of what is too much.
func (m *Member[P]) apply(ctx context.Context, before map[P]bool, holds []P, share int) {
	m.mu.Lock()
	taken := m.forgetLocked(before, holds)
	working := 0
	for _, p := range holds {
		if m.works[p] == nil {
			m.startLocked(ctx, p)
		}
		if !m.works[p].ended {
			working++
		}
	}
	for i := len(holds) - 1; i >= 0 && working > share; i-- {
		if w := m.works[holds[i]]; !w.ended {
			m.endLocked(holds[i], w, nil)
			working--
		}
	}
	m.mu.Unlock()
	if taken {
		m.Trouble.Tell(m.OnError, errTaken)
	}
}

// forgetLocked forgets the works that had returned before the round and are given back, and ends those of partitions that
// the member no longer holds; taken reports whether there were any.
func (m *Member[P]) forgetLocked(before map[P]bool, holds []P) (taken bool) {
	for p, returned := range before {
		switch w := m.works[p]; {
		case slices.Contains(holds, p):
		case returned:
			delete(m.works, p)
		case !w.ended:
			m.endLocked(p, w, errTaken)
			taken = true
		}
	}
	return taken
}

func (m *Member[P]) startLocked(ctx context.Context, partition P) {
	ctx, end := context.WithCancelCause(ctx)
	w := &work{end: end}
	m.works[partition] = w
	go func() {
		m.Work(ctx, partition)
		end(nil)
		m.mu.Lock()
		defer m.mu.Unlock()
		w.returned, m.returned = true, true
		if m.wake != nil {
			m.wake()
		}
	}()
}

// lose ends all works: their partitions may be others'.
func (m *Member[P]) lose(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for p, w := range m.works {
		m.endLocked(p, w, err)
	}
}

// endLocked ends a work; a nil err says that the partition is only to be given back.
func (m *Member[P]) endLocked(partition P, w *work, err error) {
	if w.ended {
		return
	}
	w.ended = true
	if err != nil {
		err = dispatch.Lost(m.Name(partition), err)
	}
	w.end(err)
}

// wait calls until, whose ctx ends when a work returns.
func (m *Member[P]) wait(ctx context.Context, until func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m.mu.Lock()
	m.wake = cancel
	if m.returned {
		cancel()
	}
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		m.wake = nil
		m.mu.Unlock()
	}()
	return until(ctx)
}
