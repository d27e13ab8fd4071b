package lease_test

// This file tries bugs that others had, by the issue in which they were told, on the ledger.

import (
	"errors"
	"testing"

	"github.com/stopbank/stopbank/lease"
)

// riverqueue/river #1302: the rescuer put a job back to work that had been completed between its look for stuck jobs and its write, which only asked for the id.
func TestPeer_RiverRescueOfACompletedJob(t *testing.T) {
	for name, end := range map[string]func(m *lease.Memory, held lease.Lease) error{
		"succeeds": func(m *lease.Memory, held lease.Lease) error {
			_, err := m.Succeed(ctx, held.Domain, held.Token)
			return err
		},
		"is given up": func(m *lease.Memory, held lease.Lease) error {
			_, err := m.GiveUp(ctx, held.Domain, held.Token)
			return err
		},
		"is rescued by another": func(m *lease.Memory, held lease.Lease) error {
			_, err := m.Reclaim(ctx, held.Domain, held.Token)
			return err
		},
	} {
		m := open(t, lease.Config{MaxRetries: 3})
		acquire(t, m, "A", 1)
		var stuck []lease.Lease // as the rescuer has seen them
		for held, err := range m.Held(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			stuck = append(stuck, held)
		}
		noError(t, end(m, stuck[0]))
		before := inspect(t, m, "A")
		_, reclaimed := m.Reclaim(ctx, "A", stuck[0].Token)
		_, failed := m.Fail(ctx, "A", stuck[0].Token)
		if reclaimed == nil || failed == nil {
			t.Errorf("a lease that %s since: Reclaim %v, Fail %v", name, reclaimed, failed)
		}
		after := inspect(t, m, "A")
		if (before.Lease == nil) != (after.Lease == nil) || before.Lease != nil && *before.Lease != *after.Lease {
			t.Errorf("a lease that %s since: %+v became %+v", name, before, after)
		}
		if name == "succeeds" {
			wantStatus(t, m, "A", 1, lease.AlreadyProcessed)
		}
		var gone *lease.LeaseNotFoundError
		if name != "is rescued by another" && !errors.As(reclaimed, &gone) {
			t.Errorf("a lease that %s since: %v", name, reclaimed)
		}
	}
}
