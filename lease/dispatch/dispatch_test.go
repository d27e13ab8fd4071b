package dispatch_test

// This file holds D1 to D6 one by one, in virtual time.

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
)

func TestD1_OrderPerDomainOneAtATime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		log := new(dispatch.Log)
		want := map[string][]int64{}
		for i := range int64(300) {
			name := fmt.Sprint("k", i*i%7)
			want[name] = append(want[name], log.Append(name, nil))
		}
		c := newCalls()
		r := run(t, dispatch.Config{
			Ledger: memory(t, 0), Source: log, MaxInFlight: 4, MaxBuffered: 32,
			Handler: func(_ context.Context, job dispatch.Job) error {
				defer c.enter(job)()
				time.Sleep(time.Duration(job.Record.Offset%5) * time.Millisecond)
				return nil
			},
		})
		time.Sleep(time.Minute)
		r.mustStop(t)
		c.check(t)
		for name, offsets := range want {
			same(t, name, c.of(name), offsets...)
			for i, token := range c.tokens[name][1:] {
				if token <= c.tokens[name][i] {
					t.Errorf("%s: token %d after %d", name, token, c.tokens[name][i])
				}
			}
		}
		equal(t, "most at once", c.most, 4)
		s := r.Stats()
		equal(t, "succeeded", s.Succeeded, 300)
		equal(t, "floor", s.Floor, 300)
		equal(t, "committed", s.Committed, 300)
	})
}

// A failed record keeps its domain waiting, and comes first when it is its time.
func TestD1_RetryKeepsOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		log := fill("a", "a", "b", "a")
		c := newCalls()
		began := time.Now()
		r := run(t, dispatch.Config{
			Ledger: memory(t, 5), Source: log, Backoff: time.Second,
			Handler: func(_ context.Context, job dispatch.Job) error {
				defer c.enter(job)()
				if job.Record.Offset == 0 && job.Lease.RetryCount < 3 {
					return errors.New("not yet")
				}
				return nil
			},
		})
		time.Sleep(time.Minute)
		r.mustStop(t)
		same(t, "a", c.of("a"), 0, 0, 0, 0, 1, 3)
		same(t, "b", c.of("b"), 2)
		for i, want := range []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second, 7 * time.Second, 7 * time.Second} {
			equal(t, fmt.Sprint("call ", i), c.times["a"][i].Sub(began), want)
		}
		equal(t, "retried", r.Stats().Retried, 3)
	})
}

// Every floor that is committed has only done records below it, and the ledger is compacted to what was committed, never before.
func TestD2_FloorNeverPassesUnfinished(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var mu sync.Mutex
		done := map[int64]bool{}
		var committed, compacted int64
		p := &process{Ledger: memory(t, 2), Source: nil}
		log := new(dispatch.Log)
		for i := range 400 {
			log.Append(fmt.Sprint("k", i%13), nil)
		}
		p.Source = log
		check := func(call string, floor int64) {
			mu.Lock()
			defer mu.Unlock()
			for offset := range floor {
				if !done[offset] {
					t.Errorf("%s(%d) before %d is done", call, floor, offset)
				}
			}
			if call == "Commit" {
				committed = floor
			} else if compacted = floor; compacted > committed {
				t.Errorf("Compact(%d) before Commit: %d", compacted, committed)
			}
		}
		finish := func(offset int64) {
			mu.Lock()
			defer mu.Unlock()
			done[offset] = true
		}
		r := run(t, dispatch.Config{
			Ledger: &watched{p, check}, Source: &watchedSource{log, check}, MaxInFlight: 7, MaxBuffered: 64, MaxPerDomain: 3, CommitEvery: time.Millisecond,
			Handler: func(_ context.Context, job dispatch.Job) error {
				time.Sleep(time.Duration(job.Record.Offset*7%11) * time.Millisecond)
				if job.Record.Offset%17 == 3 {
					return errors.New("never")
				}
				finish(job.Record.Offset)
				return nil
			},
			DeadLetter: func(_ context.Context, letter dispatch.DeadLetter) error {
				time.Sleep(3 * time.Millisecond)
				finish(letter.Record.Offset)
				return nil
			},
		})
		time.Sleep(time.Minute)
		r.mustStop(t)
		equal(t, "committed", committed, 400)
		equal(t, "compacted", compacted, 400)
		equal(t, "dead lettered", r.Stats().DeadLettered, 24)
	})
}

type watched struct {
	*process
	check func(string, int64)
}

func (w *watched) Compact(ctx context.Context, floor int64) error {
	w.check("Compact", floor)
	return w.process.Compact(ctx, floor)
}

type watchedSource struct {
	*dispatch.Log
	check func(string, int64)
}

func (w *watchedSource) Commit(ctx context.Context, floor int64) error {
	w.check("Commit", floor)
	return w.Log.Commit(ctx, floor)
}

// A commit that is refused is not compacted either.
func TestD2_RefusedCommitCompactsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		refuse := true
		p := &process{Ledger: memory(t, 0), Source: fill("a", "b")}
		p.fault = func(call, _ string) (before, after error) {
			if call == "Commit" && refuse {
				return errLost, nil
			}
			return nil, nil
		}
		seen := &events{}
		r := run(t, dispatch.Config{Ledger: p, Source: p, Observer: seen, Handler: func(context.Context, dispatch.Job) error { return nil }})
		time.Sleep(time.Minute)
		v, _ := p.Ledger.Inspect(context.Background(), "a")
		if v.Floor >= 0 || v.Processed != 1 {
			t.Errorf("compacted: %+v", v)
		}
		equal(t, "floor", r.Stats().Floor, 2)
		equal(t, "committed", r.Stats().Committed, 0)
		if len(seen.of(dispatch.CommitFailed)) < 10 {
			t.Errorf("told %d times", len(seen.of(dispatch.CommitFailed)))
		}
		err := r.stop()
		var failed *dispatch.DrainError
		if !errors.As(err, &failed) || !errors.Is(err, errLost) || !errors.Is(err, dispatch.ErrDrain) || failed.Abandoned != 0 {
			t.Errorf("drain: %v", err)
		}
		p.mu.Lock()
		refuse = false
		p.mu.Unlock()
		r = run(t, dispatch.Config{Ledger: p, Source: p, Handler: func(context.Context, dispatch.Job) error { t.Error("again"); return nil }})
		time.Sleep(time.Minute)
		equal(t, "skipped", r.Stats().Skipped, 2)
		r.mustStop(t)
		v, _ = p.Ledger.Inspect(context.Background(), "a")
		equal(t, "ledger's floor", v.Floor, 2)
	})
}

// While nothing can finish, the source is asked for MaxBuffered records and no more, of one domain MaxPerDomain.
func TestD3_FetchedWorkIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, domains := range []int{1, 3, 1000} {
			log := new(dispatch.Log)
			for i := range 2000 {
				log.Append(fmt.Sprint("k", i%domains), nil)
			}
			block := make(chan struct{})
			ledger := memory(t, 0)
			seen := &events{}
			r := run(t, dispatch.Config{
				Ledger: ledger, Source: log, MaxInFlight: 2, MaxBuffered: 50, MaxPerDomain: 10, Observer: seen,
				Handler: func(context.Context, dispatch.Job) error { <-block; return nil },
			})
			time.Sleep(time.Minute)
			s := r.Stats()
			equal(t, fmt.Sprint(domains, " domains: buffered"), s.Buffered, min(50, 10*domains))
			equal(t, "working", s.Working, min(2, domains))
			equal(t, "paused", s.Paused, domains > 3)
			if domains > 3 {
				equal(t, "told", len(seen.of(dispatch.Paused)), 1)
				equal(t, "next", s.Next, 50)
			}
			live := 0
			for i := range domains {
				v, _ := ledger.Inspect(context.Background(), fmt.Sprint("k", i))
				if live += len(v.Backlog); v.Lease != nil {
					live++
				}
			}
			equal(t, "in the ledger", live, s.Buffered)
			seen.mu.Lock()
			seen.also = func(dispatch.Event) {
				if s := r.Stats(); s.Buffered > 50 || s.Working > 2 {
					t.Errorf("%d buffered, %d working", s.Buffered, s.Working)
				}
			}
			seen.mu.Unlock()
			close(block)
			time.Sleep(time.Minute)
			r.mustStop(t)
			equal(t, "succeeded", r.Stats().Succeeded, 2000)
			equal(t, "behind", r.Stats().Behind, 0)
		}
	})
}

// A ledger that has no room is back-pressure, not loss.
func TestD3_FullBacklogLosesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ledger, err := lease.NewMemory(lease.Config{MaxBacklog: 1})
		if err != nil {
			t.Fatal(err)
		}
		log := new(dispatch.Log)
		want := map[string][]int64{}
		for i := range 200 {
			name := fmt.Sprint("k", i%3)
			want[name] = append(want[name], log.Append(name, nil))
		}
		c := newCalls()
		seen := &events{}
		r := run(t, dispatch.Config{Ledger: ledger, Source: log, Observer: seen, Handler: func(_ context.Context, job dispatch.Job) error {
			defer c.enter(job)()
			time.Sleep(time.Millisecond)
			return nil
		}})
		time.Sleep(time.Minute)
		r.mustStop(t)
		for name, offsets := range want {
			same(t, name, c.of(name), offsets...)
		}
		full := seen.of(dispatch.LedgerError)
		if len(full) == 0 || !errors.Is(full[0].Err, lease.ErrBacklogFull) {
			t.Errorf("told: %v", full)
		}
	})
}

// A drain lets handlers finish, starts nothing, and the next Run goes on behind what was done.
func TestD4_DrainAndRestart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ledger, log := memory(t, 3), new(dispatch.Log)
		for i := range 100 {
			log.Append(fmt.Sprint("k", i%5), nil)
		}
		c := newCalls()
		handler := func(_ context.Context, job dispatch.Job) error {
			defer c.enter(job)()
			time.Sleep(time.Second)
			return nil
		}
		r := run(t, dispatch.Config{Ledger: ledger, Source: log, MaxInFlight: 3, Handler: handler})
		time.Sleep(4500 * time.Millisecond)
		r.mustStop(t)
		equal(t, "done in the first life", r.Stats().Succeeded, 15)
		from, _ := log.Committed(context.Background())
		equal(t, "committed", from, r.Stats().Floor)
		if from == 0 {
			t.Error("nothing committed")
		}

		r = run(t, dispatch.Config{Ledger: ledger, Source: log, MaxInFlight: 3, Handler: handler})
		time.Sleep(time.Minute)
		r.mustStop(t)
		c.check(t)
		equal(t, "reclaimed", r.Stats().Reclaimed, 0)
		for i := range 5 {
			if offsets := c.of(fmt.Sprint("k", i)); len(offsets) != 20 || !slices.IsSorted(offsets) {
				t.Errorf("k%d: %v", i, offsets)
			}
		}
	})
}

// late admits everybody, but only after a while, whatever has happened meanwhile.
type late struct{}

func (late) Do(_ context.Context, fn func() error) error {
	time.Sleep(2 * time.Second)
	return fn()
}

// What is admitted once the drain has begun does not start.
func TestD4_AdmittedTooLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ledger, c := memory(t, 3), newCalls()
		r := run(t, dispatch.Config{Ledger: ledger, Source: fill("a"), Concurrency: late{}, Handler: func(_ context.Context, job dispatch.Job) error {
			defer c.enter(job)()
			return nil
		}})
		time.Sleep(time.Second)
		r.mustStop(t)
		if got := c.of("a"); len(got) > 0 || r.Stats().Succeeded > 0 {
			t.Errorf("started in the drain: %v", got)
		}
	})
}

// What the drain has no time for is left under its lease, and done again by the next one. A handler that the drain interrupts
// has not failed.
func TestD4_DrainTimesOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ledger, log := memory(t, 3), fill("deaf", "listens", "late", "retries")
		var mu sync.Mutex
		finished := map[string]int{}
		release := make(chan struct{})
		first := true
		handler := func(ctx context.Context, job dispatch.Job) error {
			mu.Lock()
			mine := first
			mu.Unlock()
			if mine {
				switch job.Record.Domain {
				case "deaf":
					<-release
				case "listens":
					<-ctx.Done()
					return ctx.Err()
				case "late": // its context has ended, but it makes it
					<-ctx.Done()
					time.Sleep(10 * time.Millisecond)
				case "retries":
					return errors.New("later")
				}
			}
			mu.Lock()
			defer mu.Unlock()
			finished[job.Record.Domain]++
			return nil
		}
		r := run(t, dispatch.Config{Ledger: ledger, Source: log, Handler: handler, DrainTimeout: time.Second, Backoff: time.Hour, MaxBackoff: time.Hour})
		synctest.Wait()
		began := time.Now()
		err := r.stop()
		equal(t, "took", time.Since(began), 1100*time.Millisecond)
		var failed *dispatch.DrainError
		if !errors.As(err, &failed) || failed.Abandoned != 1 || failed.Commit != nil {
			t.Errorf("drain: %v", err)
		}
		for domain, held := range map[string]bool{"deaf": true, "listens": true, "late": false, "retries": true} {
			v, _ := ledger.Inspect(context.Background(), domain)
			equal(t, domain, v.Lease != nil, held)
			if held {
				equal(t, domain+": retries", v.Lease.RetryCount, map[string]int{"retries": 1}[domain])
			}
		}
		close(release) // too late: nobody listens any more
		synctest.Wait()
		mu.Lock()
		equal(t, "deaf", finished["deaf"], 1)
		first = false
		mu.Unlock()

		r = run(t, dispatch.Config{Ledger: ledger, Source: log, Handler: handler, Backoff: time.Second})
		time.Sleep(time.Hour)
		r.mustStop(t)
		mu.Lock()
		defer mu.Unlock()
		equal(t, "reclaimed", r.Stats().Reclaimed, 3)
		for domain, want := range map[string]int{"deaf": 2, "listens": 1, "late": 1, "retries": 1} {
			equal(t, domain, finished[domain], want)
		}
	})
}

// Restart with a backlog: the ledger knows what waits, the source has it, and the payloads come back.
func TestD4_RestartWithBacklog(t *testing.T) {
	for _, keep := range []bool{true, false} {
		t.Run(fmt.Sprint("ledger kept ", keep), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				ledger, log := memory(t, 3), new(dispatch.Log)
				for i := range 60 {
					log.Append(fmt.Sprint("k", i%4), []byte{byte(i)})
				}
				p := &process{Ledger: ledger, Source: log}
				c := newCalls()
				die := make(chan struct{})
				r := run(t, dispatch.Config{Ledger: p, Source: p, DrainTimeout: time.Second, Handler: func(_ context.Context, job dispatch.Job) error {
					defer c.enter(job)()
					if len(c.of(job.Record.Domain)) == 4 {
						<-die
					}
					time.Sleep(time.Second)
					return nil
				}})
				time.Sleep(30 * time.Second)
				p.kill()
				close(die)
				if r.stop() == nil {
					t.Error("a dead process drained")
				}
				before := map[string]int{}
				for name := range c.offsets {
					before[name] = len(c.of(name))
				}

				if !keep {
					ledger = memory(t, 3)
				}
				r = run(t, dispatch.Config{Ledger: ledger, Source: log, Handler: func(_ context.Context, job dispatch.Job) error {
					defer c.enter(job)()
					if int(job.Record.Payload[0]) != int(job.Record.Offset) {
						t.Errorf("%d has payload %d", job.Record.Offset, job.Record.Payload)
					}
					return nil
				}})
				time.Sleep(time.Minute)
				r.mustStop(t)
				equal(t, "floor", r.Stats().Committed, 60)
				for name, n := range before {
					again := c.of(name)[n:]
					if !slices.IsSorted(again) || again[len(again)-1] != c.of(name)[0]+56 {
						t.Errorf("%s: after the restart %v", name, again)
					}
					// The three that were done are not done again while somebody remembers: the ledger, or else the floor.
					if keep {
						equal(t, name, len(again), 12)
					}
				}
			})
		})
	}
}

// One key fails for ever, one never returns; the others, also those in the same reading, go on at once.
func TestD5_StuckKeyDelaysOnlyItself(t *testing.T) {
	bubble(t, func(t *testing.T) {
		log := new(dispatch.Log)
		for i := range 3000 {
			log.Append([]string{"poison", "stuck", fmt.Sprint("k", i%50)}[i%3], nil)
		}
		began := time.Now()
		var mu sync.Mutex
		var last time.Time
		others := 0
		release := make(chan struct{})
		r := run(t, dispatch.Config{
			Ledger: memory(t, 1<<30), Source: log, MaxInFlight: 4, MaxBuffered: 100, MaxPerDomain: 10,
			Handler: func(_ context.Context, job dispatch.Job) error {
				switch job.Record.Domain {
				case "poison":
					panic("poison")
				case "stuck":
					<-release
					return nil
				}
				time.Sleep(time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				others++
				last = time.Now()
				return nil
			},
		})
		time.Sleep(time.Hour)
		mu.Lock()
		equal(t, "others", others, 1000)
		// Three free places, a millisecond each; poison takes no time.
		if took := last.Sub(began); took > 340*time.Millisecond {
			t.Errorf("the others took %v", took)
		}
		mu.Unlock()
		s := r.Stats()
		equal(t, "floor", s.Floor, 0)
		equal(t, "next", s.Next, 3000)
		equal(t, "buffered", s.Buffered, 20)
		equal(t, "behind", s.Behind, 2)
		close(release)
		time.Sleep(time.Minute)
		equal(t, "succeeded", r.Stats().Succeeded, 2000)
		equal(t, "floor", r.Stats().Floor, 0)
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

// A ledger that fails for one domain delays that domain.
func TestD5_BrokenDomainDelaysOnlyItself(t *testing.T) {
	for _, call := range []string{"Offer", "AcquireNext", "Succeed", "Fail"} {
		t.Run(call, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				log := new(dispatch.Log)
				for i := range 200 {
					log.Append([]string{"broken", "fine"}[i%2], nil)
				}
				broken := true
				p := &process{Ledger: memory(t, 1), Source: log}
				p.fault = func(c, domain string) (before, after error) {
					if broken && c == call && domain == "broken" {
						return errLost, nil
					}
					return nil, nil
				}
				c := newCalls()
				r := run(t, dispatch.Config{Ledger: p, Source: p, MaxInFlight: 1, Handler: func(_ context.Context, job dispatch.Job) error {
					defer c.enter(job)()
					if call == "Fail" && job.Record.Offset%10 == 0 && job.Lease.RetryCount == 0 {
						return errors.New("once")
					}
					return nil
				}})
				time.Sleep(time.Second)
				equal(t, "fine", len(c.of("fine")), 100)
				equal(t, "floor", r.Stats().Floor, 0)
				p.mu.Lock()
				broken = false
				p.mu.Unlock()
				time.Sleep(time.Minute)
				r.mustStop(t)
				c.check(t)
				equal(t, "floor", r.Stats().Floor, 200)
				equal(t, "succeeded", r.Stats().Succeeded, 200)
			})
		})
	}
}

// A record that kills its process every time is given up after MaxRetries+1 lives, and the others of its domain go on.
func TestD6_KillerReachesGiveUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const retries = 2
		ledger, log := memory(t, retries), fill("k", "k", "other")
		var mu sync.Mutex
		var letters []dispatch.DeadLetter
		done := map[int64]int{}
		killed := 0
		for life := 1; life <= 6; life++ {
			p := &process{Ledger: ledger, Source: log}
			dead := false
			r := run(t, dispatch.Config{
				Ledger: p, Source: p, DrainTimeout: time.Millisecond, Backoff: time.Second,
				Handler: func(_ context.Context, job dispatch.Job) error {
					if job.Record.Offset == 0 {
						time.Sleep(time.Millisecond) // the innocent is done by then
					}
					mu.Lock()
					defer mu.Unlock()
					if dead {
						return errDead
					}
					if job.Record.Offset == 0 {
						p.kill()
						dead = true
						killed++
						return errDead
					}
					done[job.Record.Offset]++
					return nil
				},
				DeadLetter: func(_ context.Context, letter dispatch.DeadLetter) error {
					mu.Lock()
					defer mu.Unlock()
					letters = append(letters, letter)
					return nil
				},
			})
			time.Sleep(time.Minute)
			_ = r.stop()
		}
		equal(t, "lives that it took", killed, retries+1)
		equal(t, "dead letters", len(letters), 1)
		equal(t, "its offset", letters[0].Record.Offset, 0)
		equal(t, "1", done[1], 1)
		from, _ := log.Committed(context.Background())
		equal(t, "committed", from, 3)
	})
}

// Taking a partition fences the former holder out, counts one failure, and goes on in the schedule of the retries.
func TestD6_TakingFencesAndGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ledger, log := memory(t, 9), fill("k")
		p := &process{Ledger: ledger, Source: log}
		c := newCalls()
		began := time.Now()
		cfg := dispatch.Config{Ledger: p, Source: p, Backoff: time.Second, MaxBackoff: time.Hour, DrainTimeout: time.Millisecond, Handler: func(_ context.Context, job dispatch.Job) error {
			defer c.enter(job)()
			return errors.New("never")
		}}
		r := run(t, cfg) // attempts at 0, 1, 3, 7 s
		time.Sleep(8 * time.Second)
		p.kill()
		_ = r.stop()

		seen := &events{}
		cfg.Ledger, cfg.Source, cfg.Observer = ledger, log, seen
		r = run(t, cfg) // counts as the attempt at 15 s: the next is at 31 s, and no later than 16 s from now
		synctest.Wait()
		held := seen.of(dispatch.Reclaimed)
		if len(held) != 1 || held[0].RetryCount != 5 {
			t.Fatalf("reclaimed: %+v", held)
		}
		_, tokens := c.at("k")
		if _, err := ledger.Succeed(context.Background(), "k", tokens[0]); !errors.Is(err, lease.ErrTokenMismatch) {
			t.Errorf("the former holder: %v", err)
		}
		time.Sleep(time.Minute)
		r.cancel()
		<-r.result
		same(t, "offsets", c.of("k"), 0, 0, 0, 0, 0, 0)
		equal(t, "next attempt", c.times["k"][4].Sub(began), 24*time.Second)
		equal(t, "and the one after", c.times["k"][5].Sub(began), 56*time.Second)

		// A long time later everything is due at once, not in another hour.
		time.Sleep(time.Hour * 5)
		before := time.Now()
		r = run(t, cfg)
		time.Sleep(2 * time.Second)
		r.cancel()
		<-r.result
		equal(t, "due at once", c.times["k"][6].Sub(before), time.Second)
	})
}

// Goexit and panics are failures like any other, and their stacks are told.
func TestHandlerPanicsAndLeaves(t *testing.T) {
	bubble(t, func(t *testing.T) {
		seen := &events{}
		r := run(t, dispatch.Config{Ledger: memory(t, 1), Source: fill("panic", "exit", "error"), Observer: seen, Handler: func(_ context.Context, job dispatch.Job) error {
			switch {
			case job.Lease.RetryCount > 0:
			case job.Record.Domain == "panic":
				panic(errLost)
			case job.Record.Domain == "exit":
				runtime.Goexit()
			default:
				return errLost
			}
			return nil
		}})
		time.Sleep(time.Minute)
		r.mustStop(t)
		equal(t, "succeeded", r.Stats().Succeeded, 3)
		for _, e := range seen.of(dispatch.Retrying) {
			switch e.Domain {
			case "panic":
				var p *dispatch.PanicError
				if !errors.As(e.Err, &p) || !errors.Is(e.Err, errLost) || !errors.Is(e.Err, dispatch.ErrPanic) || len(p.Stack) == 0 {
					t.Errorf("panic: %v", e.Err)
				}
			case "exit":
				equal(t, "exit", e.Err, dispatch.ErrGoexit)
			case "error":
				equal(t, "error", e.Err, errLost)
			}
			equal(t, e.Domain, e.Wait, 100*time.Millisecond)
		}
	})
}
