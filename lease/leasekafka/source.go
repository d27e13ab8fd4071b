// SPDX-License-Identifier: Apache-2.0

package leasekafka

// A partition that is held is a dispatch.Source.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/internal/episode"
)

// place names a partition.
type place struct {
	topic     string
	partition int32
}

func (p place) name() string { return p.topic + "/" + strconv.Itoa(int(p.partition)) }

func (p place) error(err error) error { return fmt.Errorf("leasekafka: %s: %w", p.name(), err) }

// partition is a partition that this member holds. The poll loop adds its records.
type partition struct {
	place
	m      *member
	member string          // the ID of the member that it was assigned to
	ctx    context.Context // of its work
	cancel context.CancelCauseFunc
	done   chan struct{}          // closed when its work has returned
	ledger lease.Ledger           // set when it has been opened
	memory atomic.Pointer[ledger] // the engine of ledger if that is in memory

	commitNow chan struct{} // asks for a commit at once; buffers one request

	gone       episode.Episode // the topic is
	committing chan struct{}   // a mutex that can be waited for with a context; held during a commit

	mu       sync.Mutex // guards the rest; of the member's locks only postMu is taken under it
	window   window
	topicID  topicID       // of the topic whose partition was opened
	floor    int64         // the committed one
	end      int64         // of the log, from the last fetch
	paused   bool          // the client does not fetch the partition
	full     bool          // nothing new is handed out because a commit's metadata is nearly full
	lost     error         // a dispatch.ErrLost, once the partition is lost
	rewound  error         // a dispatch.ErrRewound, once the log is another one, until the work begins anew
	fetchErr error         // of the last fetch, until Fetch has returned it
	unknown  bool          // brokers do not know the topic under the ID that the client asks for
	seekTo   *int64        // the offset that Fetch waits for
	changed  chan struct{} // closed when any of the above changes
}

var (
	_ dispatch.Source = (*partition)(nil)
	_ dispatch.Ended  = (*partition)(nil)

	_ dispatch.Identified = (*partition)(nil)
)

// unknownOffset marks a partition whose committed offset has to be looked up first.
const unknownOffset = math.MaxInt64

func (m *member) partition(at place, floor kgo.EpochOffset, name string) *partition {
	p := &partition{
		place: at, m: m, member: name, done: make(chan struct{}), committing: make(chan struct{}, 1), commitNow: make(chan struct{}, 1),
		floor: floor.Offset, changed: make(chan struct{}),
	}
	p.ctx, p.cancel = context.WithCancelCause(m.alive)
	p.window.reset(floor.Offset)
	p.window.leader(math.MinInt64, floor.Epoch)
	return p
}

// Committed implements dispatch.Source.
func (p *partition) Committed(context.Context) (int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.floor, cmp.Or(p.lost, p.rewound)
}

// Fetch implements dispatch.Source.
func (p *partition) Fetch(ctx context.Context, from int64, limit int) ([]dispatch.Record, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer func() { p.seekTo = nil }()
	for {
		if err := cmp.Or(p.lost, p.rewound); err != nil {
			return nil, err
		}
		if from >= p.window.start {
			records := p.window.recordsFrom(from, p.fetchLimitLocked(from, limit))
			p.window.trim(p.floor, p.m.cfg.Window)
			p.adjustFetchingLocked()
			if len(records) > 0 {
				p.recordGapsLocked(from, records)
				return records, nil
			}
		} else if p.seekTo == nil {
			p.seekTo = &from
			p.m.post(func() { p.m.seek(p) })
		}
		if err := p.fetchErr; err != nil {
			p.fetchErr = nil
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

// notifyLocked wakes the calls that wait for a change.
func (p *partition) notifyLocked() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// adjustFetchingLocked pauses the fetching when the records to be read fill half of the window, and resumes it at a quarter.
func (p *partition) adjustFetchingLocked() {
	if p.lost != nil || p.rewound != nil {
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

// addFetched adds fetched records to the window. Its error names the offsets that retention deleted before they could be read.
func (p *partition) addFetched(fetched kgo.FetchPartition) (gone error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost != nil || p.rewound != nil {
		return nil
	}
	if next := p.window.next; len(fetched.Records) > 0 {
		if found := fetched.Records[0].Offset; found < next && next != unknownOffset { // the client does not go back by itself
			p.rewindLocked(fmt.Errorf("the log ended below the offset %d, which was committed or read, and has other records now, from %d "+
				"on: it was made anew, cut off or put back. Stop all members, reset the group's offsets, and begin a new ledger", next, found))
			return nil
		}
		if first := min(fetched.LogStartOffset, fetched.Records[0].Offset); next < first {
			gone = p.error(fmt.Errorf("the log has deleted the offsets from %d to %d: what was not done of them is lost", next, first-1))
		}
	}
	p.end = max(p.end, fetched.HighWatermark)
	for _, r := range fetched.Records {
		p.window.leader(r.Offset, r.LeaderEpoch)
		p.window.add(p.record(r))
	}
	p.unknown = errors.Is(fetched.Err, kerr.UnknownTopicID)
	if fetched.Err != nil {
		p.fetchErr = fetched.Err
	}
	p.window.trim(p.floor, p.m.cfg.Window)
	p.adjustFetchingLocked()
	p.notifyLocked()
	return gone
}

// record converts r. Its slices are clipped, so that appending to them does not overwrite other records.
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

// Commit implements dispatch.Source. The floor never goes down: for one below the last committed floor, it commits that one
// again, with the current metadata of a ledger in memory. A commit that was sent goes on when ctx is done: canceling it would
// close the connection, and then it could arrive after the next one.
func (p *partition) Commit(ctx context.Context, floor int64) error {
	select {
	case p.committing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	result := make(chan error, 1)
	p.m.calls.Go(func() {
		defer func() { <-p.committing }()
		result <- p.commit(ctx, floor)
	})
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// commit is called with committing held. It retries during a rebalance.
func (p *partition) commit(ctx context.Context, floor int64) error {
	for {
		p.mu.Lock()
		lost := cmp.Or(p.lost, p.rewound)
		floor = max(floor, p.floor)
		id, epoch := p.topicID, p.window.epoch(floor)
		p.mu.Unlock()
		if lost != nil {
			return lost
		}
		l := p.memory.Load()
		var metadata *string
		var changes uint64
		if l != nil {
			metadata = new(string)
			*metadata, changes = l.text(floor)
		}
		err := p.m.commit(p, id, kgo.EpochOffset{Epoch: epoch, Offset: floor}, metadata)
		switch {
		case err == nil:
			if l != nil {
				l.markSaved(changes)
			}
			p.committed(floor)
			return nil
		case isGone(err):
			p.lose(err)
			continue
		case !isRebalance(err):
			return p.error(err)
		}
		select { // retry when the rebalance may have ended
		case <-ctx.Done():
			return p.error(err)
		case <-p.m.after(retryPause):
		}
	}
}

// committed records a committed floor and trims the window.
func (p *partition) committed(floor int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.floor = floor
	p.window.trim(floor, p.m.cfg.Window)
	p.notifyLocked() // the metadata may have room again
}

// lose makes every further call fail, and ends the work.
func (p *partition) lose(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost == nil {
		p.lost = dispatch.Lost(p.name(), why)
		p.cancel(p.lost)
		p.notifyLocked()
		if l := p.memory.Load(); l != nil {
			l.markSaved(0)
		}
	}
}

// release gives the partition away once its work has returned. It waits for the commit under way and prevents further ones. A
// commit that was sent by then has the generation that ends with this rebalance.
func (p *partition) release() {
	p.committing <- struct{}{}
	p.lose(errRevoked)
	<-p.committing
}

// End implements dispatch.Ended. While fetching is paused, or has brought nothing yet, it asks a broker.
func (p *partition) End(ctx context.Context) (int64, error) {
	p.mu.Lock()
	known, end, rewound := !p.paused && p.end >= p.window.next, p.end, p.rewound
	p.mu.Unlock()
	if rewound != nil || known {
		return end, rewound
	}
	ends, err := list(ctx, p.m.client, latest, map[string][]int32{p.topic: {p.partition}})
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
