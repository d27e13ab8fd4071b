// SPDX-License-Identifier: Apache-2.0

package dispatch

// This file holds the errors: of New, of Run, and of attempts besides the handler's own.

import (
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"time"

	"github.com/stopbank/stopbank/lease"
)

var (
	// ErrDrain says that a drain left something unfinished: handlers that were still running, or whose outcome could not be
	// written to the ledger, which the text counts as abandoned; or the floor was not committed, for the reason wrapped.
	// Nothing is lost: leases are released, and the next owner of the partition goes on.
	ErrDrain = errors.New("dispatch: drain incomplete")
	// ErrLost says that the partition belongs to another member of the group, or to none. See Lost.
	ErrLost = errors.New("dispatch: partition lost")
	// ErrRewound says that the log is not the one that was read before, or lost its end: it was made anew, put back or replaced.
	// See Rewound.
	ErrRewound = errors.New("dispatch: the log is another one, or was put back")
	// ErrPermanent, wrapped in a handler's error, gives the record up at once: another attempt would fail too.
	ErrPermanent = errors.New("dispatch: permanent failure")
	// ErrDied is the failure of a record whose process died during the last attempt.
	ErrDied = errors.New("dispatch: the last attempt ended with its process")
	// ErrRecordGone is the failure of a record that the ledger has and the Source has lost. It is retried and given up
	// like any other.
	ErrRecordGone = errors.New("dispatch: the source has lost the record")

	errGoexit  = errors.New("dispatch: handler called runtime.Goexit")
	errNothing = errors.New("dispatch: Fetch returned neither records nor an error")
)

// invalidField rejects a field of a Config, or an argument: the field as in Config.Limit.
func invalidField(field string, value any, allowed string) *lease.InvalidError {
	return &lease.InvalidError{Field: "dispatch." + field, Value: value, Allowed: allowed}
}

func allowed[T any](zero, most T) string {
	return fmt.Sprintf("above 0 to %v, or 0 (the default, %v)", most, zero)
}

// PanicError is the failure of a Handler or a DeadLetter function that panicked. errors.As finds it in the error of a Rate, RateOf
// or Owner that did.
type PanicError struct {
	Value any    // of the panic
	Stack []byte // as runtime/debug.Stack returns it
}

func (e *PanicError) Error() string { return fmt.Sprintf("dispatch: panic: %v", e.Value) }

// Unwrap returns Value if it is an error, and nil otherwise.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// panicked is the error of a function of the Config that must not panic.
func panicked(function string, value any) error {
	return fmt.Errorf("dispatch: Config.%s: %w", function, &PanicError{Value: value, Stack: debug.Stack()})
}

// Later is a handler's error to be called again after wait, a year at most, or after Backoff if wait is 0 or less. It is not a
// failure and not counted as an attempt, except that a suspect's was counted before; the record keeps its domain waiting. A new
// owner of the partition does not know of the wait.
func Later(wait time.Duration) error { return &later{wait} }

type later struct{ wait time.Duration }

func (e *later) Error() string { return "dispatch: retry after " + e.wait.String() }

// ordered rejects all of a batch that begins below from or does not rise: dropping the record out of order would lose it.
func ordered(from int64, records []Record) error {
	for i, r := range records {
		switch {
		case i == 0 && r.Offset < from:
			return outOfOrder(from, r.Offset, fmt.Sprintf("%d or more", from))
		case r.Offset == math.MaxInt64: // nothing could follow: a floor is the offset after it
			return outOfOrder(from, r.Offset, fmt.Sprintf("less than %d", int64(math.MaxInt64)))
		case i > 0 && r.Offset <= records[i-1].Offset:
			return outOfOrder(from, r.Offset, fmt.Sprintf("more than %d, the offset before", records[i-1].Offset))
		}
	}
	return nil
}

func outOfOrder(from, offset int64, allowed string) error {
	return invalidField(fmt.Sprintf("Source.Fetch: an offset from %d on", from), offset, allowed)
}

// drainError is an ErrDrain.
type drainError struct {
	name      string
	abandoned int
	commit    error // why the floor was not committed; nil if it was
}

func (e *drainError) Error() string {
	text := fmt.Sprintf("dispatch: %s drained with %d abandoned", e.name, e.abandoned)
	if e.commit != nil {
		text += ", commit: " + e.commit.Error()
	}
	return text
}

func (e *drainError) Is(target error) bool { return target == ErrDrain }
func (e *drainError) Unwrap() error        { return e.commit }

// Lost returns an error that says that the partition belongs to another member of the group, or to none, because of reason,
// which may be nil. A Source returns it; an Ownership ends the context of a partition with it as the cause; a Run that meets
// it ends with it, and unfinished records are left to the next owner. errors.Is finds ErrLost in it.
func Lost(partition string, reason error) error {
	return &partitionError{ErrLost, partition, "lost", reason}
}

// Rewound returns an error that says that the log of a partition is not the one that its position and its ledger are about,
// because of reason, which may be nil and says what an operator can do. A Source returns it, or Partition.Open does: the partition
// is then neither read nor committed, says that it is Stalled (rewound) at once, and is asked again after pauses. errors.Is finds
// ErrRewound in it.
func Rewound(partition string, reason error) error {
	return &partitionError{ErrRewound, partition, "rewound", reason}
}

// partitionError is an ErrLost or an ErrRewound.
type partitionError struct {
	family          error
	partition, what string
	reason          error
}

func (e *partitionError) Error() string {
	text := "dispatch: partition " + e.partition + " " + e.what
	if e.reason != nil {
		text += ": " + e.reason.Error()
	}
	return text
}

func (e *partitionError) Is(target error) bool { return target == e.family }
func (e *partitionError) Unwrap() error        { return e.reason }
