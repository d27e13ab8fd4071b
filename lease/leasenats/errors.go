package leasenats

// This file holds the errors, each a type with fields under a sentinel.

import (
	"errors"
	"fmt"
)

var (
	// ErrInvalid marks an *InvalidError.
	ErrInvalid = errors.New("leasenats: invalid value")
)

// BucketError refuses a bucket that was there before and would not keep what a ledger puts into it.
type BucketError struct {
	Bucket  string
	Field   string // of the stream's configuration, as jetstream.StreamConfig names it
	Value   any
	Allowed string
}

func (e *BucketError) Error() string {
	return fmt.Sprintf("leasenats: bucket %s: %s is %v; allowed: %s", e.Bucket, e.Field, e.Value, e.Allowed)
}

// KeyError says that a key among those of the ledger holds what the ledger did not put there: a value of somebody else's, or the marker of a
// deletion. It is not taken for a domain never seen. Nothing is overwritten.
type KeyError struct {
	Bucket string
	Key    string
	Reason string
}

func (e *KeyError) Error() string {
	return fmt.Sprintf("leasenats: bucket %s, key %s: %s", e.Bucket, e.Key, e.Reason)
}

// UnreachableError says that the server did not answer, or not in time. The call may be made again.
type UnreachableError struct {
	Bucket string
	Err    error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("leasenats: bucket %s: %v", e.Bucket, e.Err)
}

// Unwrap returns what the client said.
func (e *UnreachableError) Unwrap() error { return e.Err }

// InvalidError refuses a field of a Config, or an argument.
type InvalidError struct {
	Field   string // as in Config.Bucket or GroupConfig.Stream; or the parameter's name
	Value   any
	Allowed string
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("leasenats: %s is %v; allowed: %s", e.Field, e.Value, e.Allowed)
}

// Unwrap returns ErrInvalid.
func (e *InvalidError) Unwrap() error { return ErrInvalid }
