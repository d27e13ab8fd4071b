// SPDX-License-Identifier: Apache-2.0

package dispatch_test

// This file puts random work through random faults, kills and lost ledgers, and holds what happened against a model that knows
// only what was promised: a list of what every handler and every dead letter was told, and when each record was done.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
)

// story is what one run of the machine is made from.
type story struct {
	domains   []string // of the records
	failures  []int    // attempts of the record that fail
	manner    []int    // how: error, panic, Goexit
	took      []int    // ms of an attempt
	lives     []life
	retries   int
	share     int
	buffered  int
	inFlight  int
	gate      int // places of a Concurrency that refuses; 0: none
	owners    int // 0: there are none
	perOwner  int
	rate      int // ms between attempts; 0: as fast as they like
	keyRate   int // of each key
	letterErr int // of ten dead letters, how many are refused
	seed      uint64
}

type life struct {
	lasts      int // ms, after which it is killed, or drained
	drain      bool
	ledgerLost bool // before the life begins
	appends    int  // records that arrive while it lasts
	faults     int  // in a thousand calls, before the call, and as many replies lost
}

func drawStory(t *rapid.T) story {
	n := rapid.IntRange(1, 80).Draw(t, "records")
	keys := rapid.IntRange(1, 12).Draw(t, "keys")
	s := story{
		retries:   rapid.IntRange(0, 4).Draw(t, "retries"),
		share:     rapid.IntRange(1, 6).Draw(t, "share"),
		inFlight:  rapid.IntRange(1, 6).Draw(t, "in flight"),
		gate:      rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(t, "gate"),
		letterErr: rapid.SampledFrom([]int{0, 5}).Draw(t, "refused letters"),
		seed:      rapid.Uint64().Draw(t, "seed"),
	}
	s.buffered = s.share + rapid.IntRange(0, 20).Draw(t, "buffered")
	s.rate = rapid.SampledFrom([]int{0, 0, 1, 20}).Draw(t, "rate")
	s.keyRate = rapid.SampledFrom([]int{0, 0, 10, 100}).Draw(t, "rate of a key")
	if s.owners = rapid.IntRange(0, 4).Draw(t, "owners"); s.owners > 0 {
		s.perOwner = rapid.IntRange(1, s.buffered).Draw(t, "per owner")
	}
	for range n {
		s.domains = append(s.domains, fmt.Sprint("k", rapid.IntRange(0, keys-1).Draw(t, "key")))
		s.failures = append(s.failures, rapid.SampledFrom([]int{0, 0, 0, 0, 0, 1, 2, 1000}).Draw(t, "failures"))
		s.manner = append(s.manner, rapid.IntRange(0, 2).Draw(t, "manner"))
		s.took = append(s.took, rapid.IntRange(0, 30).Draw(t, "took"))
	}
	for range rapid.IntRange(0, 4).Draw(t, "lives") {
		s.lives = append(s.lives, life{
			lasts:      rapid.IntRange(1, 400).Draw(t, "lasts"),
			drain:      rapid.Bool().Draw(t, "drain"),
			ledgerLost: rapid.IntRange(0, 5).Draw(t, "ledger lost") == 0,
			appends:    rapid.IntRange(0, n).Draw(t, "appends"),
			faults:     rapid.SampledFrom([]int{0, 0, 20, 100}).Draw(t, "faults"),
		})
	}
	s.lives = append(s.lives, life{lasts: 3 * 60 * 1000, drain: true, appends: n}) // the last one has all the time it needs
	return s
}

// world is what outlives the processes, and the model's account of it.
type world struct {
	story
	log *dispatch.Log

	mu       sync.Mutex
	wrong    []string
	done     map[int64]bool // a handler succeeded, or a dead letter was accepted
	recorded map[int64]bool // the ledger said so, and has not been lost since
	running  map[string]int64
	inHand   int                    // of the process that lives
	faulty   bool                   // a life had faults, so that a death may look like a wait and a wait like a death
	open     map[int64]bool         // begun, and the ledger has not been told how it ended
	suspects map[int64]bool         // open when their process died, and not ended since
	alone    map[int64]bool         // begun as suspects: their attempt is counted
	counted  map[int64]int          // what the ledger should have counted
	begun    map[int64]int          // runs since the ledger was lost
	draining bool                   // nothing may begin
	floor    int64                  // that the source has accepted
	ended    int                    // lives
	tokens   map[string]lease.Token // the last one of each domain
	leases   map[lease.Token]int64  // the offset of each
	letters  map[int64]int
}

func (w *world) found(format string, args ...any) {
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

// called is the model's view of a handler that is called.
func (w *world) called(job dispatch.Job) {
	r := job.Record
	if want := w.domains[r.Offset]; r.Domain != want || string(r.Payload) != fmt.Sprint(r.Offset) {
		w.found("D1: record %d of %s is %q of %s", r.Offset, want, r.Payload, r.Domain)
	}
	if other, busy := w.running[r.Domain]; busy {
		w.found("D1: %s: %d begins while %d runs", r.Domain, r.Offset, other)
	}
	if w.draining {
		w.found("D4: %d begins in the drain", r.Offset)
	}
	w.running[r.Domain] = r.Offset
	for before := range r.Offset {
		if w.domains[before] == r.Domain && !w.done[before] {
			w.found("D1: %s: %d begins before %d is done", r.Domain, r.Offset, before)
		}
	}
	if w.recorded[r.Offset] {
		w.found("D4: %d is handled again though the ledger knows that it is done", r.Offset)
	}
	if w.inHand++; w.inHand > w.inFlight {
		w.found("D3: %d in flight", w.inHand)
	}
	if last := w.tokens[r.Domain]; job.Lease.Token < last || job.Lease.Token == last && w.leases[last] != r.Offset {
		w.found("D6: %s: token %d for %d after %d for %d", r.Domain, job.Lease.Token, r.Offset, last, w.leases[last])
	}
	w.tokens[r.Domain], w.leases[job.Lease.Token] = job.Lease.Token, r.Offset
	if job.Lease.RetryCount > w.retries {
		w.found("D6: %d: retry %d", r.Offset, job.Lease.RetryCount)
	}
	if job.Lease.RetryCount > w.begun[r.Offset]+w.ended { // a reply that was lost when its process ended may cost an attempt
		w.found("D6: %d: retry %d after %d runs in %d lives", r.Offset, job.Lease.RetryCount, w.begun[r.Offset], w.ended)
	}
	w.begun[r.Offset]++
	w.open[r.Offset] = true
	if w.alone[r.Offset] = w.suspects[r.Offset]; w.alone[r.Offset] {
		w.counted[r.Offset]++
		for _, other := range w.running {
			if other != r.Offset && w.suspects[other] {
				w.found("D6: suspects %d and %d at once", r.Offset, other)
			}
		}
	}
	if count := w.counted[r.Offset]; !w.faulty && count != job.Lease.RetryCount {
		w.found("D6: %d: retry %d, but %d were counted", r.Offset, job.Lease.RetryCount, count)
	}
}

// pool is a Concurrency that refuses.
type pool chan struct{}

func (p pool) do(_ context.Context, run func() error) error {
	select {
	case p <- struct{}{}:
		defer func() { <-p }()
		return run()
	default:
		return errors.New("full")
	}
}

// accepting is the log, which compares the floor with what is done, and compacted the ledger, which compares its own with that.
type accepting struct {
	*dispatch.Log
	w *world
}

func (a *accepting) Commit(ctx context.Context, floor int64) error {
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	for offset := range floor {
		if !a.w.done[offset] {
			a.w.found("D2: committed %d, but %d is not done", floor, offset)
		}
	}
	a.w.floor = max(a.w.floor, floor)
	return a.Log.Commit(ctx, floor)
}

type compacted struct {
	lease.Ledger
	w *world
}

func (c *compacted) Compact(ctx context.Context, floor int64) error {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if floor > c.w.floor {
		c.w.found("D2: compacted to %d, and %d is committed", floor, c.w.floor)
	}
	return c.Ledger.Compact(ctx, floor)
}

// live runs one process until it ends, and returns how.
func (w *world) live(number int, l life, ledger lease.Ledger) (*dispatch.Dispatcher, error) {
	var drawing sync.Mutex
	source := rand.New(rand.NewPCG(w.seed, uint64(number)))
	draw := func(n int) int {
		drawing.Lock()
		defer drawing.Unlock()
		return source.IntN(n)
	}
	p := newProcess(&compacted{ledger, w}, &accepting{w.log, w})
	p.fault = func(string, string) (before, after error) {
		switch n := draw(1000); {
		case n < l.faults:
			return errLost, nil
		case n < 2*l.faults:
			return nil, errLost
		}
		return nil, nil
	}
	dead := false // guarded by w.mu
	var d *dispatch.Dispatcher
	observer := &events{also: func(e dispatch.Event) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if dead {
			return
		}
		switch e.Kind {
		case dispatch.Succeeded:
			w.recorded[e.Offset] = true
			delete(w.open, e.Offset)
		case dispatch.Retrying:
			delete(w.open, e.Offset)
			if !w.alone[e.Offset] {
				w.counted[e.Offset]++
			}
		case dispatch.GaveUp:
			delete(w.open, e.Offset)
			if !w.faulty && w.begun[e.Offset] <= w.retries {
				w.found("D6: %d was given up after %d runs", e.Offset, w.begun[e.Offset])
			}
		case dispatch.DeadLettered:
			w.recorded[e.Offset] = true
		case dispatch.Fenced, dispatch.Foreign:
			w.found("D6: %v", e)
		case dispatch.Stalled:
			if e.Reason == "" || e.Reason == "unknown" {
				w.found("D12: %v", e)
			}
		}
		if s := d.Stats(); s.Buffered > w.buffered || s.Working > w.inFlight {
			w.found("D3: %d buffered, %d working", s.Buffered, s.Working)
		}
	}}
	cfg := dispatch.Config{
		Observer: observer, MaxInFlight: w.inFlight, MaxBuffered: w.buffered, MaxPerDomain: w.share,
		Backoff: 10 * time.Millisecond, MaxBackoff: 80 * time.Millisecond, DrainTimeout: time.Minute,
		CommitEvery: 20 * time.Millisecond, AttemptTimeout: time.Second,
		Handler: func(_ context.Context, job dispatch.Job) error {
			w.mu.Lock()
			if dead {
				w.mu.Unlock()
				return errDead
			}
			w.called(job)
			offset := job.Record.Offset
			w.mu.Unlock()
			time.Sleep(time.Duration(w.took[offset]) * time.Millisecond)
			w.mu.Lock()
			defer w.mu.Unlock()
			if dead {
				return errDead
			}
			delete(w.running, job.Record.Domain)
			delete(w.suspects, offset)
			w.inHand--
			if job.Lease.RetryCount < w.failures[offset] {
				switch w.manner[offset] {
				case 1:
					panic("on purpose")
				case 2:
					runtime.Goexit()
				}
				return errors.New("on purpose")
			}
			w.done[offset] = true
			return nil
		},
		DeadLetter: func(_ context.Context, letter dispatch.DeadLetter) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			if dead {
				return errDead
			}
			if string(letter.Record.Payload) != fmt.Sprint(letter.Record.Offset) {
				w.found("D2: dead letter of %d says %q", letter.Record.Offset, letter.Record.Payload)
			}
			switch n := draw(30); {
			case n < w.letterErr:
				return errors.New("no letters today")
			case n < 2*w.letterErr:
				panic("no letters today")
			case n < 3*w.letterErr:
				runtime.Goexit()
			}
			w.letters[letter.Record.Offset]++
			w.done[letter.Record.Offset] = true
			return nil
		},
	}
	if w.rate > 0 {
		cfg.Rate = &bucket{period: time.Duration(w.rate) * time.Millisecond, burst: 2}
	}
	if w.keyRate > 0 {
		rates := map[string]*bucket{} // of all domains that there are
		for _, domain := range w.domains {
			rates[domain] = &bucket{period: time.Duration(w.keyRate) * time.Millisecond, burst: 1}
		}
		cfg.RateOf = func(domain string) dispatch.Rate { return rates[domain] }
	}
	if w.owners > 0 {
		cfg.MaxPerOwner = w.perOwner
		cfg.Owner = func(domain string) string { return fmt.Sprint("o", int(domain[len(domain)-1])%w.owners) }
	}
	if w.gate > 0 {
		cfg.Concurrency = make(pool, w.gate).do
	}
	d, err := dispatch.New(dispatch.Partition{Ledger: p, Source: p}, cfg)
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	for have, _ := w.log.End(ctx); l.appends > 0 && int(have) < len(w.domains); have, _ = w.log.End(ctx) {
		w.log.Append(w.domains[have], fmt.Append(nil, have))
		l.appends--
		time.Sleep(time.Duration(draw(5)) * time.Millisecond)
	}
	// It ends at no moment when a handler begins or ends: those are whole milliseconds after the beginning of this life, or of
	// an earlier one.
	time.Sleep(time.Duration(l.lasts)*time.Millisecond + time.Millisecond/2 + time.Duration(number+1)*13_777)
	if l.drain && l.faults > 0 {
		p.mu.Lock()
		p.fault = nil // so that the drain can succeed
		p.mu.Unlock()
	}
	if !l.drain {
		p.kill()
		w.mu.Lock()
		dead = true
		clear(w.running)
		w.inHand = 0
		for offset := range w.open {
			w.suspects[offset] = true
		}
		clear(w.open)
		w.mu.Unlock()
	}
	w.mu.Lock()
	w.draining = true
	w.mu.Unlock()
	cancel()
	err = <-ended
	synctest.Wait()
	return d, err
}

func (w *world) tell(t testing.TB) {
	ledger := memory(t, w.retries)
	for i, l := range w.lives {
		if l.ledgerLost {
			ledger = memory(t, w.retries)
			clear(w.recorded)
			for _, is := range []map[int64]bool{w.open, w.suspects, w.alone} {
				clear(is)
			}
			clear(w.counted)
			clear(w.begun)
			clear(w.tokens)
			clear(w.leases)
		}
		w.faulty, w.ended, w.draining = w.faulty || l.faults > 0, i, false
		d, err := w.live(i, l, ledger)
		if l.drain && err != nil {
			w.found("D4: life %d: drain: %v", i, err)
		}
		if i < len(w.lives)-1 {
			continue
		}
		s := d.Stats()
		if n := int64(len(w.domains)); s.Floor != n || s.Committed != n || s.Buffered != 0 || d.Behind() != 0 || s.Waiting != 0 {
			w.found("D4: at the end: %+v", s)
		}
		for offset := range w.domains {
			if !w.done[int64(offset)] {
				w.found("D4: %d was lost", offset)
			}
		}
		for lease := range ledger.Held(context.Background()) {
			w.found("D4: still held: %+v", lease)
		}
		for head := range ledger.Ready(context.Background()) {
			w.found("D4: still waiting: %+v", head)
		}
	}
}

func TestPropertyMachine(t *testing.T) {
	lives, records := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{
			story: drawStory(rt), log: new(dispatch.Log), done: map[int64]bool{}, recorded: map[int64]bool{},
			running: map[string]int64{},
			open:    map[int64]bool{}, suspects: map[int64]bool{}, alone: map[int64]bool{}, counted: map[int64]int{},
			begun: map[int64]int{}, tokens: map[string]lease.Token{}, leases: map[lease.Token]int64{}, letters: map[int64]int{},
		}
		synctest.Test(t, func(t *testing.T) { w.tell(t) })
		if len(w.wrong) > 0 {
			slices.Sort(w.wrong)
			rt.Fatal(strings.Join(w.wrong[:min(len(w.wrong), 20)], "\n"))
		}
		lives += len(w.lives)
		records += len(w.domains)
	})
	t.Logf("%d lives, %d records", lives, records)
}
