package deadletter

// This file is the way in: from a dispatcher to a store.

import (
	"context"
	"strconv"
	"time"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// Keep returns the receiver of dead letters that puts them into a store: a dispatch.Config's DeadLetter. It blocks for Put, and returns what
// that says; the dispatcher then comes again. A letter of no partition is refused with an *InvalidError, since of two dispatchers without a name the second's would
// be taken for the first's. Of a nil store it returns nil, which dispatch.New refuses.
func Keep(store Store) func(ctx context.Context, letter dispatch.DeadLetter) error {
	if store == nil {
		return nil
	}
	return func(ctx context.Context, dead dispatch.DeadLetter) error {
		if dead.Partition == "" {
			return &InvalidError{Field: "DeadLetter.Partition", Value: strconv.Quote(""), Allowed: "a name, by dispatch.Config.Name"}
		}
		letter := Letter{Partition: dead.Partition, Record: dead.Record, Size: len(dead.Record.Payload), At: time.Now()}
		if dead.Lease.Token != 0 {
			letter.Attempts = dead.Lease.RetryCount + 1
		}
		if dead.Err != nil {
			letter.Failure = Clip(dead.Err.Error())
		}
		return store.Put(ctx, letter)
	}
}
