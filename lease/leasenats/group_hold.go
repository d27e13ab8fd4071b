package leasenats

// This file is a member at work: it keeps its place in the group's record, starts the work of what it gets, ends that of what it
// has to give back, and tells the lost from the kept.

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/internal/episode"
)

// member is one Hold. One goroutine has all of it.
type member struct {
	*Group
	ctx  context.Context // of the works
	work func(context.Context, dispatch.Partition)
	name string

	works    map[int]*holding // by partition: what was started and is not given back
	returned chan int         // partitions whose work has; room for all
	trouble  episode.Episode  // from a failure to the next write

	kept   time.Time            // a sign of life of this member, at the earliest that others can know of it
	read   time.Time            // when the record was read last
	others map[string]heartbeat // by name
}

// holding is a partition that this member got.
type holding struct {
	end      context.CancelCauseFunc
	ended    bool // end was called, or the context above it is done
	returned bool // the work has
}

// conflictWait times the members is the longest pause after a write that another came before. With a quarter of it, 100 members that join
// at once need ten times as long for their shares.
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
// Hold returns an error, and its partitions are lost, when Conn is closed or the bucket is gone (*UnreachableError),
// when the record was not written by a group (*KeyError; delete the key, and the group forms anew), or when it is of a
// group with other partitions (*InvalidError). A nil argument or a Group that OpenGroup did not make is an *InvalidError
// as well.
func (g *Group) Hold(ctx context.Context, work func(ctx context.Context, partition dispatch.Partition)) error {
	switch {
	case ctx == nil:
		return invalidField("ctx", "nil", "a context")
	case work == nil:
		return invalidField("work", "nil", "a function")
	case g == nil || g.kv == nil:
		return invalidField("Group", "nil or zero", "a group made by OpenGroup")
	}
	m := &member{
		Group: g, ctx: ctx, work: work, name: rand.Text(),
		works: map[int]*holding{}, returned: make(chan int, g.cfg.Partitions), others: map[string]heartbeat{},
	}
	return m.run()
}

func (m *member) run() error {
	for {
		leaving := m.ctx.Err() != nil
		err := m.round(leaving)
		switch {
		case err != nil && m.final(err):
			m.lose(err)
			for m.running() > 0 {
				m.note(<-m.returned)
			}
			return err
		case leaving && m.running() == 0: // the round has said so; if it failed, the others will notice
			return nil
		}
		m.trouble.Tell(m.cfg.OnError, err)
		m.loseIfExpired(err)

		done := m.ctx.Done()
		if leaving {
			done = nil
		}
		timer := time.NewTimer(m.within(m.cfg.Session / 10))
		select {
		case <-timer.C:
		case <-done:
		case p := <-m.returned:
			m.note(p)
		}
		timer.Stop()
		m.loseIfExpired(err)
	}
}

// loseIfExpired loses everything if patience is over; err is why this member could not write, if it knows.
func (m *member) loseIfExpired(err error) {
	if m.expired() {
		err = cmp.Or(err, errSilent)
		m.trouble.Tell(m.cfg.OnError, err)
		m.lose(err)
	}
}

var (
	errSilent = errors.New("leasenats: this member was silent for its session")
	errTaken  = errors.New("leasenats: the group has taken this member out")
)

// patience is how long this member goes on when it cannot write. The rest of the session is for its works, to return before others begin.
func (m *member) patience() time.Duration { return m.cfg.Session / 4 * 3 }

// expired: the others will take this member out, or have.
func (m *member) expired() bool { return time.Since(m.kept) >= m.patience() }

// within is a time to wait, cut short by the moment at which patience ends.
func (m *member) within(wait time.Duration) time.Duration {
	if m.expired() {
		return wait
	}
	return min(wait, time.Until(m.kept.Add(m.patience())))
}

// final: trying again will not help. A bucket that is not there may be one that the server has not opened yet, for a while.
func (m *member) final(err error) bool {
	var unreachable *UnreachableError
	return !errors.As(err, &unreachable) || errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, jetstream.ErrStreamNotFound) && m.expired()
}

// running counts the works that have not returned.
func (m *member) running() (n int) {
	for _, t := range m.works {
		if !t.returned {
			n++
		}
	}
	return n
}

// note that a work has returned, and those that have meanwhile.
func (m *member) note(partition int) {
	for {
		m.works[partition].returned = true
		select {
		case partition = <-m.returned:
		default:
			return
		}
	}
}

// lose ends all works: their partitions may be others'.
func (m *member) lose(err error) {
	for p, t := range m.works {
		m.end(p, t, err)
	}
}

// end ends a work; a nil err says that the partition is only to be given back.
func (m *member) end(partition int, t *holding, err error) {
	if t.ended {
		return
	}
	t.ended = true
	if err != nil {
		err = &dispatch.LostError{Partition: m.Group.name(partition), Err: err}
	}
	t.end(err)
}

// round reads the record and writes the next one, until nobody comes in between. It takes a fifth of a Session at most, so that a lost reply
// costs no more than that. A write whose reply is lost is found in the record by the next round.
func (m *member) round(leaving bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(m.ctx), m.within(m.cfg.Session/5))
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
			return m.store.unreachable(err)
		}
		record, wrong := decodeGroup(&m.cfg, value)
		if wrong != "" {
			return &KeyError{Bucket: m.cfg.Bucket, Key: m.key, Reason: wrong}
		}
		if err := record.agrees(&m.cfg); err != nil {
			return err
		}
		started := make(map[int]bool, len(m.works))
		for p, t := range m.works {
			started[p] = t.returned
		}
		record = record.next(m.name, m.cfg.Session, leaving, m.silent(record, asked), started)
		written := time.Now()
		if revision == 0 {
			_, err = m.kv.Create(ctx, m.key, record.encode())
		} else {
			_, err = m.kv.Update(ctx, m.key, record.encode(), revision)
		}
		if err == nil {
			if m.kept = written; m.expired() { // this process stood still before it heard of it
				continue
			}
			m.apply(record)
			return nil
		}
		if !conflict(err) {
			return m.store.unreachable(err)
		}
		select { // the more there are, the more come in between
		case <-ctx.Done():
		case <-time.After(mathrand.N(time.Duration(len(record.Members)+1) * conflictWait)):
		}
	}
}

// silent are the members that have given no new sign of life for their session: from when this one learned of the last until it asked for the
// record. A time in which it could not look is nobody's silence.
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

// apply does what the record says, which is in force: it starts what is new, ends what is gone, and asks for the return of what is too much.
func (m *member) apply(record groupRecord) {
	holds := record.Members[m.name].Holds
	for p, t := range m.works {
		switch held := slices.Contains(holds, p); {
		case !held && t.returned:
			delete(m.works, p)
		case !held && !t.ended:
			m.trouble.Tell(m.cfg.OnError, errTaken)
			m.end(p, t, errTaken)
		}
	}
	working := 0
	for _, p := range holds {
		if m.works[p] == nil {
			m.start(p)
		}
		if !m.works[p].ended {
			working++
		}
	}
	for _, p := range slices.Backward(holds) {
		if t := m.works[p]; working > record.share(m.name) && !t.ended {
			m.end(p, t, nil)
			working--
		}
	}
}

// start starts the work of a partition.
func (m *member) start(partition int) {
	ctx, end := context.WithCancelCause(m.ctx)
	m.works[partition] = &holding{end: end}
	source, of := m.partition(partition)
	go func() {
		defer func() {
			source.Close()
			end(nil)
			m.returned <- partition
		}()
		m.work(ctx, of)
	}()
}
