package leasekafka

// This file is a membership: how it begins, what the group gives and takes, and how it ends.

import (
	"context"
	"fmt"
	"iter"
	"maps"
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
	seeks atomic.Int64 // of its members: how often a log had to be read from another place
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
		granted: map[place]bool{}, held: map[place]*partition{}, previous: map[place]chan struct{}{}, interrupt: func() {},
	}
	var end context.CancelFunc
	m.alive, end = context.WithCancel(context.Background())
	defer end()
	m.complaints.report, m.complaints.alive = g.cfg.OnError, m.alive
	client, err := kgo.NewClient(append(g.cfg.options(), kgo.WithContext(m.alive), kgo.WithHooks(&m.complaints),
		kgo.OnPartitionsAssigned(m.joined), kgo.AdjustFetchOffsetsFn(m.assigned), kgo.OnPartitionsRevoked(m.revoked),
		kgo.OnPartitionsLost(m.lost))...)
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
	leaving, cancel := context.WithTimeout(m.alive, min(5*time.Second, g.cfg.Session)) // by then the session has ended anyway
	if client.LeaveGroupContext(leaving) != nil {
		end() // no broker answers
	}
	cancel()
	client.Close()
	end()
	m.calls.Wait()
	return m.err
}

// member is one Hold.
type member struct {
	cfg    GroupConfig
	work   func(context.Context, dispatch.Partition)
	client *kgo.Client
	ready  chan struct{}   // closed when there is a client
	alive  context.Context // the client's
	failed chan struct{}   // closed when the membership has failed
	works  sync.WaitGroup
	calls  sync.WaitGroup // the poll loop, the watch, and running commits
	seeks  *atomic.Int64

	complaints complaints

	mu        sync.Mutex     // guards all up to the next; taken before a partition's lock, never under one
	granted   map[place]bool // what the group has given to this member
	held      map[place]*partition
	previous  map[place]chan struct{} // of partitions that were lost: closed when their work has returned
	finishing bool
	err       error

	posting   sync.Mutex // guards the rest; no lock is taken under it
	posts     []func()
	interrupt context.CancelFunc // of the poll that waits
}

// retryPause is the pause before a retry of a call that another member's action blocks.
const retryPause = 20 * time.Millisecond

// after is like time.After, but leaves nothing behind when the membership ends.
func (m *member) after(wait time.Duration) <-chan struct{} {
	ctx, cancel := context.WithTimeout(m.alive, wait)
	context.AfterFunc(ctx, cancel)
	return ctx.Done()
}

// joined handles a new generation of the group, after its partitions were given back. Partitions lost through a new member name
// start anew.
func (m *member) joined(_ context.Context, client *kgo.Client, added map[string][]int32) {
	m.complaints.tell(&m.complaints.member, nil)
	name := m.named(client)
	m.mu.Lock()
	defer m.mu.Unlock()
	for at := range places(added) {
		m.granted[at] = true
	}
	for at, p := range m.held {
		if p.member != name {
			m.restart(at, name)
		}
	}
}

// restart starts the work of a partition again, at what is committed when its work before has returned. The lock is held.
func (m *member) restart(at place, name string) {
	if p := m.held[at]; p != nil {
		m.previous[at] = p.done
	}
	m.start(at, unknownOffset, name)
}

// watch looks once a session whether this is a member, and compares what the group has given to it with what runs. It starts what
// is missing: the client does not know of a partition that a broker's answer to its commit has ended.
func (m *member) watch() {
	for m.alive.Err() == nil {
		select {
		case <-m.alive.Done():
		case <-m.after(m.cfg.Session):
		}
		name, generation := m.client.GroupMetadata()
		if generation < 0 && !m.complaints.connecting.Lasts() {
			m.complaints.tell(&m.complaints.member, errNoMember)
		}
		for _, at := range m.idle(name) {
			m.complaints.tell(new(episode.Episode),
				fmt.Errorf("leasekafka: partition %s is this member's, and nobody worked on it: its work begins again", at.name()))
		}
	}
}

// idle starts what is missing, and returns it. What was given to another name is begun by joined, or lost.
func (m *member) idle(name string) (begun []place) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for at := range m.granted {
		if p := m.held[at]; !m.finishing && (p == nil || p.ctx.Err() != nil && p.member == name) {
			m.restart(at, name)
			begun = append(begun, at)
		}
	}
	return begun
}

// named returns this member's name. A group that forgets a member while that member joins gives it a new one in passing: the
// client goes on with what it had, and calls nothing lost. But another may have had it in between, so here it is.
func (m *member) named(client *kgo.Client) string {
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

// assigned gets the partitions assigned to this member with their committed offsets, and returns where the client starts to read.
func (m *member) assigned(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	select {
	case <-m.ready:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	name, _ := m.client.GroupMetadata()
	fresh := map[string][]int32{}
	begin := map[place]int64{}
	for topic, partitions := range offsets {
		for partition, offset := range partitions {
			if at := offset.EpochOffset().Offset; at >= 0 {
				begin[place{topic, partition}] = at
			} else {
				fresh[topic] = append(fresh[topic], partition)
			}
		}
	}
	for _, at := range m.passedOver(offsets) {
		if offsets[at.topic] == nil {
			offsets[at.topic] = map[int32]kgo.Offset{}
		}
		// for the client to read it at all; its work asks for its floor, and seeks
		offsets[at.topic][at.partition] = kgo.NewOffset().At(0)
		begin[at] = unknownOffset
	}
	var listing episode.Episode
	for len(fresh) > 0 {
		first, err := m.list(ctx, earliest, fresh)
		if err == nil {
			maps.Copy(begin, first)
			break
		}
		// An error of this function would cost the member all of its partitions.
		m.complaints.tell(&listing, fmt.Errorf("leasekafka: where partitions begin is not known: %w", err))
		select {
		case <-m.after(50 * retryPause):
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	// The poll loop may still have records in its hands of a time when one of these partitions was here before. Between two polls it
	// has none, and the client has forgotten all of them.
	begun := make(chan struct{})
	m.post(func() {
		defer close(begun)
		for at, offset := range begin {
			if position := m.begin(at, offset, name); position != offset || offsets[at.topic][at.partition].EpochOffset().Offset < 0 {
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

// passedOver returns the partitions that the group gave to this member and that the client would not read: the broker did not say
// what is committed there.
func (m *member) passedOver(offsets map[string]map[int32]kgo.Offset) (unread []place) {
	reads := m.client.CommittedOffsets()
	m.mu.Lock()
	defer m.mu.Unlock()
	for at := range m.granted {
		_, comes := offsets[at.topic][at.partition]
		if _, there := reads[at.topic][at.partition]; !comes && !there {
			unread = append(unread, at)
		}
	}
	return unread
}

// begin starts the work of a partition, and returns the offset to read from. After a rebalance the client may call it for a
// running partition, whose work then continues.
func (m *member) begin(at place, floor int64, name string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.held[at]
	if p == nil {
		m.start(at, floor, name)
		return floor
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.window.next == unknownOffset {
		return floor
	}
	return p.window.next
}

// start starts the work of a partition once its previous work here has returned. The lock is held.
func (m *member) start(at place, floor int64, name string) {
	if m.finishing {
		return
	}
	p := m.partition(at, floor, name)
	before := m.previous[at]
	delete(m.previous, at)
	m.held[at] = p
	m.works.Go(func() { m.serve(p, before) })
}

// serve calls the work of a partition until the member loses it.
func (m *member) serve(p *partition, before <-chan struct{}) {
	defer close(p.done)
	if before != nil {
		<-before
	}
	end := p.keep()
	defer end()
	var equipping episode.Episode
	open := func(context.Context) (dispatch.Source, lease.Ledger, error) {
		if err := m.equip(p); err != nil {
			if p.ctx.Err() == nil {
				m.complaints.tell(&equipping,
					fmt.Errorf("leasekafka: the floor or the ledger of partition %s cannot be had: %w", p.name(), err))
			}
			return nil, nil, err
		}
		equipping.Tell(m.cfg.OnError, nil)
		return p, p.ledger, nil
	}
	for p.ctx.Err() == nil {
		source, ledger, err := open(p.ctx)
		of := dispatch.Partition{Name: p.name(), Source: source, Ledger: ledger}
		if err != nil {
			of.Open = open // the work says that it is stalled
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

// equip loads a partition's floor and opens its ledger.
func (m *member) equip(p *partition) (err error) {
	if p.ledger != nil {
		return nil
	}
	inMemory := m.cfg.OpenLedger == nil
	if p.floor == unknownOffset || inMemory { // earlier owners have given p up
		floor, metadata, err := m.committed(p.ctx, p.place)
		if err != nil {
			return err
		}
		p.mu.Lock()
		p.floor = floor
		p.mu.Unlock()
		if inMemory {
			return p.remember(floor, metadata)
		}
	}
	p.ledger, err = m.cfg.OpenLedger(p.ctx, p.name())
	return err
}

// taken returns the held ones of these partitions, which the group takes away.
func (m *member) taken(partitions map[string][]int32) []*partition {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []*partition
	for at := range places(partitions) {
		delete(m.granted, at)
		if p := m.held[at]; p != nil {
			found = append(found, p)
		}
	}
	return found
}

// places are these partitions, one by one.
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

// revoked gives partitions back: it returns when their work has ended. The client keeps sending heartbeats meanwhile.
func (m *member) revoked(_ context.Context, client *kgo.Client, partitions map[string][]int32) {
	m.named(client)
	parts := m.taken(partitions)
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
	client.ResumeFetchPartitions(partitions) // for the next time
}

// lost handles partitions that the group has given to other members. It does not wait for their work; a later owner here does.
func (m *member) lost(_ context.Context, client *kgo.Client, partitions map[string][]int32) {
	for _, p := range m.taken(partitions) {
		p.lose(errForgotten)
		m.mu.Lock()
		delete(m.held, p.place)
		m.previous[p.place] = p.done
		m.mu.Unlock()
	}
	client.ResumeFetchPartitions(partitions)
}

// finish ends all work, and prevents new work.
func (m *member) finish() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.finishing = true
	for _, p := range m.held {
		p.cancel(nil)
	}
}

// fail ends the membership.
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
