// SPDX-License-Identifier: Apache-2.0

// A group in memory, the smallest that is correct, and the ways in which it can be made wrong.

package ownertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/durable"
)

const soon = 100 * time.Millisecond // a member that is not heard of for so long is gone

// plain is the group as its coordinator knows it.
type plain struct {
	fault string
	logs  []*Log

	mu      sync.Mutex // guards all below and what the members say is guarded
	members []*plainMember
	owner   map[*Log]*plainMember
}

// plainMember is a member.
type plainMember struct {
	*plain
	cut   bool                             // guarded by plain.mu
	heard time.Time                        // by the coordinator; guarded
	works map[*Log]context.CancelCauseFunc // guarded
}

func newPlain(fault string, partitions int) Group {
	p := &plain{fault: fault, owner: map[*Log]*plainMember{}}
	logs := map[string]*Log{}
	g := Group{
		Append: func(partition, domain string, payload []byte) { logs[partition].Append(domain, payload) },
		Lease:  soon,
		Behind: func() (behind []string, err error) { return behindOf(p.logs) },
	}
	for i := range partitions {
		l := newLog(fmt.Sprint("p", i))
		logs[l.Name] = l
		p.logs = append(p.logs, l)
		g.Partitions = append(g.Partitions, l.Name)
	}
	g.Join = func() Member {
		m := &plainMember{plain: p, works: map[*Log]context.CancelCauseFunc{}}
		set := func(cut bool) func() {
			return func() {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.cut = cut
			}
		}
		return Member{Ownership: m, Cut: set(true), Mend: set(false)}
	}
	return g
}

// behindOf are the logs that are not committed to their end.
func behindOf(logs []*Log) (behind []string, err error) {
	for _, l := range logs {
		end, _ := l.End(context.Background())
		if floor, err := l.Committed(context.Background()); err != nil || floor < end {
			behind = append(behind, l.Name)
		}
	}
	return behind, nil
}

func (m *plainMember) Hold(ctx context.Context, work func(context.Context, dispatch.Partition)) error {
	tick := time.NewTicker(soon / 10)
	defer tick.Stop()
	ctx, quit := context.WithCancel(ctx)
	defer quit()
	alone := context.WithoutCancel(ctx) // what is asked back when ctx is done, is so by us
	answered, leaving := time.Now(), ctx.Done()
	for working := true; ctx.Err() == nil || working; {
		m.mu.Lock()
		switch {
		case ctx.Err() != nil && m.fault == "who leaves is silent":
		case !m.cut:
			answered = time.Now()
			m.beatLocked(ctx, alone, work)
		case m.fault != "a member does not look at its clock" && m.fault != "who comes back goes on" &&
			time.Since(answered) > soon:
			m.loseLocked("no answer")
		}
		if ctx.Err() != nil {
			leaving = nil // the clock goes on, and so does the beat until every work has returned
			for _, end := range m.works {
				end(nil)
			}
		}
		working = len(m.works) > 0
		m.mu.Unlock()
		if m.fault == "a member that hears nothing ends" && time.Since(answered) > soon {
			quit()
		}
		if m.fault == "Hold does not wait" && ctx.Err() != nil {
			break
		}
		if working || ctx.Err() == nil {
			select {
			case <-tick.C:
			case <-leaving:
			}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.cut {
		m.forgetLocked()
	}
	if m.fault == "Hold returns the context's error" {
		return ctx.Err()
	}
	return nil
}

// beatLocked is one conversation with the coordinator.
func (m *plainMember) beatLocked(ctx, alone context.Context, work func(context.Context, dispatch.Partition)) {
	now := time.Now()
	if m.fault != "the dead keep what they have" {
		for _, other := range slices.Clone(m.members) {
			if now.Sub(other.heard) > soon {
				other.forgetLocked()
			}
		}
	}
	m.heard = now
	if !slices.Contains(m.members, m) {
		if m.fault != "who comes back goes on" {
			m.loseLocked("forgotten")
		}
		m.members = append(m.members, m)
	}
	rank := slices.Index(m.members, m)
	quota := len(m.logs) / len(m.members)
	if rank < len(m.logs)%len(m.members) || m.fault == "one partition more is as good" {
		quota++
	}
	if m.fault == "who comes first has all" {
		quota = len(m.logs)
	}
	if ctx.Err() != nil {
		quota = 0
	}
	mine := 0
	for _, l := range m.logs {
		if m.owner[l] == m {
			mine++
		}
	}
	for _, l := range m.logs {
		end := m.works[l]
		switch {
		case m.owner[l] == m && mine > quota:
			if mine--; m.fault == "what is given back is given away at once" {
				delete(m.owner, l)
			}
			if end != nil {
				end(nil)
			}
			if m.fault == "all is given back at once" {
				for _, end := range m.works {
					end(nil)
				}
			}
		case m.owner[l] == nil && mine < quota && (end == nil || m.fault == "what is still at work is begun again"):
			mine++
			m.owner[l] = m
			if end != nil {
				m.beginLocked(ctx, l, work) // nobody else will end it
				break
			}
			m.beginLocked(alone, l, work)
		case m.fault == "whoever comes, has the first" && l == m.logs[0] && end == nil && ctx.Err() == nil:
			m.beginLocked(alone, l, work)
		}
	}
}

// beginLocked starts work on l.
func (m *plainMember) beginLocked(ctx context.Context, l *Log, work func(context.Context, dispatch.Partition)) {
	ctx, end := context.WithCancelCause(ctx)
	m.works[l] = end
	p := l.Open()
	switch m.fault {
	case "a name of its own":
		p.Name += "'"
	case "no source":
		p.Source = nil
	case "nobody claims":
		p.Source = &l.Log
	}
	go func() {
		work(ctx, p)
		end(nil)
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.works, l)
		if m.owner[l] == m && m.fault != "what is given back is kept" && !m.cut {
			delete(m.owner, l)
		}
	}()
}

// loseLocked ends what is at work.
func (m *plainMember) loseLocked(why string) {
	for l, end := range m.works {
		if m.fault == "what is lost is asked back" {
			end(nil)
		} else {
			end(dispatch.Lost(l.Name, errors.New(why)))
		}
	}
}

// forgetLocked takes everything from the member.
func (m *plainMember) forgetLocked() {
	m.members = slices.DeleteFunc(m.members, func(other *plainMember) bool { return other == m })
	for l, owner := range m.owner {
		if owner == m {
			delete(m.owner, l)
		}
	}
}

// Log is a partition in memory that accepts commits only from its last claimant, as a Source should.
type Log struct {
	dispatch.Log
	Name string

	store durable.Store // of its ledger

	mu    sync.Mutex // guards owner
	owner *claim
}

// newLog returns an empty Log.
func newLog(name string) *Log { return &Log{Name: name, store: durable.NewMemStore()} }

// Open returns the partition with a new Source and a new Ledger, as each owner has its own.
func (l *Log) Open() dispatch.Partition {
	ledger, _ := durable.New(durable.Config{Store: l.store, MaxRetries: 100}) // this Config is valid
	return dispatch.Partition{Name: l.Name, Source: &claim{Log: l}, Ledger: ledger}
}

// claim is a Log as one owner sees it.
type claim struct{ *Log }

// Committed claims the log.
func (c *claim) Committed(ctx context.Context) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owner = c
	return c.Log.Committed(ctx)
}

// Commit rejects every caller but the last claimant.
func (c *claim) Commit(ctx context.Context, floor int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.owner != c {
		return dispatch.Lost(c.Name, errors.New("ownertest: somebody else has claimed the log"))
	}
	return c.Log.Commit(ctx, floor)
}
