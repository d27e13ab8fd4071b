package dispatch_test

// This file is what can happen to a dispatcher from outside: other owners, lost replies, lost records, refusals, hot and slow keys.

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
)

// Rebalance: the partition moves while a handler runs. The old owner is fenced out where it was at work, comes to rest, and commits
// nothing that is not done; the new one does everything.
func TestD6_RebalanceWithLateOwner(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ledger, log := memory(t, 3), new(dispatch.Log)
		for i := range 40 {
			log.Append(fmt.Sprint("k", i%4), nil)
		}
		hang := make(chan struct{})
		var mu sync.Mutex
		register := map[string]lease.Token{} // a store downstream that compares tokens
		written := map[int64]int{}
		write := func(job dispatch.Job) error {
			mu.Lock()
			defer mu.Unlock()
			if job.Lease.Token < register[job.Record.Domain] {
				return errors.New("refused: a smaller token")
			}
			register[job.Record.Domain] = job.Lease.Token
			written[job.Record.Offset]++
			return nil
		}
		var refused error
		seen := &events{}
		old := run(t, dispatch.Config{Name: "old", Ledger: ledger, Source: log, Observer: seen, MaxBuffered: 16, Handler: func(_ context.Context, job dispatch.Job) error {
			if job.Record.Offset == 4 {
				<-hang
				refused = write(job)
				return nil
			}
			return write(job)
		}})
		time.Sleep(time.Second)
		equal(t, "the old one's floor", old.Stats().Floor, 4)
		hanging, _ := ledger.Inspect(context.Background(), "k0")

		young := run(t, dispatch.Config{Name: "new", Ledger: ledger, Source: log, Grace: 5 * time.Second, Handler: func(_ context.Context, job dispatch.Job) error { return write(job) }})
		time.Sleep(time.Minute)
		equal(t, "reclaimed", young.Stats().Reclaimed, 1)
		equal(t, "the new one's floor", young.Stats().Committed, 40)
		close(hang)
		synctest.Wait()
		if refused == nil {
			t.Error("the register took a write with a token that was reclaimed")
		}
		told := seen.of(dispatch.Fenced)
		if len(told) != 1 || told[0].Domain != "k0" || told[0].Offset != 4 || told[0].Token != hanging.Lease.Token || !errors.Is(told[0].Err, lease.ErrLeaseNotFound) {
			t.Errorf("told: %+v", told)
		}
		for i := range 100 { // more work: the old one is at rest in k0 and runs full of it, and takes some of the rest
			log.Append(fmt.Sprint("k", i%2), nil)
		}
		time.Sleep(time.Minute)
		s := old.Stats()
		equal(t, "fenced", s.Fenced, 1)
		equal(t, "lost", s.Lost, 1)
		equal(t, "floor of the old one", s.Floor, 4)
		if s.Buffered > 16 {
			t.Errorf("%d buffered", s.Buffered)
		}
		old.mustStop(t)
		young.mustStop(t)
		equal(t, "committed", young.Stats().Committed, 140)
		for offset := range int64(140) {
			equal(t, fmt.Sprint("written: ", offset), written[offset], 1)
		}
	})
}

// A fence met while the lease is held by somebody else is the same, whether the handler failed or succeeded.
func TestD6_FencedByToken(t *testing.T) {
	for _, outcome := range []error{nil, errors.New("failed")} {
		bubble(t, func(t *testing.T) {
			ledger, log := memory(t, 3), fill("k", "k", "other")
			seen := &events{}
			var taken lease.Lease
			r := run(t, dispatch.Config{Ledger: ledger, Source: log, Observer: seen, Handler: func(ctx context.Context, job dispatch.Job) error {
				if job.Record.Offset == 0 {
					taken, _ = ledger.Reclaim(ctx, "k", job.Lease.Token)
					return outcome
				}
				if job.Record.Domain == "k" {
					t.Error("a domain that is somebody else's goes on")
				}
				return nil
			}})
			time.Sleep(time.Hour)
			told := seen.of(dispatch.Fenced)
			if len(told) != 1 || !errors.Is(told[0].Err, lease.ErrTokenMismatch) {
				t.Errorf("told: %+v", told)
			}
			equal(t, "floor", r.Stats().Floor, 0)
			equal(t, "succeeded", r.Stats().Succeeded, 1)
			r.mustStop(t)
			v, _ := ledger.Inspect(context.Background(), "k")
			equal(t, "the lease", *v.Lease, taken)
		})
	}
}

// A lease that somebody takes after the partition is ours gets Grace; then it is reclaimed and failed.
func TestForeignLeaseGetsGrace(t *testing.T) {
	for _, finishes := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			ledger, log := memory(t, 3), fill("x")
			seen := &events{}
			c := newCalls()
			r := run(t, dispatch.Config{Ledger: ledger, Source: log, Observer: seen, Grace: 10 * time.Second, Handler: func(_ context.Context, job dispatch.Job) error {
				defer c.enter(job)()
				return nil
			}})
			synctest.Wait()
			ctx := context.Background()
			late, err := ledger.TryAcquire(ctx, "k", 1)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			log.Append("k", nil)
			log.Append("k", nil)
			time.Sleep(5 * time.Second)
			equal(t, "told", len(seen.of(dispatch.Foreign)), 1)
			same(t, "k", c.of("k"))
			if finishes {
				if _, err := ledger.Succeed(ctx, "k", late.Lease.Token); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Minute)
			r.mustStop(t)
			if finishes {
				same(t, "k", c.of("k"), 2)
				equal(t, "reclaimed", r.Stats().Reclaimed, 0)
				equal(t, "skipped", r.Stats().Skipped, 1)
			} else {
				same(t, "k", c.of("k"), 1, 2)
				equal(t, "reclaimed", r.Stats().Reclaimed, 1)
				equal(t, "after", c.times["k"][0].Sub(began), 10*time.Second+100*time.Millisecond)
			}
			equal(t, "floor", r.Stats().Floor, 3)
		})
	}
}

// With no retries left the late holder's record is a dead letter, with its payload.
func TestForeignLeaseGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ledger, log := memory(t, 0), fill("x")
		var letters []dispatch.DeadLetter
		c := newCalls()
		r := run(t, dispatch.Config{
			Ledger: ledger, Source: log, Grace: time.Second,
			Handler: func(_ context.Context, job dispatch.Job) error {
				defer c.enter(job)()
				return nil
			},
			DeadLetter: func(_ context.Context, letter dispatch.DeadLetter) error {
				letters = append(letters, letter)
				return nil
			},
		})
		synctest.Wait()
		if _, err := ledger.TryAcquire(context.Background(), "k", 1); err != nil {
			t.Fatal(err)
		}
		log.Append("k", []byte("it"))
		log.Append("k", nil)
		time.Sleep(time.Minute)
		r.mustStop(t)
		same(t, "k", c.of("k"), 2)
		if len(letters) != 1 || letters[0].Record.Offset != 1 || string(letters[0].Record.Payload) != "it" || letters[0].Err != nil {
			t.Errorf("letters: %+v", letters)
		}
		equal(t, "floor", r.Stats().Floor, 3)
	})
}

// Each call's reply is lost once, and once the call is not made at all: one attempt stays one attempt.
func TestLostReplies(t *testing.T) {
	for _, call := range []string{"Offer", "AcquireNext", "Succeed", "Fail", "Reclaim", "Compact", "Inspect", "Held", "Ready", "Committed", "Fetch", "Commit"} {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprint(call, " carried out ", after), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					ledger, log := memory(t, 2), fill("k", "k", "j")
					held, _ := ledger.TryAcquire(context.Background(), "h", -1) // somebody died with it, and the source has lost the record
					times := 0
					p := &process{Ledger: ledger, Source: log}
					p.fault = func(c, _ string) (error, error) {
						if c != call {
							return nil, nil
						}
						if times++; times > 1 {
							return nil, nil
						}
						if after {
							return nil, errLost
						}
						return errLost, nil
					}
					c := newCalls()
					var mu sync.Mutex
					var letters []dispatch.DeadLetter
					r := run(t, dispatch.Config{
						Ledger: p, Source: p, Grace: time.Hour,
						Handler: func(_ context.Context, job dispatch.Job) error {
							defer c.enter(job)()
							if job.Record.Offset == 0 {
								return errLost
							}
							return nil
						},
						DeadLetter: func(_ context.Context, letter dispatch.DeadLetter) error {
							mu.Lock()
							defer mu.Unlock()
							letters = append(letters, letter)
							return nil
						},
					})
					time.Sleep(10 * time.Minute)
					r.mustStop(t)
					same(t, "k", c.of("k"), 0, 0, 0, 1)
					same(t, "j", c.of("j"), 2)
					same(t, "h", c.of("h"))
					if times == 0 && call != "Inspect" {
						t.Error("never called")
					}
					s := r.Stats()
					equal(t, "floor", s.Floor, 3)
					equal(t, "succeeded", s.Succeeded, 2)
					equal(t, "dead lettered", s.DeadLettered, 2)
					if n := len(letters); n != 2 || letters[0].Lease.Token == held.Lease.Token {
						t.Errorf("letters: %+v", letters)
					}
				})
			})
		}
	}
}

// What the ledger has and the source has lost is tried, given up and told of, and what comes after it goes on.
func TestD2_RecordGone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ledger, ctx := memory(t, 1), context.Background()
		for _, offset := range []int64{-7, -5, 1} {
			if _, err := ledger.Offer(ctx, "k", offset); err != nil {
				t.Fatal(err)
			}
		}
		log := new(dispatch.Log)
		c := newCalls()
		var letters []dispatch.DeadLetter
		var d *dispatch.Dispatcher
		r := run(t, dispatch.Config{
			Ledger: ledger, Source: log, CommitEvery: time.Millisecond,
			Handler: func(_ context.Context, job dispatch.Job) error {
				defer c.enter(job)()
				return nil
			},
			DeadLetter: func(_ context.Context, letter dispatch.DeadLetter) error {
				if floor := d.Stats().Floor; floor > letter.Record.Offset {
					t.Errorf("the floor is %d before %d is done", floor, letter.Record.Offset)
				}
				time.Sleep(10 * time.Millisecond)
				letters = append(letters, letter)
				return nil
			},
		})
		d = r.Dispatcher
		time.Sleep(time.Second)
		equal(t, "floor while nothing was read", r.Stats().Floor, -7)
		equal(t, "waiting", r.Stats().Waiting, 1)
		log.Append("other", nil) // 0: now it is known that -7 and -5 will not come
		time.Sleep(time.Second)
		equal(t, "floor", r.Stats().Floor, 1)
		log.Append("k", nil)
		time.Sleep(time.Second)
		r.mustStop(t)
		same(t, "k", c.of("k"), 1)
		if len(letters) != 2 || letters[0].Record.Offset != -7 || letters[1].Record.Offset != -5 || !errors.Is(letters[0].Err, dispatch.ErrRecordGone) {
			t.Errorf("letters: %+v", letters)
		}
		equal(t, "floor", r.Stats().Floor, 2)
	})
}

// A dead letter is not lost by an error, a panic, Goexit or a crash; the floor waits for it, and so does its domain.
func TestD2_DeadLetterIsDeliveredAtLeastOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ledger, log := memory(t, 0), fill("k", "k", "j")
		for life := range 3 {
			p := &process{Ledger: ledger, Source: log}
			c := newCalls()
			tried := 0
			r := run(t, dispatch.Config{
				Ledger: p, Source: p,
				Handler: func(_ context.Context, job dispatch.Job) error {
					defer c.enter(job)()
					if job.Record.Offset == 0 {
						return errLost
					}
					return nil
				},
				DeadLetter: func(_ context.Context, letter dispatch.DeadLetter) error {
					equal(t, "offset", letter.Record.Offset, 0)
					equal(t, "the first life knows why", letter.Err != nil, life == 0)
					equal(t, "and the lease", letter.Lease.Token != 0, life == 0)
					switch tried++; {
					case life == 2 && tried == 4:
						return nil
					case tried%3 == 0:
						panic("no")
					case tried%3 == 1:
						runtime.Goexit()
					}
					return errLost
				},
			})
			for tried < 4 && r.Stats().DeadLettered == 0 {
				time.Sleep(10 * time.Millisecond)
				synctest.Wait()
			}
			if life < 2 {
				equal(t, "floor", r.Stats().Floor, 0)
				same(t, "k waits", c.of("k")[min(1, len(c.of("k"))):])
			}
			p.kill()
			if life == 2 {
				p.mu.Lock()
				p.dead = false
				p.mu.Unlock()
				time.Sleep(time.Minute)
				equal(t, "floor", r.Stats().Committed, 3)
				same(t, "k", c.of("k"), 1)
			}
			_ = r.stop()
		}
	})
}

// A record that no ledger can hold is a dead letter at once.
func TestRecordThatNoLedgerHolds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var letters []dispatch.DeadLetter
		r := run(t, dispatch.Config{
			Ledger: memory(t, 3), Source: fill("", "k", ""), Handler: func(context.Context, dispatch.Job) error { return nil },
			DeadLetter: func(_ context.Context, letter dispatch.DeadLetter) error {
				letters = append(letters, letter)
				return nil
			},
		})
		time.Sleep(time.Minute)
		r.mustStop(t)
		equal(t, "letters", len(letters), 2)
		equal(t, "floor", r.Stats().Floor, 3)
		if !errors.Is(letters[0].Err, lease.ErrInvalid) {
			t.Error(letters[0].Err)
		}
	})
}

// A hot key has more records than its share: the others do not wait for it, and it is never without work.
func TestD5_HotKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		log := new(dispatch.Log)
		for i := range 4000 {
			if i%2 == 0 {
				log.Append("hot", nil)
			} else {
				log.Append(fmt.Sprint("k", i%300), nil)
			}
		}
		began := time.Now()
		c := newCalls()
		r := run(t, dispatch.Config{Ledger: memory(t, 0), Source: log, MaxInFlight: 4, MaxBuffered: 100, MaxPerDomain: 10, Handler: func(_ context.Context, job dispatch.Job) error {
			defer c.enter(job)()
			time.Sleep(time.Millisecond)
			return nil
		}})
		time.Sleep(time.Minute)
		r.mustStop(t)
		c.check(t)
		times, _ := c.at("hot")
		equal(t, "hot", len(times), 2000)
		if took := times[1999].Sub(began); took > 2010*time.Millisecond {
			t.Errorf("hot took %v for 1999 ms of work before its last", took)
		}
		var last time.Time
		for i := 1; i < 300; i += 2 {
			times, _ := c.at(fmt.Sprint("k", i))
			if at := times[len(times)-1]; at.After(last) {
				last = at
			}
		}
		if took := last.Sub(began); took > 700*time.Millisecond {
			t.Errorf("the others took %v for 667 ms of work", took)
		}
	})
}

// A slow key holds the floor and nothing else.
func TestD5_SlowKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		log := fill("slow")
		for i := range 500 {
			log.Append(fmt.Sprint("k", i%20), nil)
		}
		r := run(t, dispatch.Config{Ledger: memory(t, 0), Source: log, MaxInFlight: 2, MaxBuffered: 20, MaxPerDomain: 1, Handler: func(_ context.Context, job dispatch.Job) error {
			time.Sleep(time.Millisecond)
			if job.Record.Domain == "slow" {
				time.Sleep(10 * time.Second)
			}
			return nil
		}})
		time.Sleep(5 * time.Second)
		s := r.Stats()
		equal(t, "done", s.Succeeded, 500)
		equal(t, "floor", s.Floor, 0)
		equal(t, "oldest", s.Oldest, 5*time.Second)
		equal(t, "lag", s.Lag, 501)
		time.Sleep(6 * time.Second)
		equal(t, "floor", r.Stats().Floor, 501)
		equal(t, "lag", r.Stats().Lag, 0)
		r.mustStop(t)
	})
}

// A Concurrency bounds several dispatchers together; its refusals cost a pause and no work.
func TestConcurrencyIsShared(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCalls()
		both := make(pool, 3)
		handler := func(_ context.Context, job dispatch.Job) error {
			defer c.enter(job)()
			time.Sleep(3 * time.Millisecond)
			return nil
		}
		seen := &events{}
		var all []*running
		for i := range 2 {
			log := new(dispatch.Log)
			for k := range 100 {
				log.Append(fmt.Sprint(i, "-", k%10), nil)
			}
			all = append(all, run(t, dispatch.Config{Ledger: memory(t, 0), Source: log, Concurrency: both, Observer: seen, Handler: handler}))
		}
		time.Sleep(time.Minute)
		for _, r := range all {
			r.mustStop(t)
			equal(t, "succeeded", r.Stats().Succeeded, 100)
			equal(t, "reclaimed", r.Stats().Reclaimed, 0)
		}
		equal(t, "most at once", c.most, 3)
		if len(seen.of(dispatch.Refused)) == 0 {
			t.Error("nothing was told of refusals")
		}
	})
}

// While it is refused, nothing is leased, and a drain does not wait.
func TestRefusedHoldsNoLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ledger := memory(t, 0)
		r := run(t, dispatch.Config{Ledger: ledger, Source: fill("k"), Concurrency: make(pool), Handler: func(context.Context, dispatch.Job) error { return nil }})
		time.Sleep(time.Minute)
		for l := range ledger.Held(context.Background()) {
			t.Errorf("held: %+v", l)
		}
		began := time.Now()
		r.mustStop(t)
		equal(t, "drained in", time.Since(began), 0)
		equal(t, "floor", r.Stats().Floor, 0)
	})
}

// A source that fails is asked again with growing pauses.
func TestSourceFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := &process{Ledger: memory(t, 0), Source: fill("k")}
		p.fault = func(call, _ string) (before, after error) {
			if call == "Fetch" {
				return errLost, nil
			}
			return nil, nil
		}
		seen := &events{}
		r := run(t, dispatch.Config{Ledger: p, Source: p, Observer: seen, Handler: func(context.Context, dispatch.Job) error { return nil }})
		time.Sleep(time.Minute)
		var waits []time.Duration
		for _, e := range seen.of(dispatch.FetchFailed) {
			waits = append(waits, e.Wait)
		}
		same(t, "waits", waits[:8], 100*time.Millisecond, 200*time.Millisecond, 400*time.Millisecond, 800*time.Millisecond, 1600*time.Millisecond, 3200*time.Millisecond, 5*time.Second, 5*time.Second)
		p.mu.Lock()
		p.fault = nil
		p.mu.Unlock()
		time.Sleep(6 * time.Second)
		equal(t, "succeeded", r.Stats().Succeeded, 1)
		r.mustStop(t)
	})
}

// A source that breaks its promises: nothing without an error, what is below from, too much, twice, out of order. It costs pauses, not records.
type sloppy struct {
	*dispatch.Log
	calls int
}

func (s *sloppy) Fetch(ctx context.Context, from int64, limit int) ([]dispatch.Record, error) {
	if s.calls++; s.calls%2 == 1 {
		return nil, nil
	}
	records, err := s.Log.Fetch(ctx, max(0, from-2), limit+5)
	if len(records) > 3 {
		records = append(records, records[0], records[2], records[1])
	}
	return records, err
}

func TestSloppySource(t *testing.T) {
	bubble(t, func(t *testing.T) {
		log := new(dispatch.Log)
		for i := range 50 {
			log.Append(fmt.Sprint("k", i%3), nil)
		}
		c := newCalls()
		r := run(t, dispatch.Config{Ledger: memory(t, 0), Source: &sloppy{Log: log}, MaxBuffered: 8, MaxPerDomain: 2, Handler: func(_ context.Context, job dispatch.Job) error {
			defer c.enter(job)()
			time.Sleep(time.Millisecond)
			return nil
		}})
		time.Sleep(10 * time.Minute)
		_ = r.stop()
		c.check(t)
		for k := range 3 {
			var want []int64
			for offset := int64(k); offset < 50; offset += 3 {
				want = append(want, offset)
			}
			same(t, fmt.Sprint("k", k), c.of(fmt.Sprint("k", k)), want...)
		}
	})
}

// An observer that panics changes nothing.
func TestObserverPanics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		seen := &events{also: func(dispatch.Event) { panic("observer") }}
		r := run(t, dispatch.Config{Ledger: memory(t, 0), Source: fill("k"), Observer: seen, Handler: func(context.Context, dispatch.Job) error { return nil }})
		time.Sleep(time.Minute)
		r.mustStop(t)
		equal(t, "succeeded", r.Stats().Succeeded, 1)
		equal(t, "panics", r.Stats().ObserverPanics, uint64(len(seen.all)))
		if err := r.Run(context.Background()); !errors.Is(err, dispatch.ErrUsed) {
			t.Errorf("second Run: %v", err)
		}
	})
}
