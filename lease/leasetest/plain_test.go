package leasetest

// This file is a ledger as plain as can be, one map under one mutex, with a switch that breaks it in a chosen way.

import (
	"context"
	"math"
	"runtime"
	"slices"
	"sync"

	"github.com/stopbank/stopbank/lease"
)

type plain struct {
	cfg     lease.Config
	fault   string
	mu      sync.Mutex
	domains map[string]*entry
	floor   int64
	last    lease.Token
}

type entry struct {
	held    *lease.Lease
	backlog []int64
	done    map[int64]lease.Outcome
	ended   lease.LeaseNotFoundError
	last    lease.Token
	missed  bool // by a Compact that does not reach far
}

func newPlain(cfg lease.Config, fault string) *plain {
	return &plain{cfg: cfg, fault: fault, domains: map[string]*entry{}, floor: math.MinInt64}
}

// enter checks what every call checks, and takes the lock.
func (p *plain) enter(ctx context.Context, domain string) (*entry, error) {
	if err := ctx.Err(); err != nil && p.fault != "a done context is not looked at" {
		return nil, err
	}
	if domain == "" {
		return nil, &lease.InvalidError{Field: "domain", Value: "", Allowed: "not empty"}
	}
	key := p.key(domain)
	p.mu.Lock()
	r := p.domains[key]
	if r == nil {
		r = &entry{done: map[int64]lease.Outcome{}}
		p.domains[key] = r
	}
	return r, nil
}

func (p *plain) token(r *entry) lease.Token {
	p.last++
	if p.fault == "tokens are unique in a domain only" {
		r.last++
		return r.last
	}
	return p.last
}

// terminal tells what is known of an offset that is neither leased nor waiting.
func (p *plain) terminal(r *entry, offset int64) (status lease.AcquireStatus, below bool) {
	live := slices.Contains(r.backlog, offset) || r.held != nil && r.held.Offset == offset
	if live && p.fault != "the backlog holds duplicates" {
		return 0, false
	}
	switch {
	case live:
	case offset < p.floorOf(r) && p.fault != "Compact forgets what is done":
		return lease.AlreadyProcessed, true
	case r.done[offset] == lease.OutcomeProcessed:
		return lease.AlreadyProcessed, false
	case r.done[offset] == lease.OutcomeFailed && p.fault != "a given-up offset is not terminal":
		return lease.AlreadyFailed, false
	}
	return 0, false
}

func (p *plain) enqueue(r *entry, domain string, offset int64) error {
	isFull := p.cfg.MaxBacklog > 0 && len(r.backlog) >= p.cfg.MaxBacklog
	if isFull && p.fault == "full comes before known" {
		return &lease.BacklogFullError{Domain: domain, Offset: offset, MaxBacklog: p.cfg.MaxBacklog}
	}
	if slices.Contains(r.backlog, offset) && p.fault != "the backlog holds duplicates" {
		return nil
	}
	if isFull {
		if p.fault == "a full backlog drops its head" {
			r.backlog = r.backlog[1:]
		}
		return &lease.BacklogFullError{Domain: domain, Offset: offset, MaxBacklog: p.cfg.MaxBacklog}
	}
	switch {
	case p.fault == "the backlog is last in first out":
		r.backlog = slices.Insert(r.backlog, 0, offset)
	case p.fault == "the backlog drops what comes after 256" && len(r.backlog) == 256:
	default:
		r.backlog = append(r.backlog, offset)
	}
	return nil
}

func (p *plain) grant(r *entry, domain string, offset int64) lease.Acquisition {
	if i := slices.Index(r.backlog, offset); i >= 0 {
		r.backlog = slices.Delete(r.backlog, i, i+1)
	}
	r.held = &lease.Lease{Domain: domain, Offset: offset, Token: p.token(r), AcquiredAt: p.now()}
	r.ended = lease.LeaseNotFoundError{}
	return lease.Acquisition{Status: lease.Acquired, Lease: *r.held}
}

func (p *plain) TryAcquire(ctx context.Context, domain string, offset int64) (lease.Acquisition, error) {
	r, err := p.enter(ctx, domain)
	if err != nil {
		return lease.Acquisition{}, err
	}
	defer p.mu.Unlock()
	offset = p.offset(offset)
	if status, below := p.terminal(r, offset); status != 0 {
		return lease.Acquisition{Status: status, BelowFloor: below}, nil
	}
	busy := r.held != nil
	if p.fault == "two owners, by a race" {
		p.mu.Unlock()
		runtime.Gosched()
		p.mu.Lock()
	}
	if busy && p.fault != "two owners" {
		if r.held != nil && r.held.Offset == offset {
			return lease.Acquisition{Status: lease.AlreadyAcquired, Lease: *r.held}, nil
		}
		if err := p.enqueue(r, domain, offset); err != nil {
			return lease.Acquisition{}, err
		}
		return lease.Acquisition{Status: lease.Enqueued}, nil
	}
	if len(r.backlog) > 0 && r.backlog[0] != offset && p.fault != "an acquire overtakes the backlog" {
		return lease.Acquisition{}, &lease.BacklogOrderingError{Domain: domain, Expected: r.backlog[0], Got: offset}
	}
	return p.grant(r, domain, offset), nil
}

func (p *plain) Offer(ctx context.Context, domain string, offset int64) (lease.AcquireStatus, error) {
	r, err := p.enter(ctx, domain)
	if err != nil {
		return 0, err
	}
	defer p.mu.Unlock()
	offset = p.offset(offset)
	if status, _ := p.terminal(r, offset); status != 0 {
		return status, nil
	}
	if r.held != nil && r.held.Offset == offset {
		return lease.AlreadyAcquired, nil
	}
	if p.fault == "a lost update" {
		before := slices.Clone(r.backlog)
		p.mu.Unlock()
		runtime.Gosched()
		p.mu.Lock()
		if r.held == nil || r.held.Offset != offset {
			r.backlog = before
		}
	}
	if err := p.enqueue(r, domain, offset); err != nil {
		return 0, err
	}
	if p.fault == "Offer grants nothing but says it did" && r.held == nil {
		return lease.Acquired, nil
	}
	return lease.Enqueued, nil
}

func (p *plain) AcquireNext(ctx context.Context, domain string) (lease.Acquisition, error) {
	r, err := p.enter(ctx, domain)
	if err != nil {
		return lease.Acquisition{}, err
	}
	defer p.mu.Unlock()
	switch {
	case r.held != nil && p.fault == "Busy hands out the token":
		return lease.Acquisition{Status: lease.Busy, Lease: *r.held}, nil
	case r.held != nil:
		return lease.Acquisition{Status: lease.Busy}, nil
	case len(r.backlog) == 0:
		return lease.Acquisition{Status: lease.NothingToDo}, nil
	}
	return p.grant(r, domain, r.backlog[0]), nil
}

func (p *plain) fence(r *entry, domain string, token lease.Token) error {
	switch {
	case r.held != nil && (r.held.Token == token || p.fault == "any token succeeds"):
		return nil
	case r.held != nil:
		return &lease.TokenMismatchError{Domain: domain, Offset: r.held.Offset, Got: token}
	case r.ended.Outcome != lease.OutcomeUnknown && r.ended.Got == token && p.fault != "the outcome is not recorded":
		known := r.ended
		return &known
	}
	return &lease.LeaseNotFoundError{Domain: domain, Got: token}
}

// owner is the fence of who finishes.
func (p *plain) owner(r *entry, domain string, token lease.Token) error {
	if err := p.fence(r, domain, token); err != nil {
		return err
	}
	if r.held.Released && p.fault != "what was released can be finished" {
		return &lease.TokenMismatchError{Domain: domain, Offset: r.held.Offset, Got: token}
	}
	return nil
}

func (p *plain) end(r *entry, how lease.Outcome) (next int64, waits bool) {
	r.done[r.held.Offset] = how
	r.ended = lease.LeaseNotFoundError{Domain: r.held.Domain, Got: r.held.Token, Outcome: how, Offset: r.held.Offset}
	r.held = nil
	if len(r.backlog) == 0 {
		return 0, false
	}
	return r.backlog[0], true
}

func (p *plain) Succeed(ctx context.Context, domain string, token lease.Token) (lease.Completion, error) {
	r, err := p.enter(ctx, domain)
	if err != nil {
		return lease.Completion{}, err
	}
	defer p.mu.Unlock()
	if err := p.owner(r, domain, token); err != nil {
		return lease.Completion{}, err
	}
	next, waits := p.end(r, lease.OutcomeProcessed)
	if !waits {
		return lease.Completion{Status: lease.NoBacklog}, nil
	}
	if p.fault == "Succeed hands off" {
		p.grant(r, domain, next)
	}
	return lease.Completion{Status: lease.NextHint, Next: next}, nil
}

func (p *plain) Fail(ctx context.Context, domain string, token lease.Token) (lease.Failure, error) {
	limit := p.cfg.MaxRetries
	switch p.fault {
	case "one attempt too many":
		limit++
	case "no more than five retries":
		limit = min(limit, 5)
	}
	return p.fail(ctx, domain, token, limit)
}

func (p *plain) GiveUp(ctx context.Context, domain string, token lease.Token) (lease.Failure, error) {
	limit := 0
	if p.fault == "GiveUp gives one more chance" {
		limit = 1
	}
	return p.fail(ctx, domain, token, limit)
}

func (p *plain) fail(ctx context.Context, domain string, token lease.Token, limit int) (lease.Failure, error) {
	r, err := p.enter(ctx, domain)
	if err != nil {
		return lease.Failure{}, err
	}
	defer p.mu.Unlock()
	if err := p.owner(r, domain, token); err != nil {
		return lease.Failure{}, err
	}
	if r.held.RetryCount < limit {
		r.held.RetryCount++
		if p.fault == "a retry renews the lease" {
			r.held.AcquiredAt = r.held.AcquiredAt.Add(1)
		}
		return lease.Failure{Status: lease.RetryScheduled, RetryCount: r.held.RetryCount}, nil
	}
	retries := r.held.RetryCount
	next, waits := p.end(r, lease.OutcomeFailed)
	if !waits {
		return lease.Failure{Status: lease.GiveUpNoBacklog, RetryCount: retries}, nil
	}
	return lease.Failure{Status: lease.GiveUpNextHint, RetryCount: retries, Next: next}, nil
}

func (p *plain) Reclaim(ctx context.Context, domain string, held lease.Token) (lease.Lease, error) {
	r, err := p.enter(ctx, domain)
	if err != nil {
		return lease.Lease{}, err
	}
	defer p.mu.Unlock()
	if err := p.fence(r, domain, held); err != nil {
		return lease.Lease{}, err
	}
	if p.fault != "Reclaim keeps the token" {
		r.held.Token = p.token(r)
	}
	wasReleased := r.held.Released
	r.held.Released = false
	switch p.fault {
	case "Reclaim of what was released counts a retry":
		if wasReleased {
			r.held.RetryCount++
		}
	case "Reclaim gives no owner":
		r.held.Released = wasReleased
	case "Reclaim forgets the retries":
		r.held.RetryCount = 0
	case "Reclaim renews the lease":
		r.held.AcquiredAt = r.held.AcquiredAt.Add(1)
	}
	return *r.held, nil
}

func (p *plain) Release(ctx context.Context, domain string, token lease.Token) error {
	r, err := p.enter(ctx, domain)
	if err != nil {
		return err
	}
	defer p.mu.Unlock()
	if err := p.fence(r, domain, token); err != nil {
		return err
	}
	r.held.Released = true
	switch p.fault {
	case "Release does nothing":
		r.held.Released = false
	case "Release counts a retry":
		r.held.RetryCount++
	case "Release renews the lease":
		r.held.AcquiredAt = r.held.AcquiredAt.Add(1)
	case "Release rotates the token":
		r.held.Token = p.token(r)
	case "Release puts the offset back into the backlog":
		r.backlog = slices.Insert(r.backlog, 0, r.held.Offset)
		r.held = nil
	}
	return nil
}

func (p *plain) Compact(ctx context.Context, floor int64) error {
	if _, err := p.enter(ctx, "compacted"); err != nil {
		return err
	}
	defer p.mu.Unlock()
	if p.fault == "a floor is cut to 32 bits" && floor != math.MinInt64 {
		floor = int64(int32(floor))
	}
	if floor < p.floor && p.fault != "the floor goes down" {
		return &lease.FloorError{Floor: p.floor, Got: floor}
	}
	p.floor = floor
	if p.fault == "a token comes back after Compact" {
		p.last = 0
	}
	reached := 0
	for _, r := range p.domains {
		if reached++; p.fault == "Compact reaches 100 domains" && reached > 100 {
			r.missed = true
			continue
		}
		for offset := range r.done {
			if offset < floor {
				delete(r.done, offset)
			}
		}
		if p.fault == "Compact drops what waits" {
			r.backlog = slices.DeleteFunc(r.backlog, func(offset int64) bool { return offset < floor })
		}
	}
	return nil
}
