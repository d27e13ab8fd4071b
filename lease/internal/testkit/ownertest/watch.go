// SPDX-License-Identifier: Apache-2.0

// Members whose work only records its presence, and an account of who works on which partition.

package ownertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// team is the members of one group and their work.
type team struct {
	testing.TB
	group Group

	mu      sync.Mutex // guards all below, and the members
	members []*member
	wrong   []string
}

// member is an observed member.
type member struct {
	Member
	team   *team
	name   string
	cancel context.CancelFunc
	ended  chan struct{} // closed when Hold has returned
	cut    bool          // it is cut off, or was while its current work ran
	works  map[string]*work
	lost   int // calls of work that ended with ErrLost
	begun  map[string]int
	linger chan struct{} // if not nil, work that should end waits for it
	brief  string        // the first work on this partition returns immediately
}

// work is one call of work that has not returned.
type work struct {
	ctx context.Context
	cut bool // the member was cut off while it ran
}

func newTeam(t testing.TB, open Open, partitions int) *team {
	t.Helper()
	g := &team{TB: t, group: open(t, partitions)}
	if len(g.group.Partitions) != partitions {
		t.Fatalf("a group of %d partitions, want %d", len(g.group.Partitions), partitions)
	}
	return g
}

// end ends the members, and says what was wrong.
func (g *team) end() {
	for _, m := range g.members {
		m.release()
		m.Mend()
		m.cancel()
	}
	for _, m := range g.members {
		select {
		case <-m.ended:
		case <-time.After(patience):
			g.Errorf("%s: Hold does not return", m.name)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.wrong {
		g.Error(w)
	}
}

func (g *team) foundLocked(format string, args ...any) {
	g.wrong = append(g.wrong, fmt.Sprintf(format, args...))
}

// join starts another member; set may change it first.
func (g *team) join(set func(*member)) *member {
	ctx, cancel := context.WithCancel(context.Background())
	m := &member{Member: g.group.Join(), team: g, cancel: cancel, ended: make(chan struct{}), works: map[string]*work{},
		begun: map[string]int{}}
	if set != nil {
		set(m)
	}
	g.mu.Lock()
	m.name = fmt.Sprint("member ", len(g.members))
	g.members = append(g.members, m)
	g.mu.Unlock()
	go func() {
		defer close(m.ended)
		err := m.Hold(ctx, m.work)
		g.mu.Lock()
		defer g.mu.Unlock()
		if ctx.Err() != nil && err != nil {
			g.foundLocked("%s: Hold, its context being done: %v, want nil", m.name, err)
		}
		if ctx.Err() == nil {
			g.foundLocked("%s: Hold returned by itself: %v", m.name, err)
		}
		if len(m.works) > 0 {
			g.foundLocked("%s: Hold returned before %v", m.name, slices.Sorted(maps.Keys(m.works)))
		}
	}()
	return m
}

// work runs until its context is done.
func (m *member) work(ctx context.Context, p dispatch.Partition) {
	g := m.team
	g.mu.Lock()
	switch {
	case !slices.Contains(g.group.Partitions, p.Name):
		g.foundLocked("%s: work on %q, want one of %q", m.name, p.Name, g.group.Partitions)
	case p.Source == nil || p.Ledger == nil:
		g.foundLocked("%s: %s without a Source or a Ledger", m.name, p.Name)
	case m.works[p.Name] != nil:
		g.foundLocked("%s: two calls of work on %s at once", m.name, p.Name)
	}
	for _, other := range g.members {
		if w := other.works[p.Name]; other != m && w != nil && !w.cut && !errors.Is(context.Cause(w.ctx), dispatch.ErrLost) {
			g.foundLocked("%s works on %s while %s does", m.name, p.Name, other.name)
		}
	}
	w := &work{ctx: ctx, cut: m.cut}
	m.works[p.Name] = w
	m.begun[p.Name]++
	brief := m.brief == p.Name && m.begun[p.Name] == 1
	linger := m.linger
	g.mu.Unlock()
	if !brief {
		<-ctx.Done()
		if linger != nil {
			<-linger
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if errors.Is(context.Cause(ctx), dispatch.ErrLost) {
		m.lost++
	}
	if m.works[p.Name] == w {
		delete(m.works, p.Name)
	}
}

// release lets lingering work return.
func (m *member) release() {
	m.team.mu.Lock()
	defer m.team.mu.Unlock()
	if m.linger != nil {
		close(m.linger)
		m.linger = nil
	}
}

// cutOff cuts the member off.
func (m *member) cutOff() {
	m.team.mu.Lock()
	m.cut = true
	for _, w := range m.works {
		w.cut = true
	}
	m.team.mu.Unlock()
	m.Cut()
}

// mend reconnects the member.
func (m *member) mend() {
	m.Mend()
	m.team.mu.Lock()
	defer m.team.mu.Unlock()
	m.cut = false
}

// leave ends the member and waits for it.
func (m *member) leave() {
	m.team.Helper()
	m.cancel()
	m.team.eventually(m.name+" leaves", func() bool {
		select {
		case <-m.ended:
			return true
		default:
			return false
		}
	})
}

// holdsLocked returns the partitions that the member works on and has not been asked to give back.
func (m *member) holdsLocked() []string {
	var names []string
	for name, w := range m.works {
		if w.ctx.Err() == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// askedLocked returns the number of the member's works that were asked to end, and not because their partition is lost.
func (m *member) askedLocked() (n int) {
	for _, w := range m.works {
		if w.ctx.Err() != nil && !errors.Is(context.Cause(w.ctx), dispatch.ErrLost) {
			n++
		}
	}
	return n
}

// eventually waits until the condition holds, which it checks under the lock.
func (g *team) eventually(what string, so func() bool) {
	g.Helper()
	ok, wrong := false, false
	poll(func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		ok, wrong = so(), len(g.wrong) > 0
		return ok || wrong
	})
	if ok {
		return
	}
	why := "never"
	if wrong {
		why = "waiting for"
	}
	var now strings.Builder
	g.mu.Lock()
	for _, m := range g.members {
		fmt.Fprintf(&now, "\n%s: holds %v, works on %v", m.name, m.holdsLocked(), slices.Sorted(maps.Keys(m.works)))
	}
	g.mu.Unlock()
	g.Fatalf("%s: %s%s", why, what, now.String())
}

// settled waits until the members share all partitions evenly, each held by exactly one of them.
func (g *team) settled(members ...*member) {
	g.Helper()
	names := make([]string, len(members))
	for i, m := range members {
		names[i] = m.name
	}
	least := len(g.group.Partitions) / len(members)
	most := (len(g.group.Partitions) + len(members) - 1) / len(members)
	g.eventually("all partitions shared by "+strings.Join(names, ", "), func() bool {
		var all []string
		for _, m := range g.members {
			held := m.holdsLocked()
			all = append(all, held...)
			if slices.Contains(members, m) != (len(m.works) > 0) && least > 0 || len(held) != len(m.works) {
				return false
			}
			if slices.Contains(members, m) && (len(held) < least || len(held) > most) {
				return false
			}
		}
		slices.Sort(all)
		return slices.Equal(all, slices.Sorted(slices.Values(g.group.Partitions)))
	})
}
