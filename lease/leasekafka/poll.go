// SPDX-License-Identifier: Apache-2.0

package leasekafka

// One goroutine, the poll loop, takes records from the client and seeks.

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/stopbank/stopbank/lease/internal/episode"
)

// post makes the poll loop run f between two polls. It does not wait for it.
func (m *member) post(f func()) {
	m.postMu.Lock()
	defer m.postMu.Unlock()
	m.posts = append(m.posts, f)
	m.interrupt()
}

// poll runs until the client is closed. It never waits for a dispatcher: partitions with a full window are not fetched.
func (m *member) poll() {
	for m.alive.Err() == nil {
		ctx, cancel := context.WithCancel(m.alive)
		m.postMu.Lock()
		posts := m.posts
		m.posts, m.interrupt = nil, cancel
		m.postMu.Unlock()
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

// distribute adds the fetched records to the partitions' windows.
func (m *member) distribute(fetches kgo.Fetches) {
	fetches.EachPartition(func(fetched kgo.FetchTopicPartition) {
		m.mu.Lock()
		p := m.held[place{fetched.Topic, fetched.Partition}]
		m.mu.Unlock()
		if p != nil {
			m.complaints.report(new(episode.Episode), p.addFetched(fetched.FetchPartition))
			return
		}
		var session *kgo.ErrGroupSession
		if errors.As(fetched.Err, &session) && permanentlyRejected(session.Err) {
			m.fail(session.Err)
		}
	})
}

// seek makes the client read from the offset that Fetch waits for.
func (m *member) seek(p *partition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seekTo == nil || p.lost != nil {
		return
	}
	to := kgo.EpochOffset{Epoch: -1, Offset: *p.seekTo}
	m.client.SetOffsets(map[string]map[int32]kgo.EpochOffset{p.topic: {p.partition: to}})
	if m.client.CommittedOffsets()[p.topic][p.partition] != to {
		// The client ignores a partition that it has not begun to read, or that is about to be revoked.
		time.AfterFunc(retryPause, func() { m.post(func() { m.seek(p) }) })
		return
	}
	m.seeks.Add(1)
	p.window.reset(to.Offset)
	p.adjustFetchingLocked()
	p.notifyLocked()
}
