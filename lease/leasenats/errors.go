// SPDX-License-Identifier: Apache-2.0

package leasenats

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stopbank/stopbank/lease"
)

// unreachableError reports that the server did not answer in time, or could not serve the request. The call may be repeated.
type unreachableError struct {
	bucket string
	err    error
}

func (e *unreachableError) Error() string {
	return fmt.Sprintf("leasenats: bucket %s: %v%s", e.bucket, e.err, advice(e.err))
}

// advice is what an operator can do about an error whose own text does not say.
func advice(err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrNoStreamResponse):
		return ": JetStream does not answer in time. A server turns it off when its disk is full, until it is started again; or it has " +
			"no leader (nats server report jetstream)"
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return ": its positions and ledgers are gone with it. Restore it from a backup, or start all members again, and they begin at " +
			"the stream's first message"
	}
	return ""
}

func (e *unreachableError) Unwrap() error { return e.err }

// unexpectedValue reports that a key holds something that this package did not write: another program's value, or a deletion
// marker. Such a key is neither overwritten nor treated as absent.
func unexpectedValue(bucket, key string, reason error) error {
	return fmt.Errorf("leasenats: bucket %s, key %s: %w", bucket, key, reason)
}

// invalidField rejects a field of a configuration, an argument, or a bucket that would not keep records.
func invalidField(field string, value any, allowed string) *lease.InvalidError {
	return &lease.InvalidError{Field: "leasenats." + field, Value: value, Allowed: allowed}
}
