// SPDX-License-Identifier: Apache-2.0

package leasekafka

// Positions and ledgers are of one topic, by the ID that brokers give to each. Under its name another one may be there: made anew,
// or cut off below the position by an unclean election or a restore.

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// topicID is zero where brokers give none (before Kafka 2.8).
type topicID [16]byte

// text is the ID as Kafka's tools print it.
func (id topicID) text() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// topicMaxAge is the age of metadata by which a topic that was made anew is noticed at the latest.
const topicMaxAge = 10 * time.Second

// topicIDOf returns the ID of a topic, as of maxAge ago or less.
func topicIDOf(ctx context.Context, client *kgo.Client, topic string, maxAge time.Duration) (id topicID, err error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{{Topic: &topic}}
	resp, err := client.RequestCachedMetadata(ctx, req, maxAge)
	switch {
	case err != nil:
		return id, err
	case len(resp.Topics) != 1:
		return id, errElsewhere
	}
	return resp.Topics[0].TopicID, kerr.ErrorForCode(resp.Topics[0].ErrorCode)
}

// Identity implements dispatch.Identified.
func (p *partition) Identity(ctx context.Context) (string, error) {
	id, err := topicIDOf(ctx, p.m.client, p.topic, topicMaxAge)
	if errors.Is(err, kerr.UnknownTopicID) || errors.Is(err, kerr.UnknownTopicOrPartition) {
		err = fmt.Errorf("the topic is gone: make it anew, or stop reading it: %w", err)
		p.m.complaints.report(&p.gone, p.error(err))
	}
	if err != nil {
		return "", p.error(err)
	}
	p.m.complaints.report(&p.gone, nil)
	p.mu.Lock()
	anew := p.unknown || p.topicID != id
	p.mu.Unlock()
	if anew {
		p.m.readAnew(p)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := cmp.Or(p.lost, p.rewound); err != nil || id == (topicID{}) {
		return "", err
	}
	return p.of(id), nil
}

// errAnew is the cause of losing the partitions of a topic that was made anew.
var errAnew = errors.New("leasekafka: the topic was made anew, and is taken again")

// readAnew has the client forget a topic that was made anew, as it stays with the ID that it has seen first, and take it again.
func (m *member) readAnew(p *partition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.ctx.Err() != nil { // as that of all partitions of the topic
		return
	}
	m.anew[p.topic] = true
	for at, other := range m.held {
		if at.topic == p.topic {
			other.lose(errAnew)
		}
	}
	m.calls.Go(func() {
		before, generation := m.client.GroupMetadata()
		m.client.PurgeTopicsFromClient(p.topic)
		for m.alive.Err() == nil {
			<-m.after(retryPause)
			name, now := m.client.GroupMetadata()
			// In the generation of before, the client would take the topic's partitions for assigned.
			if now >= 0 && (name != before || now != generation) && !m.has(p.topic) {
				m.client.AddConsumeTopics(p.topic)
				return
			}
		}
	})
}

// has reports whether the group has assigned a partition of a topic to this member.
func (m *member) has(topic string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for at := range m.assigned {
		if at.topic == topic {
			return true
		}
	}
	return false
}

// of names a topic among those that had its name.
func (p place) of(id topicID) string { return "topic " + p.topic + " of ID " + id.text() }

// rewindLocked has the partition stand still: what it would read is not what its position and its ledger are about.
func (p *partition) rewindLocked(why error) {
	if p.rewound != nil || p.lost != nil {
		return
	}
	p.rewound = dispatch.Rewound(p.name(), fmt.Errorf("leasekafka: %w", why))
	p.paused = true
	p.m.client.PauseFetchPartitions(map[string][]int32{p.topic: {p.partition}})
	p.notifyLocked()
}
