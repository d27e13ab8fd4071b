// SPDX-License-Identifier: Apache-2.0

// The words in which a ledger answers.

package lease_test

import (
	"testing"

	"github.com/stopbank/stopbank/lease"
)

func TestStatusesPrintAsInTheContract(t *testing.T) {
	for want, s := range map[string]lease.Status{
		"ACQUIRED": lease.Acquired, "ENQUEUED": lease.Enqueued, "ALREADY_ACQUIRED": lease.AlreadyAcquired,
		"ALREADY_PROCESSED": lease.AlreadyProcessed, "ALREADY_FAILED": lease.AlreadyFailed,
		"NOTHING_TO_DO": lease.NothingToDo, "BUSY": lease.Busy,
		"NO_BACKLOG": lease.NoBacklog, "NEXT_HINT": lease.NextHint,
		"RETRY_SCHEDULED": lease.RetryScheduled, "GIVE_UP_NO_BACKLOG": lease.GiveUpNoBacklog,
		"GIVE_UP_NEXT_HINT": lease.GiveUpNextHint,
		"UNDEFINED_0":       lease.Status(0), "UNDEFINED_13": lease.Status(13),
	} {
		if s.String() != want {
			t.Errorf("%d prints %s, want %s", s, s, want)
		}
	}
}
