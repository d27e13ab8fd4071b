// SPDX-License-Identifier: Apache-2.0

package dispatch

// This file is a dispatcher's configuration: its parts, its bounds, and the functions that it calls.

import (
	"cmp"
	"context"
	"math"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/internal/nilcheck"
)

// Job is one attempt at a record.
type Job struct {
	Partition string // its Name, as in DeadLetter
	Record    Record
	// Lease is the right to work on the record. Its Token is the fencing token: a store that keeps the greatest token it
	// has seen for the domain and rejects a smaller one is safe from a holder that has lost the lease. RetryCount is 0
	// at the first attempt.
	Lease lease.Lease
	// Ledger granted the lease, for a handler that ends it in its own transaction (leasepg.SucceedTx). Leave the other
	// calls to the dispatcher.
	Ledger lease.Ledger
}

// Handler does the work of one record; nil is success. An error, a panic and runtime.Goexit are failures, and the record
// is tried again until the ledger gives it up. ErrPermanent gives it up at once, and Later is not a failure. The context
// ends after AttemptTimeout and when a drain runs out of time, not when Run's does. A Handler must be safe for
// concurrent use; for one domain it runs one call at a time.
type Handler func(ctx context.Context, job Job) error

// DeadLetter is a record that was given up.
type DeadLetter struct {
	Partition string // its Name
	Record    Record // without a Payload if the Source has lost the record
	// Lease is the one under which the record was given up. It is zero if an earlier process did that, or the ledger cannot
	// hold the record.
	Lease lease.Lease
	// Err is the last failure: the handler's own, a *PanicError, one that says that it called runtime.Goexit, ErrDied,
	// ErrRecordGone, or the ledger's *lease.InvalidError for a record that it cannot hold. Nil if an earlier process gave the
	// record up.
	Err error
}

// Discard is a DeadLetter function that drops the records.
func Discard(context.Context, DeadLetter) error { return nil }

// Config configures a Dispatcher or a Consumer. Handler and DeadLetter are required; every other field may be zero. Numbers
// are at most 2147483647 and durations at most a year; none is negative.
type Config struct {
	// Handler processes the records. It must be set.
	Handler Handler

	// MaxInFlight is the concurrency limit: how many records are worked on at once. 0: 16; at most
	// 2147483647.
	MaxInFlight int
	// Concurrency, when not nil, admits every attempt, in addition to MaxInFlight: an admission gate or a limiter. It calls
	// run once, in this goroutine, and returns any error; or it returns without calling run, at once or after a wait, which
	// is a rejection: the dispatcher tries again after 1 ms to 50 ms. It should give up when ctx is done. The error of run is
	// the handler's. It must be safe for concurrent use, and must not panic or call runtime.Goexit.
	Concurrency func(ctx context.Context, run func() error) error
	// Rate, when not nil, bounds how fast attempts begin: all of them, including retries and trials, over all partitions
	// of a Consumer.
	Rate Rate
	// RateOf, when not nil, returns the Rate of a domain, in addition to Rate; nil: the domain has none. It is called
	// before every attempt, and the dispatcher keeps nothing: the returned Rate has to remember the domain's attempts
	// itself. It must be safe for concurrent use and must not block.
	RateOf func(domain string) Rate
	// Owner, when not nil, returns the owner of a domain, for example a customer, and always the same one for a domain.
	// A free slot goes to the waiting owner with the fewest slots; of several, to the one whose records have taken the
	// least time: so a customer with many keys does not crowd out others. It must be safe for concurrent use and must not
	// block. Nil: all domains have one owner.
	Owner func(domain string) string
	// MaxBuffered bounds the records that are fetched and not done, including those in work; each partition may have one in
	// any case. 0: 1024, or MaxInFlight if that is more. 1 to 2147483647. It bounds their memory too: 32 KiB each, 32 MiB together
	// if that is more. A larger record counts as several, here, in MaxPerDomain and in MaxPerOwner; one above the bound still
	// passes. A partition alone gets all of it, n busy ones of several about MaxBuffered / (n + 1) each; raise it where many keys
	// get stuck, or where more large records are to be in work at once. Besides, all partitions together cache at most as many
	// records that they may have to read again.
	MaxBuffered int
	// MaxPerDomain bounds the buffered records of one domain; further ones are read again later, as are all but one of a
	// domain that pauses for a second or longer while there is no more room. 0: a 32nd of MaxBuffered, at least 1. At most
	// MaxBuffered.
	MaxPerDomain int

	// MaxPerOwner bounds the buffered records of one owner in one partition; further ones are read again later. 0: an
	// eighth of MaxBuffered, at least 1. At most MaxBuffered; 0 without an Owner.
	MaxPerOwner int

	// Backoff is the pause before the first retry; it doubles with every retry. A random part, up to half, is taken off
	// each pause. 0: 100 ms. At most a year.
	Backoff time.Duration
	// MaxBackoff bounds the pause. 0: 30 s, or Backoff if that is more. Backoff to a year.
	MaxBackoff time.Duration
	// AttemptTimeout is how long one call of Handler or DeadLetter may take; then its context ends. A call that ignores
	// its context keeps its key and its slot until it returns, and its result then counts, unless Run has returned. 0: a
	// minute. At most a year.
	AttemptTimeout time.Duration
	// Grace is how long a lease that another process takes while this one has the partition is left alone before it is
	// reclaimed. 0: a minute. At most a year.
	Grace time.Duration
	// DrainTimeout is how long handlers, and a commit that was sent, may go on after Run's context is done. Then their
	// context ends, and handlers get a tenth of this time to return. The drain's own commit has as long again. 0: the
	// Ownership's if it has one (leasekafka.GroupConfig.DrainTimeout), which is also the most; else 10 s, and a
	// year at most.
	DrainTimeout time.Duration
	// CommitEvery is how often the floor is committed. 0: 500 ms. At most a year. With ledgers in memory a shorter one, such
	// as 50 ms, repeats less after a crash.
	CommitEvery time.Duration

	// DeadLetter is called for every record that was given up, at least once, in one of the MaxInFlight slots. Required:
	// Discard drops the records, package deadletter keeps them for a replay. Until it returns nil the record is not done
	// and its domain waits; after an error, a panic or Goexit it is called again, with the pauses of a retry but 5 s at most.
	// After a restart it may be called again for the same record. It must be safe for concurrent use.
	DeadLetter func(ctx context.Context, letter DeadLetter) error
	// Observer, when not nil, receives the events.
	Observer Observer
}

// complete checks cfg and fills in what is left to it.
func (cfg Config) complete() (Config, error) {
	for _, part := range []struct {
		field, wrong, allowed string
	}{
		{"Handler", nilcheck.Required(cfg.Handler), "a function"},
		{"DeadLetter", nilcheck.Required(cfg.DeadLetter), "a function; use Discard to drop the records"},
		{"Rate", nilcheck.Optional(cfg.Rate), "nil (unlimited) or a rate"},
		{"Observer", nilcheck.Optional(cfg.Observer), "nil (no observer) or an observer"},
	} {
		if part.wrong != "" {
			return cfg, invalidField("Config."+part.field, part.wrong, part.allowed)
		}
	}

	if err := cmp.Or(
		orDefault("MaxInFlight", &cfg.MaxInFlight, 16, math.MaxInt32),
		orDefault("Backoff", &cfg.Backoff, 100*time.Millisecond, maxPause),
		orDefault("AttemptTimeout", &cfg.AttemptTimeout, time.Minute, maxPause),
		orDefault("Grace", &cfg.Grace, time.Minute, maxPause),
		orDefault("DrainTimeout", &cfg.DrainTimeout, 10*time.Second, maxPause),
		orDefault("CommitEvery", &cfg.CommitEvery, 500*time.Millisecond, maxPause),
	); err != nil {
		return cfg, err
	}
	if err := orDefault("MaxBuffered", &cfg.MaxBuffered, max(1024, cfg.MaxInFlight), math.MaxInt32); err != nil {
		return cfg, err
	}
	if err := orDefault("MaxPerDomain", &cfg.MaxPerDomain, max(1, cfg.MaxBuffered/32), cfg.MaxBuffered); err != nil {
		return cfg, err
	}
	owned := max(1, cfg.MaxBuffered/8)
	if cfg.Owner == nil {
		if cfg.MaxPerOwner != 0 {
			return cfg, invalidField("Config.MaxPerOwner", cfg.MaxPerOwner, "0, or more with an Owner")
		}
		owned = cfg.MaxBuffered
	}
	if err := orDefault("MaxPerOwner", &cfg.MaxPerOwner, owned, cfg.MaxBuffered); err != nil {
		return cfg, err
	}
	if err := orDefault("MaxBackoff", &cfg.MaxBackoff, max(30*time.Second, cfg.Backoff), maxPause); err != nil {
		return cfg, err
	}
	if cfg.MaxBackoff < cfg.Backoff {
		return cfg, invalidField("Config.MaxBackoff", cfg.MaxBackoff, "Backoff ("+cfg.Backoff.String()+") or more")
	}
	if cfg.Concurrency == nil {
		cfg.Concurrency = func(_ context.Context, run func() error) error { return run() }
	}
	return cfg, nil
}

// recordBytes is what a record may have of the memory that MaxBuffered bounds, and leastBytes the least of that memory.
const (
	recordBytes = 32 << 10
	leastBytes  = 32 << 20
)

// roomOf returns as how many records r counts.
func roomOf(cfg *Config, r Record) int {
	bytes := len(r.Domain) + len(r.Payload)
	for _, h := range r.Headers {
		bytes += len(h.Key) + len(h.Value)
	}
	return min(cfg.MaxBuffered, 1+bytes/max(recordBytes, leastBytes/cfg.MaxBuffered))
}

// maxPause bounds every duration of a Config: a year.
const maxPause = 365 * 24 * time.Hour

// orDefault replaces 0 by the default, and rejects values out of range.
func orDefault[T int | time.Duration](field string, value *T, zero, most T) error {
	if *value == 0 {
		*value = zero
	}
	if *value < 0 || *value > most {
		return invalidField("Config."+field, *value, allowed(zero, most))
	}
	return nil
}
