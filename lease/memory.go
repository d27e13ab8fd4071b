package lease

// This file is the ledger in memory: the public calls, each of them one visit to one stripe.

import (
	"context"
	"fmt"
	"hash/maphash"
	"iter"
	"math"
	"runtime"
	"sync"

	"github.com/stopbank/stopbank/lease/internal/nilcheck"
)

// DefaultRetries suits most work as MaxRetries, in Config and in durable.Config, where it has to be asked for: about 80 s
// of retries with the default pauses of package dispatch.
const DefaultRetries = 10

// Config configures a Memory ledger. The zero value is a ledger without retries and with an unbounded backlog.
type Config struct {
	// MaxRetries is how many Fail calls of a lease lead to a retry; the next one gives the offset up, so an offset gets
	// MaxRetries+1 attempts. 0 to 2147483647; 0: no retries, the first failure is final.
	MaxRetries int
	// MaxBacklog bounds the waiting offsets of one domain. 0: unbounded. Not negative.
	MaxBacklog int
	// Observer, when not nil, receives every decision.
	Observer Observer
}

// Memory is a Ledger in the memory of this process. It must come from NewMemory: any other rejects every call with an
// *InvalidError, as it does a nil ctx. Its methods allocate only to grow, for an error, and for the copies that Ready,
// Held and Inspect make. They block for as long as another call on the same stripe of the domains takes: a few hundred
// nanoseconds; longer while Inspect copies a long backlog, Compact frees a large stripe, or a backlog is rehashed (a few
// tenths of a second for a million offsets).
type Memory struct {
	cfg  Config
	seed maphash.Seed
	// stripes are a power of two, sixteen or more for each core that NewMemory found: of calls on different domains one in sixteen
	// meets another's lock when every core does nothing else. More of them cost cache, which costs every call.
	stripes []stripe

	// compacting serialises Compact and guards floor. It is taken before a stripe's lock, never after one.
	compacting sync.Mutex
	floor      int64
}

var _ Ledger = (*Memory)(nil)

// NewMemory returns an empty ledger. It starts no goroutine, and there is nothing to close.
// Error: *InvalidError naming the field.
func NewMemory(cfg Config) (*Memory, error) {
	if cfg.MaxRetries < 0 || cfg.MaxRetries > math.MaxInt32 {
		return nil, &InvalidError{Field: "Config.MaxRetries", Value: cfg.MaxRetries, Allowed: "0 (no retries) to 2147483647"}
	}
	if cfg.MaxBacklog < 0 {
		return nil, &InvalidError{Field: "Config.MaxBacklog", Value: cfg.MaxBacklog, Allowed: "0 (unbounded) or more"}
	}
	if typed := nilcheck.Optional(cfg.Observer); typed != "" {
		return nil, &InvalidError{Field: "Config.Observer", Value: typed, Allowed: "nil (no observer) or an observer"}
	}
	stripes := 1
	for stripes < 16*runtime.GOMAXPROCS(0) {
		stripes *= 2
	}
	m := &Memory{cfg: cfg, seed: maphash.MakeSeed(), stripes: make([]stripe, stripes), floor: math.MinInt64}
	for i := range m.stripes {
		st := &m.stripes[i]
		st.seed, st.floor, st.last, st.stride = m.seed, math.MinInt64, Token(i), Token(stripes)
	}
	return m, nil
}

// TryAcquire implements Ledger.
func (m *Memory) TryAcquire(ctx context.Context, domain string, offset int64) (a Acquisition, err error) {
	op := Op{Kind: OpTryAcquire, Domain: domain, Offset: offset}
	var r Result
	err = m.do(ctx, &op, &r)
	a.Status, a.BelowFloor = r.Acquire, r.BelowFloor
	r.lease(domain, &a.Lease)
	return a, err
}

// Succeed implements Ledger.
func (m *Memory) Succeed(ctx context.Context, domain string, token Token) (Completion, error) {
	op := Op{Kind: OpSucceed, Domain: domain, Token: token}
	var r Result
	err := m.do(ctx, &op, &r)
	return Completion{Status: r.Complete, Next: r.Next}, err
}

// Fail implements Ledger.
func (m *Memory) Fail(ctx context.Context, domain string, token Token) (Failure, error) {
	op := Op{Kind: OpFail, Domain: domain, Token: token}
	var r Result
	err := m.do(ctx, &op, &r)
	return Failure{Status: r.Fail, RetryCount: int(r.RetryCount), Next: r.Next}, err
}

// GiveUp implements Ledger.
func (m *Memory) GiveUp(ctx context.Context, domain string, token Token) (Failure, error) {
	op := Op{Kind: OpFail, Domain: domain, Token: token, MaxRetries: -1}
	var r Result
	err := m.do(ctx, &op, &r)
	return Failure{Status: r.Fail, RetryCount: int(r.RetryCount), Next: r.Next}, err
}

// Offer implements Ledger.
func (m *Memory) Offer(ctx context.Context, domain string, offset int64) (AcquireStatus, error) {
	op := Op{Kind: OpOffer, Domain: domain, Offset: offset}
	var r Result
	err := m.do(ctx, &op, &r)
	return r.Acquire, err
}

// AcquireNext implements Ledger.
func (m *Memory) AcquireNext(ctx context.Context, domain string) (Acquisition, error) {
	op := Op{Kind: OpAcquireNext, Domain: domain}
	var r Result
	err := m.do(ctx, &op, &r)
	return Acquisition{Status: r.Acquire, Lease: r.Lease(domain)}, err
}

// Reclaim implements Ledger.
func (m *Memory) Reclaim(ctx context.Context, domain string, held Token) (Lease, error) {
	op := Op{Kind: OpReclaim, Domain: domain, Token: held}
	var r Result
	err := m.do(ctx, &op, &r)
	return r.Lease(domain), err
}

// Release implements Ledger.
func (m *Memory) Release(ctx context.Context, domain string, token Token) error {
	op := Op{Kind: OpRelease, Domain: domain, Token: token}
	var r Result
	return m.do(ctx, &op, &r)
}

// do carries op out on its domain, writes what it came to into r and tells the observer.
func (m *Memory) do(ctx context.Context, op *Op, r *Result) error {
	if err := m.admit(ctx, op.Domain); err != nil {
		return err
	}
	if op.MaxBacklog = m.cfg.MaxBacklog; op.MaxRetries == 0 {
		op.MaxRetries = m.cfg.MaxRetries
	}
	st, hash := m.stripe(op.Domain)
	st.mu.Lock()
	err := st.step(op, hash, r)
	st.mu.Unlock()
	if m.cfg.Observer != nil {
		Report(m.cfg.Observer, op, r, err)
	}
	return err
}

// admit turns away what no state has to be read for.
func (m *Memory) admit(ctx context.Context, domain string) error {
	if err := m.done(ctx); err != nil {
		return err
	}
	if domain == "" || len(domain) > maxDomain {
		return &InvalidError{Field: "domain", Value: fmt.Sprintf("%d bytes", len(domain)), Allowed: "1 to 65535 bytes"}
	}
	return nil
}

func (m *Memory) done(ctx context.Context) error {
	switch {
	case m == nil || len(m.stripes) == 0:
		return &InvalidError{Field: "Memory", Value: "nil or zero", Allowed: "a ledger made by NewMemory"}
	case ctx == nil:
		return &InvalidError{Field: "ctx", Value: "nil", Allowed: "a context"}
	}
	return ctx.Err()
}

func (m *Memory) stripe(domain string) (*stripe, uint32) {
	hash := maphash.String(m.seed, domain)
	// The stripe takes the top bits and its table the low ones, so that the one does not thin out the other.
	return &m.stripes[hash>>32&uint64(len(m.stripes)-1)], uint32(hash)
}

// Compact implements Ledger. It takes each stripe's lock in turn. Its time grows with the memory that it frees, not with
// the number of domains. Calls on other domains see the new floor before it returns, in no particular order.
func (m *Memory) Compact(ctx context.Context, floor int64) error {
	if err := m.done(ctx); err != nil {
		return err
	}
	err := m.compact(floor)
	if m.cfg.Observer != nil {
		notify(m.cfg.Observer, Event{Op: OpCompact, Offset: floor, Err: err})
	}
	return err
}

// sweepBatch is how many domains Compact visits in one hold of a stripe's lock.
const sweepBatch = 32

func (m *Memory) compact(floor int64) error {
	m.compacting.Lock()
	defer m.compacting.Unlock()
	if floor < m.floor {
		return &FloorError{Floor: m.floor, Got: floor}
	}
	m.floor = floor
	for i := range m.stripes {
		st := &m.stripes[i]
		for done := false; !done; {
			st.mu.Lock()
			done = st.sweep(floor, sweepBatch)
			st.mu.Unlock()
		}
	}
	return nil
}

// Inspect implements Ledger.
func (m *Memory) Inspect(ctx context.Context, domain string) (View, error) {
	if err := m.admit(ctx, domain); err != nil {
		return View{}, err
	}
	st, hash := m.stripe(domain)
	st.mu.Lock()
	defer st.mu.Unlock()
	var s State
	if slot, ok := st.find(hash, domain); ok {
		s = st.record(slot).state
	}
	return s.View(domain, st.floor), nil
}

// Ready implements Ledger. It costs one lock per stripe, and the body's time.
func (m *Memory) Ready(ctx context.Context) iter.Seq2[Head, error] {
	return func(yield func(Head, error) bool) {
		walk(ctx, m, readyList, yield, func(domain string, s *State) Head {
			offset, _ := s.Waiting()
			return Head{Domain: domain, Offset: offset}
		})
	}
}

// Held implements Ledger. It costs one lock per stripe, and the body's time.
func (m *Memory) Held(ctx context.Context) iter.Seq2[Lease, error] {
	return func(yield func(Lease, error) bool) {
		walk(ctx, m, heldList, yield, func(domain string, s *State) Lease {
			lease, _ := s.Leased(domain)
			return lease
		})
	}
}

// walk yields what show makes of the domains in a list, a stripe at a time: copied out under the stripe's lock,
// yielded under none.
func walk[T any](ctx context.Context, m *Memory, list int, yield func(T, error) bool, show func(string, *State) T) {
	fail := func(err error) {
		var none T
		yield(none, err)
	}
	if err := m.done(ctx); err != nil {
		fail(err)
		return
	}
	var copied []T
	for i := range m.stripes {
		st := &m.stripes[i]
		if err := ctx.Err(); err != nil {
			fail(err)
			return
		}
		copied = copied[:0]
		st.mu.Lock()
		for next := st.heads[list]; next != 0; next = st.record(next - 1).next {
			copied = append(copied, show(string(st.name(next-1)), &st.record(next-1).state))
		}
		st.mu.Unlock()
		for _, item := range copied {
			if err := ctx.Err(); err != nil {
				fail(err)
				return
			}
			if !yield(item, nil) {
				return
			}
		}
	}
}
