// SPDX-License-Identifier: Apache-2.0

package dispatch_test

// This file is what the tests share: a watched run of a dispatcher, and the ledger and the source of a process that can die.

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/internal/model"
)

// TestMain takes the jitter off: a test that is about it sets the random numbers itself.
func TestMain(m *testing.M) {
	dispatch.SetRandom(func() float64 { return 0 })
	goleak.VerifyTestMain(m)
}

// events is an Observer that remembers.
type events struct {
	mu   sync.Mutex
	all  []dispatch.Event
	also func(dispatch.Event)
}

func (e *events) Observe(event dispatch.Event) {
	e.mu.Lock()
	e.all = append(e.all, event)
	also := e.also
	e.mu.Unlock()
	if also != nil {
		also(event)
	}
}

// of returns the events of a kind.
func (e *events) of(kind dispatch.Kind) []dispatch.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	var found []dispatch.Event
	for _, event := range e.all {
		if event.Kind == kind {
			found = append(found, event)
		}
	}
	return found
}

// running is a dispatcher in its Run, and what it has called.
type running struct {
	*dispatch.Dispatcher
	*calls
	seen   *events
	cancel context.CancelCauseFunc // with the reason why the partition is lost, or nil
	result chan error
}

// run starts a dispatcher whose calls and events are remembered. Where cfg does not say otherwise its handler succeeds, and its dead
// letters are kept.
func run(t testing.TB, p dispatch.Partition, cfg dispatch.Config) *running {
	t.Helper()
	return noted().again(t, p, cfg)
}

// noted is no run yet: those that again starts are remembered together.
func noted() *running { return &running{calls: newCalls(), seen: &events{}} }

// again is another run that is remembered with r.
func (r *running) again(t testing.TB, p dispatch.Partition, cfg dispatch.Config) *running {
	t.Helper()
	r = &running{calls: r.calls, seen: r.seen, result: make(chan error, 1)}
	if cfg.Observer == nil {
		cfg.Observer = r.seen
	}
	r.note(&cfg)
	d, err := dispatch.New(p, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	r.Dispatcher, r.cancel = d, cancel
	go func() { r.result <- d.Run(ctx) }()
	return r
}

// stop drains, and returns how that went.
func (r *running) stop() error {
	r.cancel(nil)
	return <-r.result
}

// mustStop drains, which must leave nothing.
func (r *running) mustStop(t testing.TB) {
	t.Helper()
	if err := r.stop(); err != nil {
		t.Errorf("drain: %v", err)
	}
	r.check(t)
}

// taking is a handler that takes so long, and succeeds.
func taking(d time.Duration) dispatch.Handler {
	return func(context.Context, dispatch.Job) error { time.Sleep(d); return nil }
}

// bubble is a subtest in virtual time.
func bubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// memory is a ledger with so many retries.
func memory(t testing.TB, retries int) lease.Ledger {
	t.Helper()
	l, err := lease.NewMemory(lease.Config{MaxRetries: retries})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// fill appends records, one for each domain named.
func fill(domains ...string) *dispatch.Log {
	log := new(dispatch.Log)
	for _, domain := range domains {
		log.Append(domain, nil)
	}
	return log
}

// spread has n records of k0, k1 and so on in turn.
func spread(n, keys int) *dispatch.Log {
	log := new(dispatch.Log)
	for i := range n {
		log.Append(fmt.Sprint("k", i%keys), nil)
	}
	return log
}

// died leaves the ledger as one does who died at work on the first records, which are of these domains.
func died(t testing.TB, ledger lease.Ledger, domains ...string) {
	t.Helper()
	for offset, domain := range domains {
		if a, err := ledger.TryAcquire(context.Background(), domain, int64(offset)); err != nil || a.Status != lease.Acquired {
			t.Fatal(a, err)
		}
	}
}

// calls remembers what a handler was called with, and checks that a domain has one call at a time; and the dead letters.
type calls struct {
	mu      sync.Mutex
	gone    []dispatch.DeadLetter
	order   []string // the domains of all calls
	offsets map[string][]int64
	times   map[string][]time.Time
	tokens  map[string][]lease.Token
	inside  map[string]int
	now     int
	most    int
	last    time.Time // when one ended
	wrong   []string
}

func newCalls() *calls {
	return &calls{offsets: map[string][]int64{}, times: map[string][]time.Time{}, tokens: map[string][]lease.Token{},
		inside: map[string]int{}}
}

// note has the calls of cfg's handler remembered, and its dead letters if nobody else takes them.
func (c *calls) note(cfg *dispatch.Config) {
	handler := cfg.Handler
	cfg.Handler = func(ctx context.Context, job dispatch.Job) error {
		leave := c.enter(job)
		defer leave()
		if handler == nil {
			return nil
		}
		return handler(ctx, job)
	}
	if cfg.DeadLetter == nil {
		cfg.DeadLetter = func(_ context.Context, letter dispatch.DeadLetter) error {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.gone = append(c.gone, letter)
			return nil
		}
	}
}

// letters are the dead letters so far.
func (c *calls) letters() []dispatch.DeadLetter {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.gone)
}

// enter notes a call; what it returns ends it.
func (c *calls) enter(job dispatch.Job) (leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	domain := job.Record.Domain
	c.order = append(c.order, domain)
	c.offsets[domain] = append(c.offsets[domain], job.Record.Offset)
	c.times[domain] = append(c.times[domain], time.Now())
	c.tokens[domain] = append(c.tokens[domain], job.Lease.Token)
	if job.Lease.Offset != job.Record.Offset || job.Lease.Domain != domain {
		c.wrong = append(c.wrong, fmt.Sprintf("record %d of %s under the lease %+v", job.Record.Offset, domain, job.Lease))
	}
	if c.inside[domain]++; c.inside[domain] > 1 {
		c.wrong = append(c.wrong, fmt.Sprintf("%s: %d calls at once", domain, c.inside[domain]))
	}
	c.now++
	c.most = max(c.most, c.now)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.inside[domain]--
		c.now--
		c.last = time.Now()
	}
}

// by is how many calls there were for domains of that owner, and how many of them go on.
func (c *calls) by(owner string) (began, running int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for domain, offsets := range c.offsets {
		if ownerOf(domain) == owner {
			began += len(offsets)
			running += c.inside[domain]
		}
	}
	return began, running
}

// total is how many calls there were.
func (c *calls) total() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.order)
}

// running is how many calls there are now.
func (c *calls) running() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *calls) of(domain string) []int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.offsets[domain])
}

// at returns when the calls of a domain were made, and with which tokens.
func (c *calls) at(domain string) ([]time.Time, []lease.Token) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.times[domain]), slices.Clone(c.tokens[domain])
}

func (c *calls) check(t testing.TB) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.wrong {
		t.Error(w)
	}
}

// inTurn demands that all records of spread(n, keys) were handled once, in their order.
func (c *calls) inTurn(t testing.TB, n, keys int) {
	t.Helper()
	for k := range keys {
		var want []int64
		for offset := k; offset < n; offset += keys {
			want = append(want, int64(offset))
		}
		domain := fmt.Sprint("k", k)
		same(t, "D1: "+domain, c.of(domain), want...)
	}
}

func same[T comparable](t testing.TB, what string, got []T, want ...T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

var (
	errDead = errors.New("the process is dead")
	errLost = errors.New("no reply")
)

// process is the ledger and the source as one process sees them: calls fail when it is dead, or when fault says so.
type process struct {
	model.Through
	dispatch.Source
	mu    sync.Mutex
	dead  bool
	down  error    // of the calls in downs
	downs []string // their names
	// fault, when not nil, rules every call by its name: fail before it, or after it was carried out.
	fault func(call, domain string) (before, after error)
}

func newProcess(ledger lease.Ledger, source dispatch.Source) *process {
	p := &process{Source: source}
	p.Through = model.Through{Ledger: ledger, Make: func(ctx context.Context, c model.Call) model.Reply {
		r, err := called(p, c.Name(), c.Domain, func() (model.Reply, error) {
			r := c.Do(ctx, p.Ledger)
			return r, r.Err
		})
		r.Err = err
		return r
	}}
	return p
}

func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = true
}

// fails makes these calls fail from now on, before they are carried out, and all others succeed.
func (p *process) fails(err error, calls ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down, p.downs, p.fault = err, calls, nil
}

func (p *process) rule(call, domain string) (before, after error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.dead:
		return errDead, nil
	case slices.Contains(p.downs, call):
		return p.down, nil
	case p.fault == nil:
		return nil, nil
	}
	return p.fault(call, domain)
}

func called[T any](p *process, call, domain string, f func() (T, error)) (T, error) {
	var none T
	before, after := p.rule(call, domain)
	if before != nil {
		return none, before
	}
	got, err := f()
	if after != nil {
		return none, after
	}
	return got, err
}

func (p *process) Ready(ctx context.Context) iter.Seq2[lease.Head, error] {
	before, _ := p.rule("Ready", "")
	if before != nil {
		return func(yield func(lease.Head, error) bool) { yield(lease.Head{}, before) }
	}
	return p.Ledger.Ready(ctx)
}

func (p *process) Held(ctx context.Context) iter.Seq2[lease.Lease, error] {
	before, _ := p.rule("Held", "")
	if before != nil {
		return func(yield func(lease.Lease, error) bool) { yield(lease.Lease{}, before) }
	}
	return p.Ledger.Held(ctx)
}

func (p *process) Committed(ctx context.Context) (int64, error) {
	return called(p, "Committed", "", func() (int64, error) { return p.Source.Committed(ctx) })
}

func (p *process) Fetch(ctx context.Context, from int64, limit int) ([]dispatch.Record, error) {
	return called(p, "Fetch", "", func() ([]dispatch.Record, error) { return p.Source.Fetch(ctx, from, limit) })
}

func (p *process) Commit(ctx context.Context, floor int64) error {
	_, err := called(p, "Commit", "", func() (struct{}, error) { return struct{}{}, p.Source.Commit(ctx, floor) })
	return err
}

// is reports whether err is, or wraps, an E.
func is[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}
