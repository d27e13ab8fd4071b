package leasenats

// This file holds the errors, each a type with the data.

import (
	"fmt"

	"github.com/stopbank/stopbank/lease"
)

// BucketError rejects an existing bucket that would not keep a ledger's records.
type BucketError struct {
	Bucket  string
	Field   string // of the stream's configuration, as jetstream.StreamConfig names it
	Value   any
	Allowed string
}

func (e *BucketError) Error() string {
	return fmt.Sprintf("leasenats: bucket %s: %s is %v; allowed: %s", e.Bucket, e.Field, e.Value, e.Allowed)
}

// KeyError says that a key of the ledger holds something that the ledger did not write: a foreign value, or a deletion
// marker. The key is not taken for a domain never seen, and not overwritten.
type KeyError struct {
	Bucket string
	Key    string
	Reason string
}

func (e *KeyError) Error() string {
	return fmt.Sprintf("leasenats: bucket %s, key %s: %s", e.Bucket, e.Key, e.Reason)
}

// UnreachableError says that the server did not answer, or not in time. The call may be repeated.
type UnreachableError struct {
	Bucket string
	Err    error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("leasenats: bucket %s: %v", e.Bucket, e.Err)
}

// Unwrap returns the client's error.
func (e *UnreachableError) Unwrap() error { return e.Err }

// invalidField rejects a field of a Config, or an argument: the field as in Config.Limit.
func invalidField(field string, value any, allowed string) *lease.InvalidError {
	return &lease.InvalidError{Field: "leasenats." + field, Value: value, Allowed: allowed}
}
