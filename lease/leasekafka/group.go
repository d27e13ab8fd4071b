// SPDX-License-Identifier: Apache-2.0

package leasekafka

// A Group is a member of a consumer group: it calls work for each partition that the group assigns to it.

import (
	"context"
	"fmt"
	"iter"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/internal/episode"
)

// Group is membership of a consumer group. It must come from OpenGroup. Hold may be called again, also concurrently:
// every call is a member of its own.
type Group struct {
	cfg   GroupConfig
	seeks atomic.Int64 // how often its members had to seek
}

var _ dispatch.Ownership = (*Group)(nil)

// OpenGroup returns a Group. It neither connects nor blocks: Hold joins. ctx bounds nothing here, and must not be nil.
// Error: *lease.InvalidError naming the field.
func OpenGroup(ctx context.Context, cfg GroupConfig) (*Group, error) {
	if ctx == nil {
		return nil, invalidField("ctx", "nil", "a context")
	}
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	return &Group{cfg: cfg}, nil
}

// DrainTimeout is that of the GroupConfig, by which dispatch.NewConsumer bounds its own. 0 for a nil or zero Group.
func (g *Group) DrainTimeout() time.Duration {
	if g == nil {
		return 0
	}
	return g.cfg.DrainTimeout
}

// Hold implements dispatch.Ownership: it joins the group and calls work for each assigned partition. It waits for
// unreachable brokers and missing topics. Kafka cannot give back a single partition whose work returns early: work is
// called for it again after a second. When ctx is done, works are ended and waited for while the membership goes on;
// then the member leaves, which takes 5 s at most if no broker answers. Errors: the broker's, from kerr, when the group
// rejects this member for good, and *lease.InvalidError.
func (g *Group) Hold(ctx context.Context, work func(ctx context.Context, partition dispatch.Partition)) error {
	switch {
	case g == nil || g.cfg.Group == "":
		return invalidField("Group", "nil or zero", "a group made by OpenGroup")
	case ctx == nil:
		return invalidField("ctx", "nil", "a context")
	case work == nil:
		return invalidField("work", "nil", "a function")
	}
	m := &member{
		cfg: g.cfg, work: work, seeks: &g.seeks, ready: make(chan struct{}), failed: make(chan struct{}),
		assigned: map[place]bool{}, held: map[place]*partition{}, previous: map[place]chan struct{}{}, anew: map[string]bool{},
		interrupt: func() {},
	}
	var end context.CancelFunc
	m.alive, end = context.WithCancel(context.Background())
	defer end()
	m.complaints.onError, m.complaints.alive = g.cfg.OnError, m.alive
	client, err := kgo.NewClient(append(g.cfg.options(), kgo.WithContext(m.alive), kgo.WithHooks(&m.complaints),
		kgo.OnPartitionsAssigned(m.onAssigned), kgo.AdjustFetchOffsetsFn(m.onOffsets), kgo.OnPartitionsRevoked(m.onRevoked),
		kgo.OnPartitionsLost(m.onLost))...)
	if err != nil {
		return invalidField("GroupConfig.Options", err.Error(), "options that kgo.NewClient accepts")
	}
	m.client = client
	close(m.ready)
	m.calls.Go(m.poll)
	m.calls.Go(m.watch)

	select {
	case <-ctx.Done():
	case <-m.failed:
	}
	m.finish()
	m.works.Wait()
	leaving, cancel := context.WithTimeout(m.alive, min(5*time.Second, g.cfg.Session)) // the session ends no later
	_ = client.LeaveGroupContext(leaving)
	cancel()
	end() // before Close, so that connections that it ends are not reported
	client.Close()
	m.calls.Wait()
	return m.err
}

// member is one Hold.
type member struct {
	cfg    GroupConfig
	work   func(context.Context, dispatch.Partition)
	client *kgo.Client
	ready  chan struct{}   // closed when client is set
	alive  context.Context // the client's; ends when Hold does
	failed chan struct{}   // closed when the membership has failed
	works  sync.WaitGroup
	calls  sync.WaitGroup // the poll loop, the watch, and running commits
	seeks  *atomic.Int64

	complaints complaints

	mu        sync.Mutex              // guards all up to postMu; taken before a partition's lock, never under one
	assigned  map[place]bool          // the partitions that the group has assigned to this member
	held      map[place]*partition    // the partitions with work
	previous  map[place]chan struct{} // of lost partitions: closed when their work has returned
	anew      map[string]bool         // topics that were made anew
	finishing bool
	err       error

	postMu    sync.Mutex         // guards the rest; no lock is taken under it
	posts     []func()           // to be run by the poll loop
	interrupt context.CancelFunc // ends the current poll
}

// retryPause is the pause before a retry of a call that another member's action blocks.
const retryPause = 20 * time.Millisecond

// after is like time.After, and also ends with the membership.
func (m *member) after(wait time.Duration) <-chan struct{} {
	ctx, cancel := context.WithTimeout(m.alive, wait)
	context.AfterFunc(ctx, cancel)
	return ctx.Done()
}

// onAssigned handles a new generation of the group, after partitions were revoked. The work of partitions that were lost because
// this member has a new ID starts again.
func (m *member) onAssigned(_ context.Context, client *kgo.Client, added map[string][]int32) {
	m.complaints.report(&m.complaints.member, nil)
	name := m.memberID(client)
	m.mu.Lock()
	defer m.mu.Unlock()
	for at := range places(added) {
		m.assigned[at] = true
	}
	for at, p := range m.held {
		if p.member != name {
			m.restartLocked(at, name)
		}
	}
}

// restartLocked starts the work of a partition again, from the committed offset, once its previous work has returned.
func (m *member) restartLocked(at place, name string) {
	if p := m.held[at]; p != nil {
		m.previous[at] = p.done
	}
	m.startLocked(at, kgo.EpochOffset{Offset: unknownOffset, Epoch: -1}, name)
}

// watch checks once a session whether this member is in the group, and starts the work of assigned partitions that have none. The
// client does not notice when a broker rejects a commit and the partition's work ends.
func (m *member) watch() {
	for m.alive.Err() == nil {
		select {
		case <-m.alive.Done():
		case <-m.after(m.cfg.Session):
		}
		name, generation := m.client.GroupMetadata()
		if generation < 0 && !m.complaints.connecting.Lasts() {
			m.complaints.report(&m.complaints.member, errNoMember)
		}
		for _, at := range m.restartIdle(name) {
			m.complaints.report(new(episode.Episode),
				fmt.Errorf("leasekafka: partition %s is this member's, and nobody worked on it: its work begins again", at.name()))
		}
	}
}

// restartIdle starts the work of assigned partitions that have none, and returns them. Partitions of an earlier ID of this member
// are left to onAssigned and onLost.
func (m *member) restartIdle(name string) (started []place) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for at := range m.assigned {
		if p := m.held[at]; !m.finishing && (p == nil || p.ctx.Err() != nil && p.member == name) {
			m.restartLocked(at, name)
			started = append(started, at)
		}
	}
	return started
}

// memberID returns this member's ID, and loses the partitions of an earlier one. If the group forgets a member while it joins,
// the member gets a new ID, and the client keeps its partitions without calling onLost, although another member may have owned
// them in between.
func (m *member) memberID(client *kgo.Client) string {
	name, _ := client.GroupMetadata()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.held {
		if p.member != name {
			p.lose(errForgotten)
		}
	}
	return name
}

// onOffsets gets the partitions assigned to this member with their committed offsets, and returns where the client starts to
// read.
func (m *member) onOffsets(
	ctx context.Context, offsets map[string]map[int32]kgo.Offset,
) (map[string]map[int32]kgo.Offset, error) {
	select {
	case <-m.ready:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	name, _ := m.client.GroupMetadata()
	uncommitted := map[string][]int32{}
	begin := map[place]kgo.EpochOffset{}
	for topic, partitions := range offsets {
		for partition, offset := range partitions {
			if at := offset.EpochOffset(); at.Offset >= 0 {
				begin[place{topic, partition}] = at
			} else {
				uncommitted[topic] = append(uncommitted[topic], partition)
			}
		}
	}
	for _, at := range m.unread(offsets) {
		if offsets[at.topic] == nil {
			offsets[at.topic] = map[int32]kgo.Offset{}
		}
		// Any offset makes the client read the partition; its work looks up the committed one and seeks.
		offsets[at.topic][at.partition] = kgo.NewOffset().At(0)
		begin[at] = kgo.EpochOffset{Offset: unknownOffset, Epoch: -1}
	}
	var listing episode.Episode
	for len(uncommitted) > 0 {
		first, err := list(ctx, m.client, earliest, uncommitted)
		if err == nil {
			for at, offset := range first {
				begin[at] = kgo.EpochOffset{Offset: offset, Epoch: -1}
			}
			break
		}
		// An error of this function would cost the member all of its partitions.
		m.complaints.report(&listing, fmt.Errorf("leasekafka: where partitions begin is not known: %w", err))
		select {
		case <-m.after(50 * retryPause):
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	// The poll loop may still hold records that were fetched when one of these partitions was assigned before. Between two polls it
	// holds none, and the client has dropped them.
	begun := make(chan struct{})
	m.post(func() {
		defer close(begun)
		for at, floor := range begin {
			if position := m.begin(at, floor, name); position != floor.Offset || offsets[at.topic][at.partition].EpochOffset().Offset < 0 {
				offsets[at.topic][at.partition] = kgo.NewOffset().At(position)
			}
		}
	})
	select {
	case <-begun:
	case <-m.alive.Done():
		return nil, m.alive.Err()
	}
	return offsets, ctx.Err()
}

// unread returns the assigned partitions that the client would not read, because the broker did not return their committed
// offset.
func (m *member) unread(offsets map[string]map[int32]kgo.Offset) (unread []place) {
	reads := m.client.CommittedOffsets()
	m.mu.Lock()
	defer m.mu.Unlock()
	for at := range m.assigned {
		_, comes := offsets[at.topic][at.partition]
		if _, there := reads[at.topic][at.partition]; !comes && !there {
			unread = append(unread, at)
		}
	}
	return unread
}

// begin starts the work of a partition, and returns the offset to read from. After a rebalance the client may call it for a
// running partition, whose work then continues.
func (m *member) begin(at place, floor kgo.EpochOffset, name string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.held[at]
	switch {
	case p == nil && m.anew[at.topic]:
		m.restartLocked(at, name) // nothing is read until the dispatcher has taken the topic for the right one
		return floor.Offset
	case p == nil:
		m.startLocked(at, floor, name)
		return floor.Offset
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.window.next == unknownOffset {
		return floor.Offset
	}
	return p.window.next
}

// startLocked starts the work of a partition once its previous work in this process has returned.
func (m *member) startLocked(at place, floor kgo.EpochOffset, name string) {
	if m.finishing {
		return
	}
	m.client.ResumeFetchPartitions(map[string][]int32{at.topic: {at.partition}}) // if the former work has paused it
	p := m.partition(at, floor, name)
	before := m.previous[at]
	delete(m.previous, at)
	m.held[at] = p
	m.works.Go(func() { m.serve(p, before) })
}

// serve calls work for a partition until the member loses it.
func (m *member) serve(p *partition, before <-chan struct{}) {
	defer close(p.done)
	if before != nil {
		<-before
	}
	end := p.commitChanges()
	defer end()
	var opening episode.Episode
	open := func(context.Context) (dispatch.Source, lease.Ledger, error) {
		if err := m.openLedger(p); err != nil {
			if p.ctx.Err() == nil {
				m.complaints.report(&opening,
					fmt.Errorf("leasekafka: the floor or the ledger of partition %s cannot be had: %w", p.name(), err))
			}
			return nil, nil, err
		}
		opening.Tell(m.cfg.OnError, nil)
		return p, p.ledger, nil
	}
	for p.ctx.Err() == nil {
		source, ledger, err := open(p.ctx)
		of := dispatch.Partition{Name: p.name(), Source: source, Ledger: ledger}
		if err != nil {
			of.Open = open // until it succeeds, the dispatcher reports the partition as stalled
		}
		m.work(p.ctx, of)
		pause := time.NewTimer(time.Second)
		select {
		case <-p.ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
	}
}

// openLedger loads a partition's floor and opens its ledger.
func (m *member) openLedger(p *partition) (err error) {
	if p.ledger != nil {
		return nil
	}
	id, err := topicIDOf(p.ctx, m.client, p.topic, time.Second)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.topicID = id
	unknown := p.floor == unknownOffset // an earlier call's commit may be under way
	p.mu.Unlock()
	inMemory := m.cfg.OpenLedger == nil
	if unknown || inMemory { // the offset may have been fetched before the previous owner's last commit
		floor, metadata, err := m.committed(p.ctx, p.place)
		if err != nil {
			return err
		}
		p.mu.Lock()
		p.floor = floor.Offset
		p.window.leader(math.MinInt64, floor.Epoch)
		p.mu.Unlock()
		if inMemory {
			return p.restoreLedger(floor.Offset, metadata)
		}
	}
	p.ledger, err = m.cfg.OpenLedger(p.ctx, p.name())
	return err
}

// unassign records that the group takes partitions away, and returns those that are held.
func (m *member) unassign(partitions map[string][]int32) []*partition {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []*partition
	for at := range places(partitions) {
		delete(m.assigned, at)
		if p := m.held[at]; p != nil {
			found = append(found, p)
		}
	}
	return found
}

// places iterates over partitions.
func places(partitions map[string][]int32) iter.Seq[place] {
	return func(yield func(place) bool) {
		for topic, numbers := range partitions {
			for _, number := range numbers {
				if !yield(place{topic, number}) {
					return
				}
			}
		}
	}
}

// onRevoked gives partitions back: it returns when their work has ended. The client keeps sending heartbeats meanwhile.
func (m *member) onRevoked(_ context.Context, client *kgo.Client, partitions map[string][]int32) {
	m.memberID(client)
	parts := m.unassign(partitions)
	for _, p := range parts {
		p.cancel(nil)
	}
	for _, p := range parts {
		<-p.done
		p.release()
		m.mu.Lock()
		delete(m.held, p.place)
		m.mu.Unlock()
	}
	client.ResumeFetchPartitions(partitions) // in case they are assigned again
}

// onLost handles partitions that the group has given to other members. It does not wait for their work to end; start does if a
// partition is assigned again.
func (m *member) onLost(_ context.Context, client *kgo.Client, partitions map[string][]int32) {
	for _, p := range m.unassign(partitions) {
		p.lose(errForgotten)
		m.mu.Lock()
		delete(m.held, p.place)
		m.previous[p.place] = p.done
		m.mu.Unlock()
	}
	client.ResumeFetchPartitions(partitions)
}

// finish ends all works, and prevents new ones.
func (m *member) finish() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.finishing = true
	for _, p := range m.held {
		p.cancel(nil)
	}
}

// fail ends the membership with an error that Hold returns.
func (m *member) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil {
		m.err = fmt.Errorf("leasekafka: group %s: %w", m.cfg.Group, err)
		close(m.failed)
	}
}

// log writes to the client's logger.
func (m *member) log(message string, pairs ...any) {
	if logger, ok := m.client.OptValue(kgo.WithLogger).(kgo.Logger); ok && logger.Level() >= kgo.LogLevelWarn {
		logger.Log(kgo.LogLevelWarn, "leasekafka: "+message, append([]any{"group", m.cfg.Group}, pairs...)...)
	}
}
