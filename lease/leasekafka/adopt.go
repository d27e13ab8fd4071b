// SPDX-License-Identifier: Apache-2.0

package leasekafka

// A group's offsets that are of a topic that is another one now can be told to take that for their own.

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/stopbank/stopbank/lease/internal/adopt"
)

// Bindings is for leasectl: the offsets of a group that say which topic they are of, which those with a ledger in memory do. It
// blocks for a request, and two for each. Errors: the client's, or the broker's.
func Bindings(ctx context.Context, client *kgo.Client, group string) (all []adopt.Binding, err error) {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group, req.Topics, req.RequireStable = group, nil, true
	resp, err := req.RequestWith(ctx, client)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return nil, err
	}
	for _, topic := range resp.Topics {
		for _, part := range topic.Partitions {
			if err := kerr.ErrorForCode(part.ErrorCode); err != nil {
				return nil, err
			}
			at := place{topic.Topic, part.Partition}
			if part.Metadata == nil {
				continue
			}
			m, wrong := readMemo(*part.Metadata, part.Offset)
			if wrong != "" {
				return nil, at.error(fmt.Errorf("the metadata of offset %d is %s", part.Offset, wrong))
			}
			if m.topic == (topicID{}) {
				continue
			}
			is, err := topicIDOf(ctx, client, at.topic, topicMaxAge)
			b := adopt.Binding{Name: at.name(), Of: at.of(m.topic), Is: at.of(is), Adopt: func(ctx context.Context) error {
				m.topic = is
				return at.rewrite(ctx, client, group, is, part.Offset, m.text(part.Offset))
			}}
			if err != nil {
				b.Is, b.Bars = "", err
			} else if ends, err := list(ctx, client, latest, map[string][]int32{at.topic: {at.partition}}); err != nil {
				b.Bars = at.error(err)
			} else {
				b.Bars = adopt.Beyond("leasekafka.offset", part.Offset, ends[at])
			}
			all = append(all, b)
		}
	}
	return all, nil
}

// rewrite commits an offset again, which a group without members lets everybody do.
func (p place) rewrite(ctx context.Context, client *kgo.Client, group string, id topicID, offset int64, metadata string) error {
	part := kmsg.NewOffsetCommitRequestTopicPartition()
	part.Partition, part.Offset, part.LeaderEpoch, part.Metadata = p.partition, offset, -1, &metadata
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic, topic.TopicID, topic.Partitions = p.topic, id, []kmsg.OffsetCommitRequestTopicPartition{part}
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation, req.Topics = group, -1, []kmsg.OffsetCommitRequestTopic{topic}
	resp, err := req.RequestWith(ctx, client)
	switch {
	case err != nil:
		return p.error(err)
	case len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1:
		return p.error(errElsewhere)
	}
	if err := kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode); err != nil {
		return p.error(fmt.Errorf("stop all members of the group first: %w", err))
	}
	return nil
}
