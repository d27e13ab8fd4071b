// SPDX-License-Identifier: Apache-2.0

package dispatch_test

// This file holds D9: partitions that share their bounds, one that comes, goes or is lost, and what a Consumer refuses; all in
// virtual time.

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
)

// hands is an Ownership whose partitions a test hands out and takes away.
type hands struct {
	mu    sync.Mutex
	ctx   context.Context
	work  func(context.Context, dispatch.Partition)
	held  map[string]context.CancelCauseFunc
	group sync.WaitGroup
	fail  chan error
}

func newHands() *hands {
	return &hands{held: map[string]context.CancelCauseFunc{}, fail: make(chan error)}
}

func (h *hands) Hold(ctx context.Context, work func(context.Context, dispatch.Partition)) error {
	h.mu.Lock()
	h.ctx, h.work = ctx, work
	h.mu.Unlock()
	var err error
	select {
	case <-ctx.Done():
	case err = <-h.fail:
	}
	h.mu.Lock()
	for _, end := range h.held {
		end(nil)
	}
	h.mu.Unlock()
	h.group.Wait()
	return err
}

// give hands p out; what it returns takes it away, and waits.
func (h *hands) give(p dispatch.Partition) (take func(cause error)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ctx, end := context.WithCancelCause(h.ctx)
	h.held[p.Name] = end
	done := make(chan struct{})
	h.group.Go(func() {
		defer close(done)
		h.work(ctx, p)
		end(nil)
	})
	return func(cause error) { end(cause); <-done }
}

// consuming is a Consumer in its Run, and what it has called.
type consuming struct {
	*dispatch.Consumer
	*hands
	*calls
	seen   *events
	cancel context.CancelFunc
	result chan error
}

func consume(t testing.TB, cfg dispatch.Config) *consuming {
	t.Helper()
	r := &consuming{hands: newHands(), calls: newCalls(), seen: &events{}, result: make(chan error, 1)}
	if cfg.Observer == nil {
		cfg.Observer = r.seen
	}
	r.note(&cfg)
	var err error
	if r.Consumer, err = dispatch.NewConsumer(r.hands, cfg); err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	ctx, r.cancel = context.WithCancel(context.Background())
	go func() { r.result <- r.Run(ctx) }()
	synctest.Wait()
	return r
}

// mustStop drains, which must leave nothing.
func (r *consuming) mustStop(t testing.TB) {
	t.Helper()
	if err := r.stop(); err != nil {
		t.Errorf("drain: %v", err)
	}
}

func (r *consuming) stop() error {
	r.cancel()
	return <-r.result
}

// filled returns a partition with n records of domains of their own.
func filled(t testing.TB, name string, n int) dispatch.Partition {
	log := new(dispatch.Log)
	for i := range n {
		log.Append(fmt.Sprint(name, "/", i), []byte(name))
	}
	return dispatch.Partition{Name: name, Source: log, Ledger: memory(t, 3)}
}

// In any company of partitions, whichever comes first: the bounds hold over all, busy partitions get equal parts, and one that
// was idle waits no longer than it takes the others to finish one record each.
func TestPropertySharedFairly(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		busy := rapid.IntRange(1, 8).Draw(rt, "busy")
		idle := rapid.IntRange(1, 8).Draw(rt, "idle")
		slots := rapid.IntRange(1, 20).Draw(rt, "places")
		buffered := slots * rapid.SampledFrom([]int{1, 2, 100}).Draw(rt, "buffered") // with 100, records are no bound
		apart := rapid.IntRange(0, 5).Draw(rt, "seconds apart")
		synctest.Test(t, func(*testing.T) {
			var mu sync.Mutex
			began := 0
			count := map[string]int{}
			start := map[string]time.Time{}
			c := consume(t, dispatch.Config{
				MaxInFlight: slots, MaxBuffered: buffered,
				Handler: func(_ context.Context, job dispatch.Job) error {
					mu.Lock()
					name := string(job.Record.Payload)
					if count[name]++; start[name].IsZero() {
						start[name] = time.Now()
					}
					began++
					// Each ends at a nanosecond of its own: a free slot meets all who wait, and nothing depends on the order in
					// which goroutines run.
					ends := time.Now().Truncate(time.Second).Add(time.Second + time.Duration(began))
					mu.Unlock()
					time.Sleep(time.Until(ends))
					return nil
				},
			})
			for i := range busy {
				c.give(filled(t, fmt.Sprint("busy", i), 90*slots))
				time.Sleep(time.Duration(apart) * time.Second)
			}
			var quiet []dispatch.Partition
			for i := range idle {
				quiet = append(quiet, filled(t, fmt.Sprint("quiet", i), 0))
				c.give(quiet[i])
			}
			// All is even then. Records begin on whole seconds: what is counted is what begins in twenty of them, not in a part
			// of one.
			time.Sleep(20*time.Second + time.Second/2)
			mu.Lock()
			clear(count)
			mu.Unlock()
			time.Sleep(20 * time.Second)
			mu.Lock()
			least, greatest := 1<<30, 0
			for i := range busy {
				n := count[fmt.Sprint("busy", i)]
				least, greatest = min(least, n), max(greatest, n)
			}
			mu.Unlock()
			equal := min(20*slots/busy, greatest)
			if buffered == 100*slots && greatest-least > 2 || least < equal/4 {
				rt.Errorf("D9: busy partitions had from %d to %d records done", least, greatest)
			}
			total := 0
			for _, s := range c.Stats() {
				total += s.Buffered
			}
			if total > buffered+busy+idle {
				rt.Errorf("D9: %d records fetched, want %d at most", total, buffered)
			}
			asked := time.Now()
			for i, p := range quiet {
				p.Source.(*dispatch.Log).Append("k", fmt.Append(nil, "quiet", i))
			}
			time.Sleep(20 * time.Second)
			_ = c.stop()
			mu.Lock()
			defer mu.Unlock()
			if c.most > slots {
				rt.Errorf("D9: %d in flight, want %d at most", c.most, slots)
			}
			for i := range idle {
				at := start[fmt.Sprint("quiet", i)]
				if wait := at.Sub(asked); at.IsZero() || wait > time.Duration((busy+idle+slots-1)/slots+1)*time.Second {
					rt.Errorf("D9: quiet%d began after %v beside %d busy and %d quiet on %d places", i, wait, busy, idle, slots)
				}
			}
		})
	})
}

// A partition whose records take ten times as long has as many slots as the other, not ten times as many.
func TestSlotsAreSharedAndNotTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := consume(t, dispatch.Config{
			MaxInFlight: 10, MaxBuffered: 1000,
			Handler: func(_ context.Context, job dispatch.Job) error {
				time.Sleep(map[string]time.Duration{"long": 10 * time.Second, "short": time.Second}[job.Partition])
				return nil
			},
		})
		c.give(filled(t, "long", 400))
		c.give(filled(t, "short", 2000))
		time.Sleep(100*time.Second + time.Millisecond)
		for range 50 {
			time.Sleep(time.Second)
			_, long := c.by("long")
			if _, short := c.by("short"); long != 5 || short != 5 {
				t.Errorf("D9: slots: %d and %d, want five each", long, short)
			}
		}
		_ = c.stop()
	})
}

// A partition that is lost is given up alone; one that goes is drained; one that comes back begins where it was.
func TestPartitionsComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		c := consume(t, dispatch.Config{
			DrainTimeout: time.Second, MaxInFlight: 2, CommitEvery: time.Hour,
			Handler: func(_ context.Context, job dispatch.Job) error {
				if job.Record.Domain == "hang" {
					<-hang
				} else {
					equal(t, "Partition", job.Partition, string(job.Record.Payload))
				}
				time.Sleep(time.Second)
				return nil
			},
		})
		a, b := filled(t, "a", 10), filled(t, "b", 2)
		takeA := c.give(a)
		takeB := c.give(b)
		time.Sleep(2500 * time.Millisecond)
		takeB(nil)
		equal(t, "held", len(c.Stats()), 1)
		floor, _ := b.Source.Committed(t.Context())
		equal(t, "b, drained", floor, 2)
		takeA(dispatch.Lost("a", nil))
		equal(t, "held", len(c.Stats()), 0)
		floor, _ = a.Source.Committed(t.Context())
		equal(t, "a, lost", floor, 0)
		c.give(a)
		a.Source.(*dispatch.Log).Append("hang", nil)
		time.Sleep(time.Minute)
		equal(t, "a, again", c.Stats()[0].Succeeded+c.Stats()[0].Skipped, 10)
		c.check(t)
		if err := c.stop(); !errors.Is(err, dispatch.ErrDrain) || !strings.Contains(err.Error(), "a drained with 1 abandoned") {
			t.Errorf("D9: Run: %v", err)
		}
		for i := range 10 {
			same(t, fmt.Sprint("a/", i), c.of(fmt.Sprint("a/", i)), int64(i))
		}
		close(hang)
		time.Sleep(time.Second)
	})
}

// What the Ownership says of the membership is what Run returns, once every partition has been given back.
func TestConsumerEndsWithItsMembership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := consume(t, dispatch.Config{})
		c.give(filled(t, "a", 3))
		synctest.Wait()
		c.fail <- errDead
		if err := <-c.result; !errors.Is(err, errDead) {
			t.Errorf("Run: %v", err)
		}
		equal(t, "held", len(c.Stats()), 0)
		c.cancel()
	})
}

// A ledger that calls a drain's floor invalid is an error of that drain, and no reason to leave the group.
func TestConsumerOutlivesAnInvalidFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := consume(t, dispatch.Config{CommitEvery: time.Hour})
		p := newProcess(memory(t, 0), fill("k"))
		p.fails(&lease.InvalidError{Field: "lease.floor", Value: 1, Allowed: "none"}, "Compact")
		take := c.give(dispatch.Partition{Name: "a", Ledger: p, Source: p})
		c.give(filled(t, "b", 1))
		synctest.Wait()
		take(nil)
		synctest.Wait()
		equal(t, "partitions held", len(c.Stats()), 1)
		c.mustStop(t)
	})
}

// One partition that hangs, in its handlers or in its retries, keeps its own records from going on, and nobody else's: also of
// those that come when it has filled everything.
func TestStuckPartition(t *testing.T) {
	for _, how := range []string{"hangs", "fails"} {
		bubble(t, how, func(t *testing.T) {
			release := make(chan struct{})
			c := consume(t, dispatch.Config{
				MaxInFlight: 8, MaxBuffered: 32, Backoff: time.Hour, MaxBackoff: time.Hour,
				Handler: func(_ context.Context, job dispatch.Job) error {
					if string(job.Record.Payload) == "stuck" {
						if how == "fails" {
							return errors.New("later")
						}
						<-release
					}
					return nil
				},
			})
			first := filled(t, "first", 0)
			c.give(first)
			c.give(filled(t, "stuck", map[string]int{"hangs": 7, "fails": 100}[how]))
			synctest.Wait()
			late := filled(t, "late", 20)
			c.give(late)
			for range 20 {
				first.Source.(*dispatch.Log).Append("k", nil)
			}
			time.Sleep(time.Minute)
			for _, s := range c.Stats() {
				want := uint64(20)
				if s.Name == "stuck" {
					want = 0
				}
				equal(t, s.Name, s.Succeeded, want)
			}
			close(release)
			_ = c.stop()
		})
	}
}

// A Consumer refuses what New refuses, of which TestNewRefuses has the list, and what only it is given.
func TestConsumerRefuses(t *testing.T) {
	cfg := dispatch.Config{Handler: func(context.Context, dispatch.Job) error { return nil }, DeadLetter: dispatch.Discard}
	_, err := dispatch.NewConsumer(newHands(), dispatch.Config{DeadLetter: dispatch.Discard})
	refused(t, "Config.Handler", err)
	_, err = dispatch.NewConsumer(nil, cfg)
	refused(t, "ownership", err)
	_, err = dispatch.NewConsumer((*hands)(nil), cfg)
	refused(t, "ownership", err)
	c, err := dispatch.NewConsumer(newHands(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	refused(t, "ctx", c.Run(nil)) //nolint:staticcheck // refused, not a panic
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Run(ctx); err != nil {
		t.Errorf("Run after those that were refused: %v", err)
	}
	if err := c.Run(ctx); !errors.Is(err, lease.ErrInvalid) {
		t.Errorf("a second Run: %v", err)
	}

	// An Ownership that breaks its word ends the Run.
	for field, p := range map[string]dispatch.Partition{
		"Partition.Name":   filled(t, "a", 0),
		"Partition.Source": {Name: "b", Ledger: memory(t, 0), Source: (*dispatch.Log)(nil)},
		"Partition.Ledger": {Name: "c", Source: new(dispatch.Log)},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := consume(t, dispatch.Config{})
			c.give(dispatch.Partition{Name: "a", Source: new(dispatch.Log), Ledger: struct{ lease.Ledger }{memory(t, 0)}})
			synctest.Wait()
			c.give(p)
			refused(t, field, <-c.result)
			c.cancel()
		})
	}
}

func refused(t testing.TB, field string, err error) {
	t.Helper()
	var invalid *lease.InvalidError
	if !errors.As(err, &invalid) || invalid.Field != "dispatch."+field {
		t.Errorf("%s: %v", field, err)
	}
}
