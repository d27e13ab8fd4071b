package durable

// This file is the ledger: its configuration and the public calls.

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/internal/nilcheck"
)

// Config configures a Ledger.
type Config struct {
	// Store keeps the ledger. Required. Any number of Ledgers, in one process or in many, may share a store's ledger.
	Store Store
	// MaxRetries is how many Fail calls of a lease lead to a retry; the next one gives the offset up. 0 to 2147483647;
	// 0: no retries, the first failure is final. The store does not keep it: each Ledger uses its own.
	MaxRetries int
	// MaxBacklog bounds the waiting offsets of one domain. 0: unbounded. Not negative. The store does not keep it.
	MaxBacklog int
	// Observer, when not nil, receives every decision, and every call that ended in a Store's error.
	Observer lease.Observer
	// MaxCached bounds the domains whose latest state stays in memory while no call works on them. 0: 10,000. Not
	// negative. A domain that is not in memory is read again when it is used.
	MaxCached int
	// OldReaders says that programs built before Release existed still work on the ledger. They reject the records that
	// Release writes, so Release is rejected with a *lease.InvalidError, and the lease stays as it is. Leases that other
	// Ledgers release are read either way.
	OldReaders bool
}

const (
	defaultCached = 10_000
	maxDomain     = 1<<16 - 1
)

// Ledger is a lease.Ledger in a Store. It must come from New: any other rejects every call. A call that changes a domain
// that this Ledger used last costs one Swap; a first use costs a Load more, and one of the ledger's own record if the
// domain is new. Calls of one Ledger on one domain run one after another; conflicts with other Ledgers are resolved by a
// retry on the new version. A Ledger has no goroutine and nothing to close.
//
// Beyond lease.Ledger's errors each call may return *StoreError, *AmbiguousError (the only error after which the ledger
// may have changed), *ContentionError, *CorruptError, *NewerError and *ExhaustedError; TryAcquire and Offer *FullError
// too. A nil ctx, or a Ledger that New did not make, is a *lease.InvalidError.
type Ledger struct {
	cfg   Config
	cache cache

	writer        atomic.Uint64 // this Ledger's number among all that ever wrote to the ledger; 0: none yet
	clock         atomic.Uint64 // of tokens: at least that of any token that this Ledger made
	writes        atomic.Uint64 // writes tried, for their ids
	floor         atomic.Int64  // the greatest floor that this Ledger has read in the root
	seen          atomic.Uint64 // the greatest version of the root that was answered
	writersIssued atomic.Uint64 // how many numbers the root is known to have given out
}

var _ lease.Ledger = (*Ledger)(nil)

// New returns a ledger over cfg.Store. It does not call the Store. Error: *lease.InvalidError naming the field.
func New(cfg Config) (*Ledger, error) {
	missing, typed := nilcheck.Required(cfg.Store), nilcheck.Optional(cfg.Observer)
	switch {
	case missing != "":
		return nil, &lease.InvalidError{Field: "durable.Config.Store", Value: missing, Allowed: "a Store"}
	case typed != "":
		return nil, &lease.InvalidError{Field: "durable.Config.Observer", Value: typed, Allowed: "nil (no observer) or an observer"}
	case cfg.MaxBacklog < 0:
		return nil, &lease.InvalidError{Field: "durable.Config.MaxBacklog", Value: cfg.MaxBacklog, Allowed: "0 (unbounded) or more"}
	case cfg.MaxCached < 0:
		return nil, &lease.InvalidError{Field: "durable.Config.MaxCached", Value: cfg.MaxCached, Allowed: "0 (the default, 10000) or more"}
	case cfg.MaxRetries < 0 || cfg.MaxRetries > math.MaxInt32:
		return nil, &lease.InvalidError{Field: "durable.Config.MaxRetries", Value: cfg.MaxRetries, Allowed: "0 (no retries) to 2147483647"}
	}
	l := &Ledger{cfg: cfg, cache: cache{entries: map[string]*entry{}, max: cfg.MaxCached}}
	if l.cache.max == 0 {
		l.cache.max = defaultCached
	}
	l.floor.Store(noFloor)
	return l, nil
}

// TryAcquire implements lease.Ledger.
func (l *Ledger) TryAcquire(ctx context.Context, domain string, offset int64) (lease.Acquisition, error) {
	r, err := l.do(ctx, lease.Op{Kind: lease.OpTryAcquire, Domain: domain, Offset: offset})
	return lease.Acquisition{Status: r.Acquire, BelowFloor: r.BelowFloor, Lease: r.Lease(domain)}, err
}

// Succeed implements lease.Ledger.
func (l *Ledger) Succeed(ctx context.Context, domain string, token lease.Token) (lease.Completion, error) {
	r, err := l.do(ctx, lease.Op{Kind: lease.OpSucceed, Domain: domain, Token: token})
	return lease.Completion{Status: r.Complete, Next: r.Next}, err
}

// Fail implements lease.Ledger.
func (l *Ledger) Fail(ctx context.Context, domain string, token lease.Token) (lease.Failure, error) {
	r, err := l.do(ctx, lease.Op{Kind: lease.OpFail, Domain: domain, Token: token})
	return lease.Failure{Status: r.Fail, RetryCount: int(r.RetryCount), Next: r.Next}, err
}

// GiveUp implements lease.Ledger.
func (l *Ledger) GiveUp(ctx context.Context, domain string, token lease.Token) (lease.Failure, error) {
	r, err := l.do(ctx, lease.Op{Kind: lease.OpFail, Domain: domain, Token: token, MaxRetries: -1})
	return lease.Failure{Status: r.Fail, RetryCount: int(r.RetryCount), Next: r.Next}, err
}

// Offer implements lease.Ledger.
func (l *Ledger) Offer(ctx context.Context, domain string, offset int64) (lease.AcquireStatus, error) {
	r, err := l.do(ctx, lease.Op{Kind: lease.OpOffer, Domain: domain, Offset: offset})
	return r.Acquire, err
}

// AcquireNext implements lease.Ledger.
func (l *Ledger) AcquireNext(ctx context.Context, domain string) (lease.Acquisition, error) {
	r, err := l.do(ctx, lease.Op{Kind: lease.OpAcquireNext, Domain: domain})
	return lease.Acquisition{Status: r.Acquire, Lease: r.Lease(domain)}, err
}

// Reclaim implements lease.Ledger.
func (l *Ledger) Reclaim(ctx context.Context, domain string, held lease.Token) (lease.Lease, error) {
	r, err := l.do(ctx, lease.Op{Kind: lease.OpReclaim, Domain: domain, Token: held})
	return r.Lease(domain), err
}

// Release implements lease.Ledger.
func (l *Ledger) Release(ctx context.Context, domain string, token lease.Token) error {
	_, err := l.do(ctx, lease.Op{Kind: lease.OpRelease, Domain: domain, Token: token})
	return err
}

// do carries op out on its domain and tells the observer, who may call the ledger: the turn is over by then.
func (l *Ledger) do(ctx context.Context, op lease.Op) (r lease.Result, err error) {
	if err := l.admit(ctx, op.Domain); err != nil {
		return r, err
	}
	if op.Kind == lease.OpRelease && l.cfg.OldReaders {
		return r, &lease.InvalidError{Field: "durable.Config.OldReaders", Value: true, Allowed: "false for Release, which old readers cannot read"}
	}
	if op.MaxBacklog = l.cfg.MaxBacklog; op.MaxRetries == 0 {
		op.MaxRetries = l.cfg.MaxRetries
	}
	if op.Kind == lease.OpTryAcquire || op.Kind == lease.OpAcquireNext {
		op.Now = time.Now().UnixNano()
	}
	if err := l.exclusive(ctx, op.Domain, func(e *entry) error { return l.run(ctx, e, &op, &r) }); err != nil {
		r = lease.Result{}
		if l.cfg.Observer != nil {
			lease.Report(l.cfg.Observer, &op, &r, err)
		}
		return r, err
	}
	if l.cfg.Observer != nil {
		lease.Report(l.cfg.Observer, &op, &r, nil)
	}
	return r, nil
}

// exclusive runs work while no other call of this Ledger works on the domain. It waits for its turn until ctx ends.
func (l *Ledger) exclusive(ctx context.Context, name string, work func(*entry) error) error {
	e, err := l.cache.enter(ctx, name)
	if err != nil {
		return err
	}
	defer l.cache.leave(e)
	return work(e)
}

// admit turns away what no record has to be read for.
func (l *Ledger) admit(ctx context.Context, domain string) error {
	if err := l.done(ctx); err != nil {
		return err
	}
	if domain == "" || len(domain) > maxDomain {
		return &lease.InvalidError{Field: "domain", Value: fmt.Sprintf("%d bytes", len(domain)), Allowed: "1 to 65535 bytes"}
	}
	return nil
}

func (l *Ledger) done(ctx context.Context) error {
	switch {
	case l == nil || l.cfg.Store == nil:
		return &lease.InvalidError{Field: "durable.Ledger", Value: "nil or zero", Allowed: "a ledger made by durable.New"}
	case ctx == nil:
		return &lease.InvalidError{Field: "ctx", Value: "nil", Allowed: "a context"}
	}
	return ctx.Err()
}

// Inspect implements lease.Ledger. It costs two Loads.
func (l *Ledger) Inspect(ctx context.Context, domain string) (v lease.View, err error) {
	if err := l.admit(ctx, domain); err != nil {
		return v, err
	}
	// Exclusive, so that no call of this Ledger that is judged by an earlier floor can land behind what is seen here.
	err = l.exclusive(ctx, domain, func(e *entry) error {
		rec, version, err := l.load(ctx, l.cfg.Store, e)
		if err != nil {
			return err
		}
		if version != 0 { // otherwise load has read the root
			if _, _, err := l.loadRoot(ctx, l.cfg.Store); err != nil {
				return err
			}
		}
		e.keep(rec, version)
		v = rec.state.View(domain, l.floor.Load())
		return nil
	})
	return v, err
}
