package leasekafka

// This file is a partition that is held, as a dispatch.Source.

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
)

// place names a partition.
type place struct {
	topic     string
	partition int32
}

func (p place) name() string { return p.topic + "/" + strconv.Itoa(int(p.partition)) }

func (p place) error(err error) error { return fmt.Errorf("leasekafka: %s: %w", p.name(), err) }

// partition is one that is held. Records come from the poll loop.
type partition struct {
	place
	m      *member
	member string          // the name of the member that it was given to
	ctx    context.Context // of its work
	cancel context.CancelCauseFunc
	done   chan struct{}          // closed when its work has returned
	ledger lease.Ledger           // its work's, once there is one
	kept   atomic.Pointer[ledger] // the same if it is in memory: what commits say besides the floor

	commitNow chan struct{} // somebody waits for a commit; room for one

	turn chan struct{} // of a commit, room for one: they go one after the other, and who gives the partition away takes the last

	mu      sync.Mutex // guards all below; of the member's only posting is taken under it
	window  window
	floor   int64 // that was committed
	end     int64 // of the log, as the last answer of a broker said
	paused  bool
	full    bool          // nothing new is handed out: a commit could not say much more
	lost    error         // a dispatch.ErrLost, once it is
	trouble error         // why nothing comes, until Fetch has said it
	wanted  *int64        // where Fetch waits for the log to be read from
	changed chan struct{} // closed when any of the above has
}

var (
	_ dispatch.Source = (*partition)(nil)
	_ dispatch.Ended  = (*partition)(nil)
)

// unknownOffset marks a log whose offset has to be looked up first.
const unknownOffset = math.MaxInt64

func (m *member) partition(at place, floor int64, name string) *partition {
	p := &partition{
		place: at, m: m, member: name, done: make(chan struct{}), turn: make(chan struct{}, 1), commitNow: make(chan struct{}, 1),
		floor: floor, changed: make(chan struct{}),
	}
	p.ctx, p.cancel = context.WithCancelCause(m.alive)
	p.window.reset(floor)
	return p
}

// Committed implements dispatch.Source.
func (p *partition) Committed(context.Context) (int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.floor, p.lost
}

// Fetch implements dispatch.Source.
func (p *partition) Fetch(ctx context.Context, from int64, limit int) ([]dispatch.Record, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer func() { p.wanted = nil }()
	for {
		if p.lost != nil {
			return nil, p.lost
		}
		if from >= p.window.start {
			records := p.window.recordsFrom(from, p.room(from, limit))
			p.window.trim(p.floor, p.m.cfg.Window)
			p.flow()
			if len(records) > 0 {
				p.gaps(from, records)
				return records, nil
			}
		} else if p.wanted == nil {
			p.wanted = &from
			p.m.post(func() { p.m.seek(p) })
		}
		if err := p.trouble; err != nil {
			p.trouble = nil
			return nil, p.error(err)
		}
		changed := p.changed
		p.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		p.mu.Lock()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

// changes wakes who waits. The lock is held.
func (p *partition) changes() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// flow stops the fetching when half of the window waits to be read, and lets it go on when a quarter does. The lock is held.
func (p *partition) flow() {
	if p.lost != nil {
		return
	}
	only := map[string][]int32{p.topic: {p.partition}}
	switch waiting := p.window.ahead; {
	case !p.paused && waiting > p.m.cfg.Window/2:
		p.paused = true
		p.m.client.PauseFetchPartitions(only)
	case p.paused && waiting <= p.m.cfg.Window/4:
		p.paused = false
		p.m.client.ResumeFetchPartitions(only)
	}
}

// take takes in what was fetched.
func (p *partition) take(fetched kgo.FetchPartition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost != nil {
		return
	}
	p.end = max(p.end, fetched.HighWatermark)
	for _, r := range fetched.Records {
		p.window.add(p.record(r))
	}
	if fetched.Err != nil {
		p.trouble = fetched.Err
	}
	p.window.trim(p.floor, p.m.cfg.Window)
	p.flow()
	p.changes()
}

// record is r as the dispatcher knows it. Nothing that is appended to its payload can reach what lies behind it.
func (p *partition) record(r *kgo.Record) dispatch.Record {
	record := dispatch.Record{Domain: string(r.Key), Offset: r.Offset, Payload: slices.Clip(r.Value), Time: r.Timestamp}
	if record.Domain == "" {
		record.Domain = dispatch.Keyless(r.Offset)
	}
	for _, h := range r.Headers {
		record.Headers = append(record.Headers, dispatch.Header{Key: h.Key, Value: slices.Clip(h.Value)})
	}
	if p.m.cfg.Domain != nil {
		record.Domain = p.m.cfg.Domain(record)
	}
	return record
}

// Commit implements dispatch.Source. The floor never goes down: one below that of the last commit says what that said, or with a
// ledger in memory, what has changed above it. A commit that was sent goes on when ctx is done: to break it off would break the
// connection, and then it could arrive after the next one.
func (p *partition) Commit(ctx context.Context, floor int64) error {
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	answer := make(chan error, 1)
	p.m.calls.Go(func() {
		defer func() { <-p.turn }()
		answer <- p.commit(ctx, floor)
	})
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// commit has the turn.
func (p *partition) commit(ctx context.Context, floor int64) error {
	for {
		p.mu.Lock()
		lost := p.lost
		floor = max(floor, p.floor)
		p.mu.Unlock()
		if lost != nil {
			return lost
		}
		l := p.kept.Load()
		var said *string
		var changes uint64
		if l != nil {
			said = new(string)
			*said, changes = l.text(floor)
		}
		err := p.m.commit(p, floor, said)
		switch {
		case err == nil:
			if l != nil {
				l.keeps(changes)
			}
			p.committed(floor)
			return nil
		case isGone(err):
			p.lose(err)
			continue
		case !passes(err):
			return p.error(err)
		}
		select { // a rebalance is under way, and will end
		case <-ctx.Done():
			return p.error(err)
		case <-p.m.after(retryPause):
		}
	}
}

// committed lets go of what will not be read again.
func (p *partition) committed(floor int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.floor = floor
	p.window.trim(floor, p.m.cfg.Window)
	p.changes() // there may be room again in what a commit says
}

// lose makes every call fail from now on, and ends the work.
func (p *partition) lose(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost == nil {
		p.lost = dispatch.Lost(p.name(), why)
		p.cancel(p.lost)
		p.changes()
		if l := p.kept.Load(); l != nil {
			l.keeps(0)
		}
	}
}

// release gives the partition away: its work has returned, and after the commit that is under way there is none. One that was
// sent by then has the generation that ends with this rebalance.
func (p *partition) release() {
	p.turn <- struct{}{}
	p.lose(errRevoked)
	<-p.turn
}

// End implements dispatch.Ended. While the fetching is stopped it has to ask.
func (p *partition) End(ctx context.Context) (int64, error) {
	p.mu.Lock()
	paused, end := p.paused, p.end
	p.mu.Unlock()
	if !paused {
		return end, nil
	}
	ends, err := p.m.list(ctx, latest, map[string][]int32{p.topic: {p.partition}})
	if err == nil {
		end = ends[p.place]
	}
	if errors.Is(err, context.Canceled) {
		return 0, err
	}
	if err != nil {
		return 0, p.error(err)
	}
	return end, nil
}
