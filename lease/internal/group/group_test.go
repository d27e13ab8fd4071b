// SPDX-License-Identifier: Apache-2.0

package group_test

// This file holds a member to what it promises about its works, against a server that a test bends, in virtual time.

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/internal/episode"
	"github.com/stopbank/stopbank/lease/internal/group"
)

// server gives the member the partitions that a test says, and counts rounds.
type server struct {
	mu      sync.Mutex // guards all below
	holds   []int
	share   int
	err     error
	final   bool
	expired bool
	rounds  int
}

func (s *server) set(change func()) { s.mu.Lock(); defer s.mu.Unlock(); change() }

func (s *server) Round(_ context.Context, leaving bool, works map[int]bool) (holds []int, share int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rounds++
	if s.err != nil {
		return nil, 0, s.err
	}
	share = s.share
	if leaving {
		share = 0
	}
	for _, p := range s.holds { // what it works on stays, and what is new fits in its share
		if returned, busy := works[p]; busy && !returned || !busy && len(holds) < share {
			holds = append(holds, p)
		}
	}
	return holds, share, nil
}

func (s *server) Expired() bool    { s.mu.Lock(); defer s.mu.Unlock(); return s.expired }
func (s *server) Final(error) bool { s.mu.Lock(); defer s.mu.Unlock(); return s.final }

func (s *server) Wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	<-ctx.Done()
	return nil
}

// member is a running one, whose works take a minute to return.
type member struct {
	*server
	stop  context.CancelFunc
	ended chan error

	mu      sync.Mutex // guards all below
	running map[int]bool
	causes  map[int]error
	told    []error
}

func run(t *testing.T, s *server) *member {
	ctx, cancel := context.WithCancel(t.Context())
	m := &member{server: s, stop: cancel, ended: make(chan error, 1), running: map[int]bool{}, causes: map[int]error{}}
	g := group.Member[int]{
		Server: s, Trouble: new(episode.Episode),
		Name:    func(p int) string { return string(rune('a' + p)) },
		OnError: func(err error) { m.locked(func() { m.told = append(m.told, err) }) },
		Work: func(ctx context.Context, p int) {
			m.locked(func() { m.running[p] = true })
			<-ctx.Done()
			time.Sleep(time.Minute)
			m.locked(func() { delete(m.running, p); m.causes[p] = context.Cause(ctx) })
		},
	}
	go func() { m.ended <- g.Run(ctx) }()
	return m
}

func (m *member) locked(f func()) { m.mu.Lock(); defer m.mu.Unlock(); f() }

// after lets time pass and shows what the member has by then.
func (m *member) after(d time.Duration, show func()) {
	time.Sleep(d)
	synctest.Wait()
	m.locked(show)
}

func TestMemberGivesBackWhatIsTooMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := run(t, &server{holds: []int{0, 1, 2}, share: 3})
		m.after(time.Second, func() {
			if len(m.running) != 3 {
				t.Errorf("works on %v", m.running)
			}
		})
		m.set(func() { m.share = 1 })
		m.after(2*time.Minute, func() {
			if len(m.running) != 1 || !m.running[0] || !errors.Is(m.causes[1], context.Canceled) ||
				!errors.Is(m.causes[2], context.Canceled) {
				t.Errorf("works on %v, the others ended by %v", m.running, m.causes)
			}
		})
		m.stop()
		if err := <-m.ended; err != nil || len(m.running) > 0 || len(m.told) > 0 {
			t.Errorf("left with %v, works on %v, told %v", err, m.running, m.told)
		}
	})
}

// A partition that others may have is lost: its work is told so, and the member goes on.
func TestMemberLoses(t *testing.T) {
	for how, bend := range map[string]func(*server){
		"taken out": func(s *server) { s.holds = nil },
		"silent":    func(s *server) { s.expired = true },
		"cut off":   func(s *server) { s.expired, s.err = true, errors.New("no answer") },
	} {
		synctest.Test(t, func(t *testing.T) {
			m := run(t, &server{holds: []int{0}, share: 1})
			time.Sleep(10 * time.Second)
			m.set(func() { bend(m.server) })
			m.after(2*time.Minute, func() {
				cause := m.causes[0]
				if !errors.Is(cause, dispatch.ErrLost) || !strings.Contains(cause.Error(), "partition a ") || len(m.told) == 0 {
					t.Errorf("%s: ended by %v, told %v", how, m.causes[0], m.told)
				}
			})
			m.set(func() { m.holds, m.expired, m.err = []int{0}, false, nil })
			m.after(10*time.Second, func() {
				if !m.running[0] {
					t.Errorf("%s: does not work again", how)
				}
			})
			m.stop()
			if err := <-m.ended; err != nil {
				t.Errorf("%s: %v", how, err)
			}
		})
	}
}

// A final error ends the member, after its works. An error that passes does not make it ask without a pause, also when a work
// that cannot be given back has returned.
func TestMemberMeetsErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := run(t, &server{holds: []int{0, 1}, share: 2})
		time.Sleep(10 * time.Second)
		away := errors.New("away")
		m.set(func() { m.share = 1 })
		time.Sleep(2 * time.Second)
		m.set(func() { m.err, m.rounds = away, 0 })
		m.after(10*time.Minute, func() {
			if m.rounds > 605 || len(m.running) != 1 || len(m.told) < 10 || len(m.told) > 11 || !errors.Is(m.told[0], away) {
				t.Errorf("%d rounds in ten minutes, works on %v, told %v", m.rounds, m.running, m.told)
			}
		})
		m.set(func() { m.final = true })
		if err := <-m.ended; !errors.Is(err, away) || len(m.running) > 0 || !errors.Is(m.causes[0], dispatch.ErrLost) {
			t.Errorf("ended with %v, works on %v, ended by %v", err, m.running, m.causes)
		}
	})
}
