package leasekafka

// This file holds the errors, each a type with the data.

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/stopbank/stopbank/lease"
)

var (
	// errNoMember is what a member reports that was not in the group when a session had passed.
	errNoMember = errors.New("leasekafka: this member is not in the group: no broker coordinates it, or other members hold the rebalance up")
	// errRevoked is the cause of losing a partition that was given back in a rebalance.
	errRevoked = errors.New("leasekafka: given back to the group")
	// errForgotten is the cause of losing a partition that the group took away: the member sent no heartbeat for SessionTimeout, or
	// did not give the partition back within RebalanceTimeout.
	errForgotten = errors.New("leasekafka: taken away by the group")
)

// invalidField rejects a field of a Config, or an argument: the field as in Config.Limit.
func invalidField(field string, value any, allowed string) *lease.InvalidError {
	return &lease.InvalidError{Field: "leasekafka." + field, Value: value, Allowed: allowed}
}

// GroupError says why the membership cannot go on: the brokers reject it, and would reject it again.
type GroupError struct {
	Group string
	Err   error // the broker's, from kerr
}

func (e *GroupError) Error() string { return fmt.Sprintf("leasekafka: group %s: %v", e.Group, e.Err) }

// Unwrap returns Err.
func (e *GroupError) Unwrap() error { return e.Err }

// SourceError says that a partition could not be read, or its offset not committed. The call may be repeated.
type SourceError struct {
	Topic     string
	Partition int32
	Err       error
}

func (e *SourceError) Error() string {
	return fmt.Sprintf("leasekafka: %s/%d: %v", e.Topic, e.Partition, e.Err)
}

// Unwrap returns Err.
func (e *SourceError) Unwrap() error { return e.Err }

// MetadataError rejects the metadata that another process committed beside an offset: it is of a newer version, or
// damaged. The partition is not processed until a program that can read it takes over, or until the group's offset is
// reset with Kafka's tools.
type MetadataError struct {
	Topic     string
	Partition int32
	Offset    int64
	Reason    string
}

func (e *MetadataError) Error() string {
	return fmt.Sprintf("leasekafka: %s/%d: the metadata of offset %d is %s", e.Topic, e.Partition, e.Offset, e.Reason)
}

// permanentlyRejected reports whether the group will reject this member in every further attempt.
func permanentlyRejected(err error) bool {
	for _, rejection := range []error{
		kerr.InvalidSessionTimeout, kerr.InvalidGroupID, kerr.InconsistentGroupProtocol, kerr.FencedInstanceID, kerr.GroupMaxSizeReached,
		kerr.GroupAuthorizationFailed, kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed, kerr.SaslAuthenticationFailed,
		kerr.UnsupportedSaslMechanism, kerr.UnsupportedVersion,
	} {
		if errors.Is(err, rejection) {
			return true
		}
	}
	return false
}

// isGone reports whether the group rejected a commit because this member no longer belongs to it.
func isGone(err error) bool {
	return errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.FencedInstanceID)
}
