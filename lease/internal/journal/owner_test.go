// SPDX-License-Identifier: Apache-2.0

package journal_test

// This file is what one owner promises, and what a death costs, in virtual time.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/internal/journal"
)

// acquire leases a record that is free.
func acquire(t *testing.T, l lease.Ledger, domain string, offset int64) lease.Lease {
	t.Helper()
	a, err := l.TryAcquire(ctx, domain, offset)
	if err != nil || a.Status != lease.Acquired {
		t.Fatalf("TryAcquire(%s, %d) = %+v, %v", domain, offset, a, err)
	}
	return a.Lease
}

func succeed(t *testing.T, l lease.Ledger, held lease.Lease) {
	t.Helper()
	if _, err := l.Succeed(ctx, held.Domain, held.Token); err != nil {
		t.Fatal(err)
	}
}

// What is done is written within 50 ms, by one write for all of it, also where replies are lost; and what has begun is written for
// hundreds of records at a time.
func TestWrittenPerWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const records, workers = 8_000, 8
		s := newServer()
		rnd := rand.New(rand.NewPCG(1, 2))
		losing := false
		s.fault = func() fault {
			if losing && rnd.IntN(4) == 0 {
				return 1 + fault(rnd.IntN(2))
			}
			return 0
		}
		for _, losing = range []bool{false, true} {
			s.appends = 0
			l := open(t, s, lease.Config{})
			var group sync.WaitGroup
			for w := range workers {
				group.Go(func() {
					for i := w; i < records; i += workers {
						domain := fmt.Sprint("k", i%100)
						for { // what could not be written is asked for again
							a, err := l.TryAcquire(ctx, domain, int64(i))
							if err == nil && a.Status == lease.Acquired {
								succeed(t, l, a.Lease)
								break
							}
							if !errors.Is(err, durable.ErrStore) && a.Status != lease.AlreadyProcessed {
								t.Errorf("%d: %+v, %v", i, a, err)
							}
							if err == nil {
								break
							}
						}
						if i%100 < workers {
							time.Sleep(10 * time.Millisecond)
						}
					}
				})
			}
			group.Wait()
			if losing {
				time.Sleep(time.Minute)
			} else {
				time.Sleep(50 * time.Millisecond)
				synctest.Wait()
				if s.appends > records/20 {
					t.Errorf("%d writes for %d records", s.appends, records)
				}
			}
			losing = false
			next := open(t, s, lease.Config{}) // the other is dead
			for i := range int64(records) {
				if a, err := next.TryAcquire(ctx, fmt.Sprint("k", i%100), i); err != nil || a.Status != lease.AlreadyProcessed {
					t.Fatalf("L17: record %d was done, and then: %+v, %v", i, a, err)
				}
			}
			noError(t, next.Close(ctx))
			_ = l.Close(ctx)
		}
	})
}

// After Fresh without an accepted write no lease is granted, and the first thing that is heard of a lost claim is an ErrLost.
func TestNoLeaseWithoutNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		l := open(t, s, lease.Config{MaxRetries: 3})
		succeed(t, l, acquire(t, l, "A", 1))
		time.Sleep(time.Second)
		s.set(func() { s.down = true })
		held := acquire(t, l, "A", 2) // it is said already that it has begun
		time.Sleep(time.Minute)
		if a, err := l.TryAcquire(ctx, "B", 3); !errors.Is(err, durable.ErrStore) {
			t.Fatalf("L18: %+v, %v, though the store has not answered for a minute", a, err)
		}
		s.set(func() { s.down = false })
		time.Sleep(time.Minute)
		acquire(t, l, "B", 3)

		next := open(t, s, lease.Config{MaxRetries: 3})
		time.Sleep(2 * time.Minute)
		if a, err := l.TryAcquire(ctx, "C", 4); !errors.Is(err, dispatch.ErrLost) {
			t.Fatalf("L18: a former owner: %+v, %v", a, err)
		}
		if _, err := l.Fail(ctx, "A", held.Token); !errors.Is(err, lease.ErrTokenMismatch) {
			t.Errorf("L17: a former owner's Fail: %v", err)
		}
		for _, err := range l.Held(ctx) {
			if !errors.Is(err, dispatch.ErrLost) {
				t.Errorf("a former owner's Held: %v", err)
			}
		}
		if later := acquire(t, next, "A", 2); later.Token <= held.Token {
			t.Errorf("L9: token %d after %d", later.Token, held.Token)
		}
		noError(t, next.Close(ctx))
		_ = l.Close(ctx)
	})
}

// What ran when an owner died is nobody's lease, and is then leased by name; after a Close nothing is.
func TestCareAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		held := func(l lease.Ledger) (domains []string) {
			for item, err := range l.Held(ctx) {
				noError(t, err)
				domains = append(domains, item.Domain)
			}
			slices.Sort(domains)
			return domains
		}
		writes := func(do func()) int {
			before := s.appends
			do()
			return s.appends - before
		}
		first := open(t, s, lease.Config{})
		acquire(t, first, "A", 1)
		acquire(t, first, "B", 2)
		second := open(t, s, lease.Config{})
		if h := held(second); len(h) > 0 {
			t.Errorf("L17: held after the first death: %v", h)
		}
		if n := writes(func() { acquire(t, second, "A", 1) }); n != 1 {
			t.Errorf("L17: the lease of a record that had begun cost %d writes, want 1", n)
		}
		third := open(t, s, lease.Config{})
		if h := held(third); !slices.Equal(h, []string{"A"}) {
			t.Errorf("L17: held after the second death: %v, want A", h)
		}
		for l := range third.Held(ctx) {
			again, err := third.Reclaim(ctx, l.Domain, l.Token)
			noError(t, err)
			succeed(t, third, again)
		}
		noError(t, third.Compact(ctx, 10_000)) // beyond all that had begun
		noError(t, third.Close(ctx))
		fourth := open(t, s, lease.Config{})
		acquire(t, fourth, "A", 10_001)
		if n := writes(func() { acquire(t, fourth, "B", 10_002) }); n > 0 {
			t.Errorf("a record after a Close cost %d writes", n)
		}
		if err := first.Close(ctx); !errors.Is(err, dispatch.ErrLost) {
			t.Errorf("a former owner's Close: %v", err)
		}
		_ = second.Close(ctx)
		noError(t, fourth.Close(ctx))
	})
}

// A Close that was written by half leaves the next owner as careful as a crash.
func TestCloseByHalf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.limit = 200
		first := open(t, s, lease.Config{})
		for i := range int64(200) {
			succeed(t, first, acquire(t, first, fmt.Sprint("k", i), i))
		}
		s.set(func() {
			entries := 0
			s.fault = func() fault {
				if entries++; entries > 1 {
					return lost
				}
				return 0
			}
		})
		closing, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := first.Close(closing); err == nil {
			t.Fatal("closed")
		}
		s.set(func() { s.fault = func() fault { return 0 } })
		second := open(t, s, lease.Config{})
		acquire(t, second, "k199", 199)
		before := s.appends // the next one is in the same window
		if a, err := second.TryAcquire(ctx, "k198", 198); err != nil || a.Status != lease.Acquired || s.appends == before {
			t.Errorf("L17: %+v, %v, with %d writes", a, err, s.appends-before)
		}
		noError(t, second.Close(ctx))
	})
}

// What is wrong is named.
func TestBadInput(t *testing.T) {
	entry := func(s *server) []byte { return s.entries[s.number] }
	written := func() *server {
		s := newServer()
		l := open(t, s, lease.Config{})
		acquire(t, l, "A", 1)
		noError(t, l.Close(ctx))
		return s
	}
	reopen := func(s *server, name string) error {
		l, err := journal.Open(ctx, journal.Config{Store: &store{server: s}, Name: name, Fresh: time.Minute})
		if err == nil {
			err = l.Close(ctx)
		}
		return err
	}
	for _, c := range []struct {
		what  string
		name  string
		spoil func(s *server)
		want  error
	}{
		{"nothing", "orders/0", func(*server) {}, nil},
		{"another ledger's entry", "orders/1", func(*server) {}, durable.ErrCorrupt},
		{"a damaged byte", "orders/0", func(s *server) { entry(s)[1] ^= 1 }, durable.ErrCorrupt},
		{"half an entry", "orders/0", func(s *server) { s.entries[s.number] = entry(s)[:len(entry(s))/2] }, durable.ErrCorrupt},
		{"a newer format", "orders/0", func(s *server) { entry(s)[0] = 2 }, durable.ErrNewer},
		{"a store that does not answer", "orders/0", func(s *server) { s.down = true }, errFault},
	} {
		s := written()
		c.spoil(s)
		if err := reopen(s, c.name); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.what, err, c.want)
		}
	}

	s := newServer()
	s.limit = 1000
	l := open(t, s, lease.Config{})
	long := strings.Repeat("k", 600)
	if _, err := l.TryAcquire(ctx, long, 1); !errors.Is(err, lease.ErrInvalid) {
		t.Errorf("a key that fits into no entry: %v", err)
	}
	var err error
	waiting := 0
	for acquire(t, l, "A", 1); err == nil; waiting++ {
		_, err = l.Offer(ctx, "A", int64(1+waiting*1_000_000))
	}
	if !errors.Is(err, lease.ErrBacklogFull) || waiting < 50 {
		t.Errorf("after %d that wait: %v, want a full backlog", waiting, err)
	}
	for item := range l.Held(ctx) {
		succeed(t, l, item)
	}
	for head := range l.Ready(ctx) { // what waits is worked off
		succeed(t, l, acquire(t, l, head.Domain, head.Offset))
	}
	noError(t, l.Close(ctx))
	if _, err := l.TryAcquire(ctx, "B", 2); !errors.Is(err, dispatch.ErrLost) {
		t.Errorf("after Close: %v", err)
	}
}

// A claim that has used up its tokens is lost, and the next one has more.
func TestTokensOfAClaim(t *testing.T) {
	s := newServer()
	l := open(t, s, lease.Config{})
	l.LeaveTokens(2)
	acquire(t, l, "A", 1)
	last := acquire(t, l, "B", 2)
	if a, err := l.TryAcquire(ctx, "C", 3); !errors.Is(err, dispatch.ErrLost) || !errors.Is(err, durable.ErrExhausted) {
		t.Fatalf("L9: %+v, %v", a, err)
	}
	_ = l.Close(ctx)
	next := open(t, s, lease.Config{})
	if a := acquire(t, next, "C", 3); a.Token <= last.Token {
		t.Errorf("L9: token %d after %d", a.Token, last.Token)
	}
	noError(t, next.Close(ctx))
}

// 200 records, each of a key of its own, take 100 ms; one kills its process after 50. It is given up, and nothing else is; nothing
// runs more often than the deaths say.
func TestKillerDiesAlone(t *testing.T) {
	for _, c := range []struct{ inFlight, retries int }{{16, 3}, {64, 6}} {
		synctest.Test(t, func(t *testing.T) {
			const killer = 70
			s, log := newServer(), new(dispatch.Log)
			for i := range 200 {
				log.Append(fmt.Sprint("k", i), nil)
			}
			var mu sync.Mutex
			runs, letters, deaths := map[int64]int{}, map[int64]error{}, 0
			for over := false; !over && deaths < 20; {
				ctx, cancel := context.WithCancelCause(ctx)
				l, dead := open(t, s, lease.Config{MaxRetries: c.retries}), make(chan struct{})
				die := sync.OnceFunc(func() {
					deaths++
					close(dead)
					s.set(func() { s.claim++ }) // nothing more of it is written
					cancel(dispatch.Lost("", errors.New("dead")))
				})
				d, err := dispatch.New(dispatch.Partition{Ledger: l, Source: log}, dispatch.Config{
					MaxInFlight: c.inFlight, DrainTimeout: time.Millisecond,
					Handler: func(_ context.Context, job dispatch.Job) error {
						mu.Lock()
						runs[job.Record.Offset]++
						mu.Unlock()
						time.Sleep(50 * time.Millisecond)
						if job.Record.Offset == killer {
							die()
						}
						time.Sleep(50 * time.Millisecond)
						return nil
					},
					DeadLetter: func(_ context.Context, letter dispatch.DeadLetter) error {
						letters[letter.Record.Offset] = letter.Err
						return nil
					},
				})
				noError(t, err)
				ended := make(chan error, 1)
				go func() { ended <- d.Run(ctx) }()
				select {
				case <-dead:
					<-ended
				case <-time.After(10 * time.Minute):
					over = true
					cancel(nil)
					noError(t, <-ended)
					noError(t, l.Close(context.Background()))
				}
				time.Sleep(time.Second) // handlers that outlived it
			}
			// One run counts nobody, and one finds out who was running: then each run of a suspect is counted.
			if deaths > c.retries+3 {
				t.Errorf("D6: %d deaths, with %d retries", deaths, c.retries)
			}
			if len(letters) != 1 || !errors.Is(letters[killer], dispatch.ErrDied) {
				t.Errorf("D6: letters: %v", letters)
			}
			all := 0
			for offset, n := range runs {
				all += n
				if n > deaths+1 {
					t.Errorf("D6: %d ran %d times in %d lives", offset, n, deaths+1)
				}
			}
			if len(runs) != 200 {
				t.Errorf("%d of 200 records ran", len(runs))
			}
			if most := 200 + deaths*2*c.inFlight; all > most { // in 50 ms no more than MaxInFlight records end
				t.Errorf("L17: %d runs in %d lives, want %d at most", all, deaths+1, most)
			}
		})
	}
}

// A Compact that could not be written has raised the floor all the same, and does not say that nothing has changed.
func TestCompactUnwritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		l := open(t, s, lease.Config{})
		s.set(func() { s.down = true })
		brief, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		for i, ctx := range []context.Context{brief, ctx} {
			if err := l.Compact(ctx, int64(i)); !errors.Is(err, durable.ErrAmbiguous) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("raised to %d: %v", i, err)
			}
		}
		if err := l.Compact(ctx, 1); !errors.Is(err, durable.ErrStore) {
			t.Errorf("again: %v", err)
		}
		s.set(func() { s.down = false })
		noError(t, l.Compact(ctx, 1))
		noError(t, l.Close(ctx))
	})
}
