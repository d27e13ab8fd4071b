// SPDX-License-Identifier: Apache-2.0

package leasenats

// A member renews its entry in the group's record. When it cannot, it gives up its partitions before the others remove it.

import (
	"context"
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/internal/episode"
	"github.com/stopbank/stopbank/lease/internal/group"
)

// member is one Hold, as a group.Server. One goroutine uses it.
type member struct {
	*Group
	name string

	renewed time.Time            // when this member's last successful write of the record was sent
	read    time.Time            // when the record was last read
	others  map[string]heartbeat // the other members, by name
}

// conflictWait, times the number of members, is the longest pause after a write that lost to another member's. With a quarter of
// it, 100 members that join at once need ten times as long for their shares.
const conflictWait = 4 * time.Millisecond

// heartbeat is the last heartbeat of another member, and when this member first saw it.
type heartbeat struct {
	beat  uint64
	since time.Time
}

// Hold implements dispatch.Ownership. It joins as a new member, waits a tenth of a Session for others that join at the
// same time, and takes its share. When others join it gives partitions back, the highest numbers first. After three
// quarters of a Session without the server all its partitions are lost; it goes on, and gets them back if no other
// member was given them. When ctx is done it gives back each partition as soon as its work has returned, leaves, and
// returns nil.
//
// Hold returns an error, and its partitions are lost, when Conn is closed or the bucket is gone, when the record was not
// written by a group (delete the key, and the group forms anew), or when it is of a group with other partitions
// (*lease.InvalidError). A nil argument or a Group that OpenGroup did not make is a *lease.InvalidError as well.
func (g *Group) Hold(ctx context.Context, work func(ctx context.Context, partition dispatch.Partition)) error {
	switch {
	case ctx == nil:
		return invalidField("ctx", "nil", "a context")
	case work == nil:
		return invalidField("work", "nil", "a function")
	case g == nil || g.kv == nil:
		return invalidField("Group", "nil or zero", "a group made by OpenGroup")
	}
	records := &records{of: g.cfg.Conn, options: g.options, turn: make(chan struct{}, 1)}
	defer records.close()
	m := group.Member[int]{
		Server: &member{Group: g, name: rand.Text(), others: map[string]heartbeat{}},
		Name:   g.partitionName, OnError: g.cfg.OnError, Trouble: new(episode.Episode),
		Work: func(ctx context.Context, number int) {
			partition, end := g.partition(number, records)
			defer end()
			work(ctx, partition)
		},
	}
	return m.Run(ctx)
}

// renewDeadline is how long this member goes on working without a successful write. In the rest of the session its works return,
// before other members begin.
func (m *member) renewDeadline() time.Duration { return m.cfg.Session / 4 * 3 }

// Expired implements group.Server: the other members will soon remove this one, or have.
func (m *member) Expired() bool { return time.Since(m.renewed) >= m.renewDeadline() }

// within shortens a wait so that it ends by the renew deadline.
func (m *member) within(wait time.Duration) time.Duration {
	if m.Expired() {
		return wait
	}
	return min(wait, time.Until(m.renewed.Add(m.renewDeadline())))
}

// Final implements group.Server. A missing bucket is not final until the member has expired: a starting server may not have
// loaded it yet.
func (m *member) Final(err error) bool {
	var unreachable *unreachableError
	return !errors.As(err, &unreachable) || errors.Is(err, nats.ErrConnectionClosed) ||
		errors.Is(err, jetstream.ErrStreamNotFound) && m.Expired()
}

// Wait implements group.Server.
func (m *member) Wait(ctx context.Context) error {
	timer := time.NewTimer(m.within(m.cfg.Session / 10))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return nil
}

// Round implements group.Server. It reads the record and swaps it for the next one, again after each conflict. It takes a fifth
// of a Session at most, so that a lost reply costs no more than that. If the reply to a write is lost, the next round finds the
// write in the record.
func (m *member) Round(ctx context.Context, leaving bool, works map[int]bool) (holds []int, share int, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.within(m.cfg.Session/5))
	defer cancel()
	for {
		asked := time.Now()
		var value []byte
		var revision uint64
		entry, err := m.kv.Get(ctx, m.key)
		switch {
		case err == nil:
			value, revision = entry.Value(), entry.Revision()
		case !errors.Is(err, jetstream.ErrKeyNotFound):
			return nil, 0, m.store.unreachable(err)
		}
		record, wrong := decodeGroup(&m.cfg, value)
		if wrong != "" {
			return nil, 0, unexpectedValue(m.cfg.Bucket, m.key, errors.New(wrong))
		}
		if err := record.agrees(&m.cfg); err != nil {
			return nil, 0, err
		}
		record = record.next(m.name, m.cfg.Session, leaving, m.expiredMembers(record, asked), works)
		written := time.Now()
		if revision == 0 {
			_, err = m.kv.Create(ctx, m.key, record.encode())
		} else {
			_, err = m.kv.Update(ctx, m.key, record.encode(), revision)
		}
		if err == nil {
			if m.renewed = written; m.Expired() { // the process was suspended before it got the reply
				continue
			}
			return record.Members[m.name].Holds, record.share(m.name), nil
		}
		if !conflict(err) {
			return nil, 0, m.store.unreachable(err)
		}
		select { // more members, more conflicts
		case <-ctx.Done():
		case <-time.After(mathrand.N(time.Duration(len(record.Members)+1) * conflictWait)):
		}
	}
}

// expiredMembers returns the members whose heartbeat has not changed for their session: from when this member first saw it until
// it sent the request for the record. After a time in which this member could not read the record, the sessions start anew.
func (m *member) expiredMembers(record groupRecord, asked time.Time) (expired []string) {
	now := time.Now()
	if asked.Sub(m.read) > m.cfg.Session/2 {
		clear(m.others)
	}
	m.read = now
	others := make(map[string]heartbeat, len(record.Members))
	for name, s := range record.Members {
		last, known := m.others[name]
		switch {
		case name == m.name:
			continue
		case !known || last.beat != s.Beat:
			last = heartbeat{beat: s.Beat, since: now}
		case asked.Sub(last.since) >= time.Duration(s.Session)*time.Millisecond:
			expired = append(expired, name)
		}
		others[name] = last
	}
	m.others = others
	return expired
}
