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
	"time"

	"go.uber.org/goleak"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
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

// running is a dispatcher in its Run.
type running struct {
	*dispatch.Dispatcher
	cancel context.CancelCauseFunc // with the reason why the partition is lost, or nil
	result chan error
}

// run starts a dispatcher, dropping dead letters unless cfg says where they go.
func run(t testing.TB, p dispatch.Partition, cfg dispatch.Config) *running {
	t.Helper()
	if cfg.DeadLetter == nil {
		cfg.DeadLetter = dispatch.Discard
	}
	d, err := dispatch.New(p, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	r := &running{Dispatcher: d, cancel: cancel, result: make(chan error, 1)}
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

// calls remembers which offsets a handler was called with, and checks that a domain has one call at a time.
type calls struct {
	mu      sync.Mutex
	offsets map[string][]int64
	times   map[string][]time.Time
	tokens  map[string][]lease.Token
	inside  map[string]int
	now     int
	most    int
	wrong   []string
}

func newCalls() *calls {
	return &calls{offsets: map[string][]int64{}, times: map[string][]time.Time{}, tokens: map[string][]lease.Token{},
		inside: map[string]int{}}
}

// enter notes a call; what it returns ends it.
func (c *calls) enter(job dispatch.Job) (leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	domain := job.Record.Domain
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
	}
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
	lease.Ledger
	dispatch.Source
	mu   sync.Mutex
	dead bool
	// fault, when not nil, rules every call by its name: fail before it, or after it was carried out.
	fault func(call, domain string) (before, after error)
}

func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = true
}

func (p *process) rule(call, domain string) (before, after error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return errDead, nil
	}
	if p.fault == nil {
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

func (p *process) TryAcquire(ctx context.Context, domain string, offset int64) (lease.Acquisition, error) {
	return called(p, "TryAcquire", domain, func() (lease.Acquisition, error) { return p.Ledger.TryAcquire(ctx, domain, offset) })
}

func (p *process) Offer(ctx context.Context, domain string, offset int64) (lease.Status, error) {
	return called(p, "Offer", domain, func() (lease.Status, error) { return p.Ledger.Offer(ctx, domain, offset) })
}

func (p *process) AcquireNext(ctx context.Context, domain string) (lease.Acquisition, error) {
	return called(p, "AcquireNext", domain, func() (lease.Acquisition, error) { return p.Ledger.AcquireNext(ctx, domain) })
}

func (p *process) Succeed(ctx context.Context, domain string, token lease.Token) (lease.Completion, error) {
	return called(p, "Succeed", domain, func() (lease.Completion, error) { return p.Ledger.Succeed(ctx, domain, token) })
}

func (p *process) Fail(ctx context.Context, domain string, token lease.Token) (lease.Failure, error) {
	return called(p, "Fail", domain, func() (lease.Failure, error) { return p.Ledger.Fail(ctx, domain, token) })
}

func (p *process) GiveUp(ctx context.Context, domain string, token lease.Token) (lease.Failure, error) {
	return called(p, "GiveUp", domain, func() (lease.Failure, error) { return p.Ledger.GiveUp(ctx, domain, token) })
}

func (p *process) Reclaim(ctx context.Context, domain string, held lease.Token) (lease.Lease, error) {
	return called(p, "Reclaim", domain, func() (lease.Lease, error) { return p.Ledger.Reclaim(ctx, domain, held) })
}

func (p *process) Release(ctx context.Context, domain string, token lease.Token) error {
	_, err := called(p, "Release", domain, func() (struct{}, error) { return struct{}{}, p.Ledger.Release(ctx, domain, token) })
	return err
}

func (p *process) Inspect(ctx context.Context, domain string) (lease.View, error) {
	return called(p, "Inspect", domain, func() (lease.View, error) { return p.Ledger.Inspect(ctx, domain) })
}

func (p *process) Compact(ctx context.Context, floor int64) error {
	_, err := called(p, "Compact", "", func() (struct{}, error) { return struct{}{}, p.Ledger.Compact(ctx, floor) })
	return err
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
