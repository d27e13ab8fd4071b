package lease_test

// This file calls a ledger that NewMemory did not make: it refuses, as it refuses a nil context.

import (
	"errors"
	"testing"

	"github.com/stopbank/stopbank/lease"
)

func TestZeroMemory(t *testing.T) {
	for name, m := range map[string]*lease.Memory{"zero": {}, "nil": nil} {
		_, try := m.TryAcquire(ctx, "A", 1)
		_, offer := m.Offer(ctx, "A", 1)
		_, next := m.AcquireNext(ctx, "A")
		_, done := m.Succeed(ctx, "A", 1)
		_, fail := m.Fail(ctx, "A", 1)
		_, giveUp := m.GiveUp(ctx, "A", 1)
		_, reclaim := m.Reclaim(ctx, "A", 1)
		_, inspect := m.Inspect(ctx, "A")
		errs := map[string]error{
			"TryAcquire": try, "Offer": offer, "AcquireNext": next, "Succeed": done, "Fail": fail, "GiveUp": giveUp, "Reclaim": reclaim, "Inspect": inspect,
			"Compact": m.Compact(ctx, -1), "Ready": nil, "Held": nil,
		}
		for _, errs["Ready"] = range m.Ready(ctx) {
		}
		for _, errs["Held"] = range m.Held(ctx) {
		}
		for call, err := range errs {
			var invalid *lease.InvalidError
			if !errors.As(err, &invalid) || invalid.Field != "Memory" || !errors.Is(err, lease.ErrInvalid) {
				t.Errorf("%s of a %s Memory: %v", call, name, err)
			}
		}
	}
}
