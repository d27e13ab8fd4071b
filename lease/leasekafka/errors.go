// SPDX-License-Identifier: Apache-2.0

// The errors of members and letters.

package leasekafka

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/stopbank/stopbank/lease"
)

var (
	// errNoMember is reported by a member that has not joined within a session.
	errNoMember = errors.New("leasekafka: this member is not in the group: " +
		"no broker coordinates it, or other members hold the rebalance up")
	// errRevoked is the cause of losing a partition that was given back in a rebalance.
	errRevoked = errors.New("leasekafka: given back to the group")
	// errForgotten is the cause of losing a partition that the group took away: it received no heartbeat for a Session, or the
	// member did not give the partition back within RebalanceTimeout.
	errForgotten = errors.New("leasekafka: taken away by the group")
)

// invalidField rejects a field of a configuration, an argument, or a topic that would not keep letters.
func invalidField(field string, value any, allowed string) *lease.InvalidError {
	return &lease.InvalidError{Field: "leasekafka." + field, Value: value, Allowed: allowed}
}

// permanentlyRejected reports whether the group will reject this member in every further attempt.
func permanentlyRejected(err error) bool {
	for _, rejection := range []error{
		kerr.InvalidSessionTimeout, kerr.InvalidGroupID, kerr.InconsistentGroupProtocol, kerr.FencedInstanceID,
		kerr.GroupMaxSizeReached,
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
