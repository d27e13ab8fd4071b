// SPDX-License-Identifier: Apache-2.0

package leasekafka

// Positions and ledgers are of one topic, by the ID that brokers give to each. Under its name another one may be there: made anew,
// or cut off below the position by an unclean election or a restore.

import (
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
		err = fmt.Errorf("the topic is gone: if it was made anew, give the group and its ledger new names; or stop reading it: %w", err)
		p.m.complaints.report(&p.gone, p.error(err))
	}
	if err != nil {
		return "", p.error(err)
	}
	p.m.complaints.report(&p.gone, nil)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.topicID != id {
		p.rewindLocked(errors.New("the topic was made anew under this member. Adopt it with leasectl or begin a new group and ledger, " +
			"and start all members again"))
	}
	if p.rewound != nil || id == (topicID{}) {
		return "", p.rewound
	}
	return p.of(id), nil
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
