// SPDX-License-Identifier: Apache-2.0

// L10 over random histories: time that passes between calls.

package lease_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/internal/model"
	machine "github.com/stopbank/stopbank/lease/internal/step"
)

// A call of a history whose caller pauses before it. Its token is one of those handed out so far.
type late struct {
	after time.Duration
	call  model.Call
	token int
}

// The model of a ledger has no clock. So a ledger answers as it does, however much time passes between any two calls; and the
// time that it shows is that of a grant's first instant.
func TestPropertyTimeMeansNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := lease.Config{MaxRetries: rapid.IntRange(1, 3).Draw(rt, "retries")}
		script := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) late {
			return late{
				rapid.SampledFrom([]time.Duration{0, 1, time.Millisecond, 31 * time.Minute, 26 * time.Hour,
					20_000 * time.Hour}).Draw(rt, "after"),
				model.Call{
					Op: rapid.SampledFrom([]machine.Kind{machine.TryAcquire, machine.TryAcquire, machine.Offer,
						machine.AcquireNext, machine.Succeed, machine.Fail,
						machine.Reclaim, machine.Release, machine.Compact, 0}).Draw(rt, "op"),
					Domain: "A", Offset: rapid.Int64Range(1, 12).Draw(rt, "offset"),
				},
				rapid.IntRange(0, 5).Draw(rt, "token"),
			}
		}), 1, 60).Draw(rt, "script")
		var wrong error
		synctest.Test(t, func(t *testing.T) { wrong = tellLate(t, cfg, script) })
		if wrong != nil {
			rt.Fatal(wrong)
		}
	})
}

func tellLate(t *testing.T, cfg lease.Config, script []late) error {
	m, d := open(t, cfg), model.New()
	var tokens []lease.Token
	var granted time.Time
	for i, s := range script {
		time.Sleep(s.after)
		if c := &s.call; c.Op == machine.Succeed || c.Op == machine.Fail || c.Op == machine.Reclaim || c.Op == machine.Release {
			if c.Token = 1 << 40; len(tokens) > 0 {
				c.Token = tokens[max(0, len(tokens)-1-s.token/4)] // mostly the latest
			}
		}
		began := time.Now()
		r := s.call.Do(ctx, m)
		if err := d.Accept(cfg, s.call, r); err != nil {
			return fmt.Errorf("L10: call %d, after %v: %w", i, s.after, err)
		}
		if !time.Now().Equal(began) {
			return errors.New("L10: a call waited")
		}
		for _, l := range []lease.Lease{r.Acquisition.Lease, r.Lease} {
			if l.Token != 0 && !slices.Contains(tokens, l.Token) {
				tokens = append(tokens, l.Token)
			}
		}
		if a := r.Acquisition; a.Status == lease.Acquired && a.Lease.RetryCount == 0 {
			granted = began
		}
		if d.Lease != nil && !d.Lease.AcquiredAt.Equal(granted) {
			return fmt.Errorf("L10: call %d: acquired at %v, but the offset was granted at %v", i, d.Lease.AcquiredAt, granted)
		}
	}
	return nil
}
