// SPDX-License-Identifier: Apache-2.0

// A holder's lease: for itself, for as long as it may try, ended by its token alone (L1, L5, L7).

package lease_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stopbank/stopbank/lease"
	machine "github.com/stopbank/stopbank/lease/internal/step"
)

// L1 by the answers: nobody is granted what somebody holds, and whatever shows a lease that is held shows the offset that
// its holder was granted.
func TestPropertyOneHolderOneOffset(t *testing.T) {
	play(t, func(*history) func(step) error {
		granted := map[string]lease.Lease{} // by domain: what is held
		return func(s step) error {
			current, taken := granted[s.call.Domain]
			switch {
			case s.granted() && taken:
				return fmt.Errorf("granted while %+v is held", current)
			case s.granted():
				current, taken = s.reply.Acquisition.Lease, true
				granted[s.call.Domain] = current
			case s.ended():
				taken = false
				delete(granted, s.call.Domain)
			}
			for _, shown := range s.leases() {
				if taken && shown.Offset != current.Offset {
					return fmt.Errorf("%+v is shown while %+v is held", shown, current)
				}
			}
			return nil
		}
	})
}

// L5 by the tokens that were handed out: the last one acts while its lease lasts. Any other is an error, which changes nothing
// and says how the last lease ended if that was its own.
func TestPropertyOnlyTheCurrentTokenActs(t *testing.T) {
	type last struct {
		token    lease.Token
		offset   int64
		released bool
		outcome  lease.Status // 0 while the lease lasts
	}
	play(t, func(*history) func(step) error {
		lasts := map[string]*last{}
		return func(s step) error {
			c, err := s.call, s.reply.Err
			if s.granted() {
				lasts[c.Domain] = &last{token: s.reply.Acquisition.Lease.Token, offset: s.reply.Acquisition.Lease.Offset}
				return nil
			}
			finishes := c.Op == machine.Succeed || c.Op == machine.Fail
			if !finishes && c.Op != machine.Reclaim && c.Op != machine.Release {
				return nil
			}
			current := lasts[c.Domain]
			held := current != nil && current.outcome == 0
			if held && current.token == c.Token && !(current.released && finishes) {
				switch {
				case err != nil:
					return errors.New("the token of the lease is refused")
				case c.Op == machine.Reclaim:
					current.token, current.released = s.reply.Lease.Token, false
				case c.Op == machine.Release:
					current.released = true
				case s.ended() && c.Op == machine.Succeed:
					current.outcome = lease.AlreadyProcessed
				case s.ended():
					current.outcome = lease.AlreadyFailed
				}
				return nil
			}
			switch {
			case err == nil:
				return fmt.Errorf("L5: a wrong token acts: %+v", current)
			case !cmp.Equal(s.before, s.after):
				return fmt.Errorf("refused, and yet (-before +after):\n%s", cmp.Diff(s.before, s.after))
			case held:
				if !says(err, lease.TokenMismatchError{Domain: c.Domain, Offset: current.offset, Got: c.Token}) {
					return fmt.Errorf("%+v is held", current)
				}
				return nil
			}
			unknown := lease.LeaseNotFoundError{Domain: c.Domain, Got: c.Token}
			want := unknown
			if current != nil && current.token == c.Token {
				want.Offset, want.Status = current.offset, current.outcome
			}
			forgettable := current != nil && current.offset < s.after.Floor
			if !says(err, want) && !(forgettable && says(err, unknown)) {
				return fmt.Errorf("L5: want %+v", want)
			}
			return nil
		}
	})
}

// says reports whether err is, or wraps, an error of want's type that says the same.
func says[E comparable, P interface {
	*E
	error
}](err error, want E) bool {
	var current P
	return errors.As(err, &current) && *current == want
}

// A reply that was lost: the same call again says what became of the first.
func TestLostReply(t *testing.T) {
	m := open(t, lease.Config{})
	for i, give := range []bool{false, true} {
		held := acquire(t, m, "A", int64(i+1))
		want := lease.LeaseNotFoundError{Domain: "A", Got: held.Token, Status: lease.AlreadyProcessed, Offset: int64(i + 1)}
		if give {
			fail(t, m, held, lease.Failure{Status: lease.GiveUpNoBacklog})
			want.Status = lease.AlreadyFailed
		} else {
			succeed(t, m, held, lease.Completion{Status: lease.NoBacklog})
		}
		for range 2 {
			_, err := m.Succeed(ctx, "A", held.Token)
			var got *lease.LeaseNotFoundError
			if !errors.As(err, &got) || *got != want {
				t.Fatalf("L5: %+v, want %+v", got, want)
			}
		}
		_, err := m.Succeed(ctx, "A", held.Token+1)
		var got *lease.LeaseNotFoundError
		if !errors.As(err, &got) || got.Status != 0 {
			t.Fatalf("L5: a token never handed out: %+v", got)
		}
	}
}

// L12 by the answers: a release is seen to take the owner and nothing else, a reclaim to give one and nothing else, and in
// between nobody ends the lease and nobody else is granted one.
func TestPropertyReleasedKeepsAllButTheOwner(t *testing.T) {
	releases := 0
	play(t, func(*history) func(step) error {
		released := map[string]lease.Lease{}
		return func(s step) error {
			domain, c := s.call.Domain, s.call
			current, was := released[domain]
			switch {
			case s.reply.Err == nil && c.Op == machine.Release:
				current, was = *s.before.Lease, true
				current.Released = true
				releases++
				released[domain] = current
			case s.reply.Err == nil && c.Op == machine.Reclaim:
				want := *s.before.Lease
				want.Token, want.Released = s.reply.Lease.Token, false
				if s.reply.Lease != want {
					return fmt.Errorf("%+v was reclaimed as %+v", *s.before.Lease, s.reply.Lease)
				}
				delete(released, domain)
				was = false
			case was && (s.granted() || s.ended() || s.reply.Failure.Status != 0):
				return fmt.Errorf("L12: %+v has no owner", current)
			}
			for _, l := range s.leases() {
				if was && l != current || !was && l.Released {
					return fmt.Errorf("%+v is shown, released: %+v (%t)", l, current, was)
				}
			}
			if was && s.after.Lease == nil {
				return fmt.Errorf("%+v is gone", current)
			}
			if c.Op == machine.Release && !slices.Equal(s.before.Backlog, s.after.Backlog) {
				return fmt.Errorf("%v waited, now %v", s.before.Backlog, s.after.Backlog)
			}
			return nil
		}
	})
	if releases == 0 {
		t.Error("L12: nothing was released")
	}
}

// L7 by counting: from its grant to its end a lease shows one time and as many retries as there were, and Fail ends it when those
// are MaxRetries, not before.
func TestPropertyRetriesKeepTheLease(t *testing.T) {
	type attempt struct {
		offset  int64
		at      time.Time
		retries int
	}
	play(t, func(h *history) func(step) error {
		attempts := map[string]*attempt{}
		return func(s step) error {
			current := attempts[s.call.Domain]
			if l := s.reply.Acquisition.Lease; s.granted() && (current == nil || current.offset != l.Offset) {
				current = &attempt{offset: l.Offset, at: l.AcquiredAt}
				attempts[s.call.Domain] = current
			}
			if r := s.reply.Failure; r.Status != 0 && current != nil {
				more := current.retries < h.cfg.MaxRetries
				if more {
					current.retries++
				}
				if more != (r.Status == lease.RetryScheduled) || more != (s.after.Lease != nil) ||
					r.RetryCount != current.retries {
					return fmt.Errorf("after %d retries of %d: %+v is left", current.retries, h.cfg.MaxRetries, s.after.Lease)
				}
			}
			if s.ended() {
				delete(attempts, s.call.Domain)
			}
			for _, l := range s.leases() {
				if current == nil || l.AcquiredAt.IsZero() || !l.AcquiredAt.Equal(current.at) || l.RetryCount != current.retries {
					return fmt.Errorf("%+v is shown, granted and retried: %+v", l, current)
				}
			}
			return nil
		}
	})
}
