package leasenats

// This file is a member: how it keeps its place in the group's record, and when it has lost that.

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

	kept   time.Time            // a sign of life of this member, at the earliest that others can know of it
	read   time.Time            // when the record was read last
	others map[string]heartbeat // by name
}

// conflictWait times the members is the longest pause after a write that another came before. With a quarter of it, 100 members
// that join at once need ten times as long for their shares.
const conflictWait = 4 * time.Millisecond

// heartbeat is the last sign of life of another member, and since when this one knows it.
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
	m := group.Member[int]{
		Server: &member{Group: g, name: rand.Text(), others: map[string]heartbeat{}},
		Name:   g.name, OnError: g.cfg.OnError, Trouble: new(episode.Episode),
		Work: func(ctx context.Context, number int) {
			source, partition := g.partition(number)
			defer source.Close()
			work(ctx, partition)
		},
	}
	return m.Run(ctx)
}

// patience is how long this member goes on when it cannot write. The rest of the session is for its works, to return before
// others begin.
func (m *member) patience() time.Duration { return m.cfg.Session / 4 * 3 }

// Expired implements group.Server: the others will take this member out, or have.
func (m *member) Expired() bool { return time.Since(m.kept) >= m.patience() }

// within is a time to wait, cut short by the moment at which patience ends.
func (m *member) within(wait time.Duration) time.Duration {
	if m.Expired() {
		return wait
	}
	return min(wait, time.Until(m.kept.Add(m.patience())))
}

// Final implements group.Server. A bucket that is not there may be one that the server has not opened yet, for a while.
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

// Round implements group.Server. It reads the record and writes the next one, until nobody comes in between. It takes a fifth
// of a Session at most, so that a lost reply costs no more than that. A write whose reply is lost is found in the record by the
// next round.
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
			return nil, 0, foreignKey(m.cfg.Bucket, m.key, wrong)
		}
		if err := record.agrees(&m.cfg); err != nil {
			return nil, 0, err
		}
		record = record.next(m.name, m.cfg.Session, leaving, m.silent(record, asked), works)
		written := time.Now()
		if revision == 0 {
			_, err = m.kv.Create(ctx, m.key, record.encode())
		} else {
			_, err = m.kv.Update(ctx, m.key, record.encode(), revision)
		}
		if err == nil {
			if m.kept = written; m.Expired() { // this process stood still before it heard of it
				continue
			}
			return record.Members[m.name].Holds, record.share(m.name), nil
		}
		if !conflict(err) {
			return nil, 0, m.store.unreachable(err)
		}
		select { // the more there are, the more come in between
		case <-ctx.Done():
		case <-time.After(mathrand.N(time.Duration(len(record.Members)+1) * conflictWait)):
		}
	}
}

// silent are the members that have given no new sign of life for their session: from when this one learned of the last until it
// asked for the record. A time in which it could not look is nobody's silence.
func (m *member) silent(record groupRecord, asked time.Time) (silent []string) {
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
			silent = append(silent, name)
		}
		others[name] = last
	}
	m.others = others
	return silent
}
