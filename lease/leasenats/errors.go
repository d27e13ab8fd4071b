package leasenats

// This file holds the errors.

import (
	"fmt"

	"github.com/stopbank/stopbank/lease"
)

// unreachableError says that the server did not answer, or not in time, so that the call may be repeated.
type unreachableError struct {
	bucket string
	err    error
}

func (e *unreachableError) Error() string {
	return fmt.Sprintf("leasenats: bucket %s: %v", e.bucket, e.err)
}

func (e *unreachableError) Unwrap() error { return e.err }

// foreignKey says that a key holds something that this package did not write: a foreign value, or a deletion marker. It is
// neither taken for a key never written nor overwritten.
func foreignKey(bucket, key, reason string) error {
	return fmt.Errorf("leasenats: bucket %s, key %s: %s", bucket, key, reason)
}

// invalidField rejects a field of a configuration, an argument, or a bucket that would not keep records.
func invalidField(field string, value any, allowed string) *lease.InvalidError {
	return &lease.InvalidError{Field: "leasenats." + field, Value: value, Allowed: allowed}
}
