// SPDX-License-Identifier: Apache-2.0

// A dispatcher's dead letters put into a store.

package deadletter

import (
	"context"
	"strconv"
	"time"

	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/internal/clip"
	"github.com/stopbank/stopbank/lease/internal/nilcheck"
)

// Keep returns a DeadLetter function for a dispatch.Config that puts records into store. It blocks for Put and returns
// its error; the dispatcher then retries. A letter without a partition is rejected with an *InvalidError, because the
// letters of two dispatchers without a name could not be told apart. For a nil store, or a nil pointer as the store, Keep
// returns nil, which dispatch.New rejects.
func Keep(store Store) func(ctx context.Context, letter dispatch.DeadLetter) error {
	if nilcheck.Required(store) != "" {
		return nil
	}
	return func(ctx context.Context, dead dispatch.DeadLetter) error {
		if dead.Partition == "" {
			return invalidField("DeadLetter.Partition", strconv.Quote(""), "a name; set dispatch.Partition.Name")
		}
		letter := Letter{Partition: dead.Partition, Record: dead.Record, Size: len(dead.Record.Payload), At: time.Now()}
		if dead.Lease.Token != 0 {
			letter.Attempts = dead.Lease.RetryCount + 1
		}
		if dead.Err != nil {
			letter.Failure = clip.Text(dead.Err.Error())
		}
		return store.Put(ctx, letter)
	}
}
