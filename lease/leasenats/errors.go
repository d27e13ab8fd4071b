// SPDX-License-Identifier: Apache-2.0

package leasenats

import (
	"fmt"

	"github.com/stopbank/stopbank/lease"
)

// unreachableError reports that the server did not answer in time, or could not serve the request. The call may be repeated.
type unreachableError struct {
	bucket string
	err    error
}

func (e *unreachableError) Error() string {
	return fmt.Sprintf("leasenats: bucket %s: %v", e.bucket, e.err)
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
