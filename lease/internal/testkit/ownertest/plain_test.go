package ownertest

// This file is a group in memory, the smallest that is right, and the ways in which it can be made wrong.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/stopbank/stopbank/lease"
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
	old   bool                             // of the version before
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
		l := NewLog(fmt.Sprint("p", i))
		logs[l.Name] = l
		p.logs = append(p.logs, l)
		g.Partitions = append(g.Partitions, l.Name)
	}
	join := func(old bool) Member {
		m := &plainMember{plain: p, old: old, works: map[*Log]context.CancelCauseFunc{}}
		set := func(cut bool) func() {
			return func() {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.cut = cut
			}
		}
		return Member{Ownership: m, Cut: set(true), Mend: set(false)}
	}
	g.Join = func() Member { return join(false) }
	g.JoinOld = func() Member { return join(true) }
	return g
}

// aged is a ledger as a program sees it that was built before Release.
type aged struct{ lease.Ledger }

func (a aged) AcquireNext(ctx context.Context, domain string) (lease.Acquisition, error) {
	if _, err := a.Inspect(ctx, domain); err != nil {
		return lease.Acquisition{}, err
	}
	return a.Ledger.AcquireNext(ctx, domain)
}

func (a aged) Inspect(ctx context.Context, domain string) (lease.View, error) {
	v, err := a.Ledger.Inspect(ctx, domain)
	if err == nil && v.Lease != nil && v.Lease.Released {
		err = &durable.NewerError{Domain: domain}
	}
	return v, err
}

func (a aged) Reclaim(ctx context.Context, domain string, held lease.Token) (lease.Lease, error) {
	if _, err := a.Inspect(ctx, domain); err != nil {
		return lease.Lease{}, err
	}
	return a.Ledger.Reclaim(ctx, domain, held)
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
			m.beat(ctx, alone, work)
		case m.fault != "a member does not look at its clock" && m.fault != "who comes back goes on" && time.Since(answered) > soon:
			m.lose("no answer")
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
		m.forget()
	}
	if m.fault == "Hold returns the context's error" {
		return ctx.Err()
	}
	return nil
}

// beat is one conversation with the coordinator. The lock is held.
func (m *plainMember) beat(ctx, alone context.Context, work func(context.Context, dispatch.Partition)) {
	now := time.Now()
	if m.fault != "the dead keep what they have" {
		for _, other := range slices.Clone(m.members) {
			if now.Sub(other.heard) > soon {
				other.forget()
			}
		}
	}
	m.heard = now
	if !slices.Contains(m.members, m) {
		if m.fault != "who comes back goes on" {
			m.lose("forgotten")
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
				m.begin(ctx, l, work) // nobody else will end it
				break
			}
			m.begin(alone, l, work)
		case m.fault == "whoever comes, has the first" && l == m.logs[0] && end == nil && ctx.Err() == nil:
			m.begin(alone, l, work)
		}
	}
}

// begin starts work on l. The lock is held.
func (m *plainMember) begin(ctx context.Context, l *Log, work func(context.Context, dispatch.Partition)) {
	ctx, end := context.WithCancelCause(ctx)
	m.works[l] = end
	p := l.Open(m.old)
	if m.old && m.fault == "old members cannot read what new ones write" {
		p.Ledger = aged{p.Ledger}
	}
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

// lose ends what is at work. The lock is held.
func (m *plainMember) lose(why string) {
	for l, end := range m.works {
		if m.fault == "what is lost is asked back" {
			end(nil)
		} else {
			end(&dispatch.LostError{Partition: l.Name, Err: errors.New(why)})
		}
	}
}

// forget takes everything from the member. The lock is held.
func (m *plainMember) forget() {
	m.members = slices.DeleteFunc(m.members, func(other *plainMember) bool { return other == m })
	for l, owner := range m.owner {
		if owner == m {
			delete(m.owner, l)
		}
	}
}
