package leasekafka

// This file is the poll loop: the one goroutine that takes records from the client, and that tells it where to read.

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// post has f run by the poll loop, between two polls.
func (m *member) post(f func()) {
	m.posting.Lock()
	defer m.posting.Unlock()
	m.posts = append(m.posts, f)
	m.interrupt()
}

// poll goes on until the client is closed. It waits for nobody: what has no room stays with the brokers.
func (m *member) poll() {
	for m.alive.Err() == nil {
		ctx, cancel := context.WithCancel(m.alive)
		m.posting.Lock()
		posts := m.posts
		m.posts, m.interrupt = nil, cancel
		m.posting.Unlock()
		for _, f := range posts {
			f()
		}
		fetches := m.client.PollFetches(ctx)
		cancel()
		if fetches.IsClientClosed() {
			return
		}
		m.distribute(fetches)
	}
}

// distribute gives each partition what was fetched of it.
func (m *member) distribute(fetches kgo.Fetches) {
	fetches.EachPartition(func(fetched kgo.FetchTopicPartition) {
		m.mu.Lock()
		p := m.held[place{fetched.Topic, fetched.Partition}]
		m.mu.Unlock()
		if p != nil {
			p.take(fetched.FetchPartition)
			return
		}
		var session *kgo.ErrGroupSession
		if errors.As(fetched.Err, &session) && permanentlyRejected(session.Err) {
			m.fail(session.Err)
		}
	})
}

// seek has the log read from where Fetch waits for it.
func (m *member) seek(p *partition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wanted == nil || p.lost != nil {
		return
	}
	to := kgo.EpochOffset{Epoch: -1, Offset: *p.wanted}
	m.client.SetOffsets(map[string]map[int32]kgo.EpochOffset{p.topic: {p.partition: to}})
	if m.client.CommittedOffsets()[p.topic][p.partition] != to {
		// The client passes over a partition that it has not begun to read, or that the group is about to take away.
		time.AfterFunc(retryPause, func() { m.post(func() { m.seek(p) }) })
		return
	}
	m.seeks.Add(1)
	p.window.reset(to.Offset)
	p.flow()
	p.changes()
}
