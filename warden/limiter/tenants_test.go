// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden/decision"
)

// Among tasks of one priority the tenants take turns, however many tasks one of them has; a priority goes before all of them.
func TestTenantsTakeTurns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, p := occupied(t, Config{})
		q := newLine(t, l)
		for i := range 4 {
			q.join(Task{Name: fmt.Sprint("flood ", i), Tenant: "flood"})
		}
		q.join(Task{Name: "light 0", Tenant: "light"})
		q.join(Task{Name: "of nobody"})
		q.join(Task{Name: "high", Tenant: "flood", Priority: decision.High})
		want := []string{"high", "flood 0", "light 0", "of nobody", "flood 1", "flood 2", "flood 3"}
		if got := q.drain(p); !slices.Equal(got, want) {
			t.Errorf("Q25: %q, want %q", got, want)
		}
	})
}

// A tenant's weight is what its function says, without a lock, and it can change while the limiter works.
func TestWeightsOfTenants(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var l *Limiter
		cfg := Config{MaxQueue: 100, Initial: fixed(4), Tenants: Tenants{Weight: func(key string) int {
			l.Stats() // the limiter is not locked
			if key == "panics" {
				panic(key)
			}
			return map[string]int{"three": 3, "none": 0, "less": -1, "most": math.MaxInt}[key]
		}}}
		l = mustNew(t, cfg)
		running := func(key string) int {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.tenants.Find(key).InFlight
		}
		var all sync.WaitGroup
		defer all.Wait()
		stop := make(chan struct{})
		defer close(stop)
		for _, key := range []string{"one", "three", "none", "less", "most", "panics"} {
			p, err := l.Acquire(t.Context(), Task{Tenant: key})
			noError(t, err)
			p.Release()
		}
		if n := l.Stats().ObserverPanics; n != 1 || l.tenantOf("most").Weight != 1000 || l.tenantOf("less").Weight != 1 {
			t.Errorf("Q25: %d panics, weights %d and %d", n, l.tenantOf("most").Weight, l.tenantOf("less").Weight)
		}
		for _, key := range []string{"one", "three"} {
			for range 20 {
				all.Go(func() {
					p, err := l.Acquire(context.Background(), Task{Tenant: key, Priority: decision.Critical})
					if err == nil {
						select {
						case <-stop:
						case <-time.After(time.Duration(1+rand.IntN(10)) * time.Millisecond):
						}
						p.Release()
					}
				})
			}
		}
		synctest.Wait()
		time.Sleep(15 * time.Millisecond)
		if one, three := running("one"), running("three"); one != 1 || three != 3 {
			t.Errorf("Q25: of four slots, the one of weight 1 has %d and that of 3 has %d", one, three)
		}
		noError(t, l.SetTenants(Tenants{}))
		time.Sleep(15 * time.Millisecond)
		if one, three := running("one"), running("three"); one != 2 || three != 2 {
			t.Errorf("Q25: of four slots, with equal weights, they have %d and %d", one, three)
		}
	})
}

// Who is turned away learns what its tenant had and what its share is, and when to come back by that.
func TestTenantAboveItsShare(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := fixed(2)
		d.Expected = 100 * time.Millisecond
		l := mustNew(t, Config{MaxQueue: 4, Initial: d, Rand: noTrial})
		for _, tenant := range []string{"flood", "light"} {
			must(l.TryAcquire(Task{Tenant: tenant}))(t)
		}
		q := newLine(t, l)
		for i := range 4 {
			q.join(Task{Name: fmt.Sprint(i), Tenant: "flood"})
		}
		_, err := l.Acquire(t.Context(), Task{Tenant: "flood"})
		var r *decision.Rejection
		if !errors.As(err, &r) || r.Tenant != (decision.TenantShare{InFlight: 1, QueueLen: 4, Share: 1}) || !r.Tenant.Above() ||
			r.Reason != decision.QueueOverflow || r.RetryAfter != 500*time.Millisecond {
			t.Fatalf("Q28: %v, %+v, after %v", err, r.Tenant, r.RetryAfter)
		}
		if text := r.String(); !strings.Contains(text, `tenant "flood" is above its share of 1 slots: 1 in flight, 4 queued`) {
			t.Errorf("Q28: %s", text)
		}
		q.join(Task{Name: "of the light one", Tenant: "light"})
		if r := q.rejected["3"]; r == nil || r.Reason != decision.QueueOverflow || r.Tenant.QueueLen != 3 || !r.Tenant.Above() {
			t.Errorf("Q27, Q28: who makes room is told %v", r)
		}
		_, err = l.TryAcquire(Task{Tenant: "third"})
		if !errors.As(err, &r) || r.Tenant.Above() || r.Tenant.Share != 1 {
			t.Errorf("Q25: %v", err)
		}
		l.Close()
	})
}

// Keys without end, of any length, take a bounded place, and what is kept of a task does not keep a long one alive.
func TestTenantsWithoutEnd(t *testing.T) {
	l := mustNew(t, Config{Initial: fixed(1), Tenants: Tenants{Keys: 10}})
	long := strings.Repeat("x", 1<<20)
	p := must(l.TryAcquire(Task{Tenant: long}))(t)
	_, err := l.TryAcquire(Task{Tenant: long})
	var r *decision.Rejection
	if !errors.As(err, &r) || len(r.Task.Tenant) != 256 || r.Tenant.InFlight != 1 {
		t.Errorf("Q28: %v", err)
	}
	p.Release()
	for i := range 1000 {
		must(l.TryAcquire(Task{Tenant: fmt.Sprint(i)}))(t).Release()
	}
	if n := l.tenants.Len(); n != 10 || l.tenants.Evicted != 990 {
		t.Errorf("Q28: %d are kept, %d evicted", n, l.tenants.Evicted)
	}
	noError(t, l.SetTenants(Tenants{Keys: 3}))
	must(l.TryAcquire(Task{Tenant: "new"}))(t).Release()
	if n := l.tenants.Len(); n != 3 {
		t.Errorf("Q28: %d are kept of 3", n)
	}
	for field, err := range map[string]error{
		"limiter.Config.Tenants.Keys": func() error { _, err := New(Config{Tenants: Tenants{Keys: -1}}); return err }(),
		"limiter.Tenants.Keys":        l.SetTenants(Tenants{Keys: 1_000_001}),
		"limiter.Limiter":             (*Limiter)(nil).SetTenants(Tenants{}),
	} {
		var invalid *decision.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// Whatever becomes of tasks, in the end no tenant has anything: each slot and each wait was counted, and given back, once.
func TestPropertyTenantsAreCounted(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		mode := rapid.SampledFrom([]decision.Mode{decision.Enforce, decision.Enforce, decision.DryRun}).Draw(rt, "mode")
		synctest.Test(t, func(*testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			d := fixed(1 + r.IntN(4))
			d.ShedProbability, d.MaxWait, d.Burst, d.Parked = r.Float64()/2, 20*time.Millisecond, 5*time.Millisecond, r.IntN(3)
			l, err := New(Config{MaxQueue: r.IntN(9), Initial: d, Mode: mode, StarvationEvery: r.IntN(4), Tenants: Tenants{Keys: 1 + r.IntN(4)}})
			if err != nil {
				rt.Fatal(err)
			}
			var all sync.WaitGroup
			for range 60 {
				task := Task{Priority: []decision.Priority{0, 0, 64, 127}[r.IntN(4)], Tenant: []string{"", "a", "b", "c", "d", "e"}[r.IntN(6)]}
				after, took, patience, kind := r.IntN(60), r.IntN(10), 1+r.IntN(30), r.IntN(6)
				all.Go(func() {
					time.Sleep(time.Duration(after) * time.Millisecond)
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(patience)*time.Millisecond)
					defer cancel()
					if kind == 0 {
						task.Deadline = time.Now().Add(time.Duration(patience) * time.Millisecond)
						ctx = context.Background()
					}
					p, err := l.Acquire(ctx, task)
					if err != nil {
						return
					}
					time.Sleep(time.Duration(took) * time.Millisecond)
					if kind == 1 {
						p.Park()
						time.Sleep(time.Duration(took) * time.Millisecond)
					}
					p.Release()
				})
			}
			time.Sleep(30 * time.Millisecond)
			if r.IntN(2) == 0 {
				if err := l.SetTenants(Tenants{Keys: 1 + r.IntN(3), Weight: func(key string) int { return int(key[0]) - 'a' }}); err != nil {
					rt.Error(err)
				}
			}
			if r.IntN(4) == 0 {
				l.Close()
			}
			all.Wait()
			for of := range l.tenants.All {
				if of.InFlight != 0 || of.Waiting != 0 {
					rt.Errorf("Q25: in the end %q has %d in flight and %d waiting", of.Key, of.InFlight, of.Waiting)
				}
			}
			if s := l.Stats(); l.named != 0 || l.tenants.Active != 0 || l.tenants.Weights != 0 || s.Running != 0 || s.Queued != 0 {
				rt.Errorf("Q25: in the end %d run of tenants, %d tenants of weight %d are not idle; %+v", l.named, l.tenants.Active, l.tenants.Weights, s)
			}
		})
	})
}

// Tenants that always ask for more get slot time by their weights, as a fluid server would divide it, however long their calls are: they
// differ by no more than the longest call takes for each slot that one may have beyond the other's.
func TestPropertySlotTimeIsShared(t *testing.T) {
	worst := 0.0
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		synctest.Test(t, func(*testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			slots, tenants := 1+r.IntN(5), 2+r.IntN(4)
			weights, longest := make([]int, tenants), make([]time.Duration, tenants)
			for i := range tenants {
				weights[i] = []int{1, 1, 2, 5}[r.IntN(4)]
				longest[i] = []time.Duration{time.Millisecond, 10 * time.Millisecond, 200 * time.Millisecond}[r.IntN(3)]
			}
			l, err := New(Config{MaxQueue: 1000, Initial: fixed(slots), Tenants: Tenants{
				Weight: func(key string) int { return weights[key[0]-'a'] },
			}})
			if err != nil {
				rt.Fatal(err)
			}
			var mu sync.Mutex
			used := make([]time.Duration, tenants)
			began := time.Now()
			const long = 20 * time.Second
			var all sync.WaitGroup
			for i := range tenants {
				for range slots + 2 { // so many wait, always
					random := rand.New(rand.NewPCG(seed, r.Uint64()))
					all.Go(func() {
						for time.Since(began) < long {
							p, err := l.Acquire(context.Background(), Task{Tenant: string(rune('a' + i)), Patient: true})
							if err != nil {
								rt.Error(err)
								return
							}
							from := time.Since(began)
							time.Sleep(time.Duration(1 + random.Int64N(int64(longest[i]))))
							took := min(time.Since(began), long) - min(from, long)
							p.Release()
							mu.Lock()
							used[i] += took
							mu.Unlock()
						}
					})
				}
			}
			all.Wait()
			most := slices.Max(longest)
			total := time.Duration(0)
			for i := range tenants {
				total += used[i]
				for j := range i {
					a, b := used[i].Seconds()/float64(weights[i]), used[j].Seconds()/float64(weights[j])
					lag := math.Abs(a-b) / (most.Seconds() * float64(slots+1))
					worst = max(worst, lag)
					if lag > 1 {
						rt.Errorf("Q25: %d slots: %v of weight %d with calls of %v, %v of weight %d with calls of %v", slots,
							used[i], weights[i], longest[i], used[j], weights[j], longest[j])
					}
				}
			}
			if total < long*time.Duration(slots)-time.Duration(slots)*2*most {
				rt.Errorf("Q25: %v of slot time used of %v", total, long*time.Duration(slots))
			}
		})
	})
	t.Logf("they differed by %.2f of that", worst)
}
