// SPDX-License-Identifier: Apache-2.0

package leasekafka

// Some requests are made without the client's consumer: commits of single partitions, and lookups of committed, first and last
// offsets.

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The timestamps of a ListOffsets request.
const (
	latest   = -1
	earliest = -2
)

var errElsewhere = errors.New("the broker's answer is not about what was asked")

// isRebalance reports whether err is a rejection that lasts no longer than a rebalance.
func isRebalance(err error) bool {
	return errors.Is(err, kerr.RebalanceInProgress) || errors.Is(err, kerr.IllegalGeneration)
}

// commit commits a partition's offset with the ID of the member that it was assigned to and the current generation, to the topic
// of that ID if brokers can tell. metadata may be nil.
func (m *member) commit(at *partition, id topicID, floor kgo.EpochOffset, metadata *string) error {
	part := kmsg.NewOffsetCommitRequestTopicPartition()
	part.Partition, part.Offset, part.LeaderEpoch, part.Metadata = at.partition, floor.Offset, floor.Epoch, metadata
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic, topic.TopicID, topic.Partitions = at.topic, id, []kmsg.OffsetCommitRequestTopicPartition{part}
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Topics = m.cfg.Group, []kmsg.OffsetCommitRequestTopic{topic}
	req.MemberID = at.member
	_, req.Generation = m.client.GroupMetadata()
	if instance, ok := m.client.OptValue(kgo.InstanceID).(string); ok && instance != "" {
		req.InstanceID = &instance
	}
	resp, err := req.RequestWith(m.alive, m.client)
	if err != nil {
		return err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return errElsewhere
	}
	return kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
}

// committed returns a partition's committed offset and its metadata. Without a commit, it returns the first available offset.
func (m *member) committed(ctx context.Context, at place) (floor kgo.EpochOffset, metadata string, err error) {
	floor.Epoch = -1
	topic := kmsg.NewOffsetFetchRequestTopic()
	topic.Topic, topic.Partitions = at.topic, []int32{at.partition}
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group, req.Topics, req.RequireStable = m.cfg.Group, []kmsg.OffsetFetchRequestTopic{topic}, true
	resp, err := req.RequestWith(ctx, m.client)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return floor, "", err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return floor, "", errElsewhere
	}
	part := resp.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(part.ErrorCode); err != nil {
		return floor, "", err
	}
	if part.Offset >= 0 {
		if part.Metadata != nil {
			metadata = *part.Metadata
		}
		return kgo.EpochOffset{Offset: part.Offset, Epoch: part.LeaderEpoch}, metadata, nil
	}
	first, err := list(ctx, m.client, earliest, map[string][]int32{at.topic: {at.partition}})
	floor.Offset = first[at]
	return floor, "", err
}

// list returns the earliest or the latest offset of each partition. The latest is the one after the last record.
func list(ctx context.Context, client *kgo.Client, which int64, of map[string][]int32) (map[place]int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	for topic, partitions := range of {
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic = topic
		for _, partition := range partitions {
			p := kmsg.NewListOffsetsRequestTopicPartition()
			p.Partition, p.Timestamp = partition, which
			t.Partitions = append(t.Partitions, p)
		}
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	found := map[place]int64{}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return nil, err
			}
			found[place{t.Topic, p.Partition}] = p.Offset
		}
	}
	for topic, partitions := range of {
		for _, partition := range partitions {
			if _, ok := found[place{topic, partition}]; !ok {
				return nil, errElsewhere
			}
		}
	}
	return found, nil
}
