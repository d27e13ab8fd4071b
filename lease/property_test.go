// SPDX-License-Identifier: Apache-2.0

// L6 and L10 over random histories: callers that race, and time that passes between calls.

package lease_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/internal/model"
	machine "github.com/stopbank/stopbank/lease/internal/step"
)

// Callers race for domains that keep losing their records, as they finish what they hold and a floor passes it. Whatever they
// do between a grant and its end, nobody else is granted the domain, the token still holds, and a later grant has a greater
// one.
func TestPropertyOneLockForEver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		domains := rapid.IntRange(1, 3).Draw(t, "domains")
		scripts := rapid.SliceOfN(rapid.SliceOfN(rapid.IntRange(0, 7), 4, 12), 2, 5).Draw(t, "scripts")
		m := open(t, lease.Config{})
		owners, tokens := make([]atomic.Int64, domains), make([]atomic.Uint64, domains)
		var offsets atomic.Int64
		var mu sync.Mutex
		var wrong []string
		found := func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
		own := func(d int, a lease.Acquisition, way int) {
			if a.Status != lease.Acquired {
				return
			}
			if n := owners[d].Add(1); n != 1 {
				found("L6: domain %d has %d owners", d, n)
			}
			if before := tokens[d].Swap(uint64(a.Lease.Token)); before >= uint64(a.Lease.Token) {
				found("L6: domain %d: token %d after %d", d, a.Lease.Token, before)
			}
			runtime.Gosched()
			owners[d].Add(-1)
			var err error
			if way%2 == 0 {
				_, err = m.Succeed(ctx, a.Lease.Domain, a.Lease.Token)
			} else {
				_, err = m.Fail(ctx, a.Lease.Domain, a.Lease.Token)
			}
			if err != nil {
				found("L6: domain %d: the owner is refused: %v", d, err)
			}
		}
		var all sync.WaitGroup
		for w, script := range scripts {
			all.Go(func() {
				for i := range 400 {
					op := script[i%len(script)]
					d := (op + w) % domains
					name := fmt.Sprint("d", d)
					switch {
					case op < 5:
						if a, err := m.TryAcquire(ctx, name, offsets.Add(1)); err == nil {
							own(d, a, op)
						}
					case op == 5:
						if a, err := m.AcquireNext(ctx, name); err == nil {
							own(d, a, op)
						}
					default:
						_ = m.Compact(ctx, offsets.Load()+1) // refused if another has passed a higher floor
					}
				}
			})
		}
		all.Wait()
		if err := m.Audit(); err != nil {
			found("L6: %v", err)
		}
		if len(wrong) > 0 {
			t.Fatalf("L6: %d findings; %s", len(wrong), wrong[0])
		}
	})
}

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
