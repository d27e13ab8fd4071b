// SPDX-License-Identifier: Apache-2.0

// The twelve calls of a Ledger over an engine: what may be asked, and the contract's words for what the state machine answers.

package lease

import (
	"context"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/stopbank/stopbank/lease/internal/step"
)

// maxDomain is the longest name of a domain, in bytes.
const maxDomain = math.MaxUint16

// FromEngine is how this project's engines become Ledgers: those of NewMemory, durable.New, leasekafka and groups' journals. Programs cannot
// implement a step.Engine. To keep a ledger elsewhere, write a durable.Store.
func FromEngine(engine step.Engine, cfg Config) Ledger { return &ledger{engine, cfg} }

// ledger is every Ledger of this project.
type ledger struct {
	engine step.Engine
	cfg    Config
}

// do checks the arguments, has the engine carry op out, and tells the observer.
func (l *ledger) do(ctx context.Context, op step.Op) (r step.Result, err error) {
	if err := checkCall(ctx, op.Domain); err != nil {
		return r, err
	}
	if op.MaxBacklog = l.cfg.MaxBacklog; op.MaxRetries == 0 {
		op.MaxRetries = l.cfg.MaxRetries
	}
	if r, err = l.engine.Do(ctx, op); err != nil {
		r = step.Result{}
	} else if r.Refused != 0 {
		err, r = refusal(op, r), step.Result{}
	}
	if l.cfg.Observer != nil {
		notify(l.cfg.Observer, op, r, err)
	}
	return r, err
}

// refusal is the error that the contract has for r.Refused.
func refusal(op step.Op, r step.Result) error {
	switch r.Refused {
	case step.OutOfOrder:
		return &BacklogOrderingError{Domain: op.Domain, Expected: r.Next, Got: op.Offset}
	case step.BacklogFull:
		return &BacklogFullError{Domain: op.Domain, Offset: op.Offset, MaxBacklog: op.MaxBacklog}
	case step.NotTheHolder:
		return &TokenMismatchError{Domain: op.Domain, Offset: r.Offset, Got: Token(op.Token)}
	case step.NoLease:
		return &LeaseNotFoundError{Domain: op.Domain, Got: Token(op.Token), Status: Status(r.Status), Offset: r.Offset}
	default:
		return &InvalidError{Field: "step.Op", Value: op, Allowed: "a kind, and a fresh token for what may grant a lease"}
	}
}

// checkCall rejects what no state has to be read for.
func checkCall(ctx context.Context, domain string) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	if domain == "" || len(domain) > maxDomain {
		return &InvalidError{Field: "domain", Value: fmt.Sprintf("%d bytes", len(domain)), Allowed: "1 to 65535 bytes"}
	}
	return nil
}

func checkContext(ctx context.Context) error {
	if ctx == nil {
		return &InvalidError{Field: "ctx", Value: "nil", Allowed: "a context"}
	}
	return ctx.Err()
}

// leaseOf returns the zero Lease for a zero Grant.
func leaseOf(domain string, g step.Grant) Lease {
	if g.Token == 0 {
		return Lease{}
	}
	return Lease{
		Domain: domain, Offset: g.Offset, Token: Token(g.Token), AcquiredAt: time.Unix(0, g.AcquiredAt).UTC(),
		RetryCount: int(g.RetryCount), Released: g.Released,
	}
}

func (l *ledger) TryAcquire(ctx context.Context, domain string, offset int64) (Acquisition, error) {
	r, err := l.do(ctx, step.Op{Kind: step.TryAcquire, Domain: domain, Offset: offset})
	return Acquisition{Status: Status(r.Status), BelowFloor: r.BelowFloor, Lease: leaseOf(domain, r.Grant)}, err
}

func (l *ledger) Succeed(ctx context.Context, domain string, token Token) (Completion, error) {
	r, err := l.do(ctx, step.Op{Kind: step.Succeed, Domain: domain, Token: uint64(token)})
	return Completion{Status: Status(r.Status), Next: r.Next}, err
}

func (l *ledger) Fail(ctx context.Context, domain string, token Token) (Failure, error) {
	r, err := l.do(ctx, step.Op{Kind: step.Fail, Domain: domain, Token: uint64(token)})
	return Failure{Status: Status(r.Status), RetryCount: int(r.RetryCount), Next: r.Next}, err
}

func (l *ledger) GiveUp(ctx context.Context, domain string, token Token) (Failure, error) {
	r, err := l.do(ctx, step.Op{Kind: step.Fail, Domain: domain, Token: uint64(token), MaxRetries: -1})
	return Failure{Status: Status(r.Status), RetryCount: int(r.RetryCount), Next: r.Next}, err
}

func (l *ledger) Offer(ctx context.Context, domain string, offset int64) (Status, error) {
	r, err := l.do(ctx, step.Op{Kind: step.Offer, Domain: domain, Offset: offset})
	return Status(r.Status), err
}

func (l *ledger) AcquireNext(ctx context.Context, domain string) (Acquisition, error) {
	r, err := l.do(ctx, step.Op{Kind: step.AcquireNext, Domain: domain})
	return Acquisition{Status: Status(r.Status), Lease: leaseOf(domain, r.Grant)}, err
}

func (l *ledger) Reclaim(ctx context.Context, domain string, held Token) (Lease, error) {
	r, err := l.do(ctx, step.Op{Kind: step.Reclaim, Domain: domain, Token: uint64(held)})
	return leaseOf(domain, r.Grant), err
}

func (l *ledger) Release(ctx context.Context, domain string, token Token) error {
	_, err := l.do(ctx, step.Op{Kind: step.Release, Domain: domain, Token: uint64(token)})
	return err
}

func (l *ledger) Compact(ctx context.Context, floor int64) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	err := l.engine.Compact(ctx, floor)
	if l.cfg.Observer != nil {
		notify(l.cfg.Observer, step.Op{Kind: step.Compact, Offset: floor}, step.Result{Grant: step.Grant{Offset: floor}}, err)
	}
	return err
}

func (l *ledger) Inspect(ctx context.Context, domain string) (View, error) {
	if err := checkCall(ctx, domain); err != nil {
		return View{}, err
	}
	s, err := l.engine.Inspect(ctx, domain)
	if err != nil {
		return View{}, err
	}
	v := View{Domain: domain, Backlog: s.Backlog, Processed: s.Processed, Failed: s.Failed, Floor: s.Floor}
	if s.Token != 0 {
		held := leaseOf(domain, s.Grant)
		v.Lease = &held
	}
	return v, nil
}

func (l *ledger) Ready(ctx context.Context) iter.Seq2[Head, error] {
	return list(ctx, l.engine, step.Ready, func(item step.Item) Head { return Head{Domain: item.Domain, Offset: item.Offset} })
}

func (l *ledger) Held(ctx context.Context) iter.Seq2[Lease, error] {
	return list(ctx, l.engine, step.Held, func(item step.Item) Lease { return leaseOf(item.Domain, item.Grant) })
}

func list[T any](ctx context.Context, engine step.Engine, index step.Index, entry func(step.Item) T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		if err := checkContext(ctx); err != nil {
			yield(entry(step.Item{}), err)
			return
		}
		for item, err := range engine.List(ctx, index) {
			if !yield(entry(item), err) {
				return
			}
		}
	}
}
