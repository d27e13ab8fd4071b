// SPDX-License-Identifier: Apache-2.0

package leasekafka

// The ledger in memory passes the suite of all ledgers, and keeps its promises when the owner changes.

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/leasetest"
)

// opened is a ledger with its engine.
type opened struct {
	lease.Ledger
	engine *ledger
}

func openLedger(cfg lease.Config, floor int64, m memo, lost func() error) opened {
	engine := newLedger(floor, m, lost)
	return opened{lease.FromEngine(engine, cfg), engine}
}

// committing is a ledger that commits failures at once.
type committing struct{ opened }

func (c committing) Fail(ctx context.Context, domain string, token lease.Token) (lease.Failure, error) {
	c.engine.markSaved(1 << 60)
	return c.Ledger.Fail(ctx, domain, token)
}

func (c committing) GiveUp(ctx context.Context, domain string, token lease.Token) (lease.Failure, error) {
	c.engine.markSaved(1 << 60)
	return c.Ledger.GiveUp(ctx, domain, token)
}

var errGone = errors.New("gone")

func never() error { return nil }

func TestLedgerConformance(t *testing.T) {
	leasetest.Run(t, func(_ testing.TB, cfg lease.Config) lease.Ledger {
		return committing{openLedger(cfg, -1<<63, memo{}, never)}
	})
}

// attempted is the state of an offset in the model.
type attempted struct {
	done, gaveUp, running bool
	retries               int
}

// Owners come and go at any moment, each with what the last commit says. What it has as done or given up is never leased again;
// failures that it has go on counting, and failures are in it as soon as they are answered; what ran then has a lease; all else
// begins anew. Tokens rise over all of them, and Held and Offer agree on who has what.
func TestPropertyLedgerSurvivesOwners(t *testing.T) {
	const domains, offsets = 3, 9
	name := func(offset int64) string { return fmt.Sprint("k", offset%domains) }
	suspects, kept := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		ctx := t.Context()
		cfg := lease.Config{MaxRetries: 3}
		floor, text := int64(0), ""
		var l opened
		var now, committed map[int64]attempted
		leases, released := map[string]lease.Lease{}, map[string]lease.Lease{}
		highest := lease.Token(0)
		take := func() {
			m, wrong := readMemo(text, floor)
			if wrong != "" {
				t.Fatal(wrong)
			}
			l = openLedger(cfg, floor, m, never)
			now = map[int64]attempted{}
			maps.Copy(now, committed)
			clear(leases)
			clear(released)
			held := map[int64]bool{}
			for h, err := range l.Held(ctx) {
				if err != nil || !now[h.Offset].running || h.Released || h.RetryCount != now[h.Offset].retries || h.Domain != name(h.Offset) {
					t.Fatalf("%+v has a lease, and %+v was committed: %v", h, now[h.Offset], err)
				}
				held[h.Offset] = true
				suspects++
				r, err := l.Reclaim(ctx, h.Domain, h.Token)
				if err != nil || r.Token <= highest {
					t.Fatalf("%+v after %d: %v", r, highest, err)
				}
				highest, leases[h.Domain] = r.Token, r
			}
			for o, s := range now {
				if s.running && !held[o] {
					t.Fatalf("%d ran and has no lease", o)
				}
			}
		}
		commit := func() {
			encoded, changes := l.engine.text(floor)
			l.engine.markSaved(changes)
			text, committed = encoded, maps.Clone(now)
		}
		take()
		commit()
		for range rapid.IntRange(20, 300).Draw(t, "steps") {
			offset := floor + rapid.Int64Range(0, offsets).Draw(t, "offset")
			domain := name(offset)
			held, some := leases[domain]
			switch rapid.SampledFrom([]string{"offer", "offer", "next", "next", "next", "succeed", "succeed", "fail", "fail", "release",
				"reclaim", "commit", "crash", "floor"}).Draw(t, "step") {
			case "offer":
				first := true // D1: what was tried is the first of its domain that is not done, and comes before the others
				for o, s := range now {
					first = first && (name(o) != domain || o == offset || s.retries == 0)
				}
				if !first && !some && released[domain].Token == 0 {
					continue
				}
				status, err := l.Offer(ctx, domain, offset)
				s := now[offset]
				want := []lease.Status{lease.Enqueued}
				switch {
				case s.done:
					want[0] = lease.AlreadyProcessed
				case s.gaveUp:
					want[0] = lease.AlreadyFailed
				case some && held.Offset == offset, released[domain].Token != 0 && released[domain].Offset == offset:
					want[0] = lease.AlreadyAcquired
				case s.retries > 0:
					want = append(want, lease.AlreadyAcquired)
				}
				if err != nil || !slices.Contains(want, status) {
					t.Fatalf("offer of %d: %v, %v, want one of %v", offset, status, err, want)
				}
				if v, _ := l.Inspect(ctx, domain); s.retries > 0 && !some && released[domain].Token == 0 && v.Lease != nil &&
					v.Lease.Offset == offset {
					kept++
					if !v.Lease.Released || v.Lease.RetryCount != s.retries {
						t.Fatalf("%+v goes on as %+v", s, v.Lease)
					}
					r, err := l.Reclaim(ctx, domain, v.Lease.Token)
					if err != nil || r.Token <= highest {
						t.Fatalf("%+v after %d: %v", r, highest, err)
					}
					highest, leases[domain] = r.Token, r
					s.running = true
					now[offset] = s
				}
			case "next":
				a, err := l.AcquireNext(ctx, domain)
				if err != nil {
					t.Fatal(err)
				}
				if a.Status != lease.Acquired {
					continue
				}
				s := now[a.Lease.Offset]
				if s.done || s.gaveUp || a.Lease.Token <= highest {
					t.Fatalf("%+v after %d, and %+v", a.Lease, highest, s)
				}
				highest, leases[domain] = a.Lease.Token, a.Lease
				s.running = true
				now[a.Lease.Offset] = s
			case "succeed":
				if !some {
					continue
				}
				if _, err := l.Succeed(ctx, domain, held.Token); err != nil {
					t.Fatal(err)
				}
				delete(leases, domain)
				now[held.Offset] = attempted{done: true}
			case "fail":
				if !some {
					continue
				}
				s := now[held.Offset]
				answer := make(chan lease.Failure)
				go func() {
					f, _ := l.Fail(ctx, domain, held.Token)
					answer <- f
				}()
				<-l.engine.commitNow
				if s.retries++; s.retries > cfg.MaxRetries {
					s = attempted{gaveUp: true}
					delete(leases, domain)
				}
				now[held.Offset] = s
				commit()
				if f := <-answer; (f.Status == lease.RetryScheduled) != !s.gaveUp || !s.gaveUp && f.RetryCount != s.retries {
					t.Fatalf("%+v, want %+v", f, s)
				}
			case "release":
				if !some {
					continue
				}
				if err := l.Release(ctx, domain, held.Token); err != nil {
					t.Fatal(err)
				}
				delete(leases, domain)
				released[domain] = held
				s := now[held.Offset]
				s.running = false
				now[held.Offset] = s
			case "reclaim":
				back, some := released[domain]
				if !some {
					continue
				}
				r, err := l.Reclaim(ctx, domain, back.Token)
				if err != nil || r.Token <= highest {
					t.Fatal(r, err)
				}
				delete(released, domain)
				highest, leases[domain] = r.Token, r
				s := now[r.Offset]
				s.running = true
				now[r.Offset] = s
			case "commit":
				commit()
			case "crash":
				take()
				commit() // as an owner does before it begins
			case "floor":
				for now[floor].done || now[floor].gaveUp {
					floor++
				}
				for o := range now {
					if o < floor {
						delete(now, o)
					}
				}
				commit()
				if err := l.Compact(ctx, floor); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
	t.Logf("%d suspects, %d attempts that went on", suspects, kept)
	if suspects == 0 || kept == 0 {
		t.Error("nothing survived")
	}
}

// Fail returns when the failure is committed, when the partition is lost, or when its ctx ends.
func TestLedgerFailWaits(t *testing.T) {
	var gone atomic.Bool
	begin := func() (opened, lease.Lease) {
		l := openLedger(lease.Config{MaxRetries: lease.DefaultRetries}, 0, memo{}, func() error {
			if gone.Load() {
				return errGone
			}
			return nil
		})
		a, err := l.TryAcquire(t.Context(), "a", 1)
		if err != nil {
			t.Fatal(err)
		}
		return l, a.Lease
	}
	l, held := begin()
	answer := make(chan error, 1)
	go func() {
		_, err := l.Fail(t.Context(), "a", held.Token)
		answer <- err
	}()
	<-l.engine.commitNow
	l.engine.markSaved(0) // a commit that failed
	<-l.engine.commitNow
	select {
	case err := <-answer:
		t.Fatalf("answered before it was committed: %v", err)
	default:
	}
	_, changes := l.engine.text(0)
	l.engine.markSaved(changes)
	if err := <-answer; err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := l.Fail(ctx, "a", held.Token); !errors.Is(err, durable.ErrAmbiguous) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a caller who goes: %v", err)
	}
	go func() {
		_, err := l.Fail(t.Context(), "a", held.Token)
		answer <- err
	}()
	<-l.engine.commitNow
	gone.Store(true)
	l.engine.markSaved(0)
	var mismatch *lease.TokenMismatchError
	if err := <-answer; !errors.As(err, &mismatch) {
		t.Errorf("of a partition that is lost: %v", err)
	}
	if _, err := l.Succeed(t.Context(), "a", held.Token); !errors.As(err, &mismatch) {
		t.Errorf("Succeed: %v", err)
	}
	if _, err := l.Offer(t.Context(), "a", 2); !errors.Is(err, errGone) {
		t.Errorf("Offer: %v", err)
	}
}
