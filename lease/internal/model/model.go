// SPDX-License-Identifier: Apache-2.0

// Package model is the contract of lease.Ledger once more, as plainly as it can be said: one domain, slices and maps,
// nothing ever forgotten. It is written from the contract and shares no code with any ledger; tests hold ledgers
// against it.
package model

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/internal/step"
)

// GiveUp is the one call that is no step of its own.
const GiveUp = step.Compact + 1

// Call is a call on a ledger that returns one answer. For step.Compact Offset is the floor.
type Call struct {
	Op     step.Kind // 0: Inspect
	Domain string
	Offset int64
	Token  lease.Token
}

// Name is the method's.
func (c Call) Name() string {
	return [...]string{"Inspect", "TryAcquire", "Offer", "AcquireNext", "Succeed", "Fail", "Reclaim", "Release", "Compact", "GiveUp"}[c.Op]
}

func (c Call) String() string {
	switch c.Op {
	case 0, step.AcquireNext:
		return fmt.Sprintf("%s(%s)", c.Name(), c.Domain)
	case step.TryAcquire, step.Offer:
		return fmt.Sprintf("%s(%s, %d)", c.Name(), c.Domain, c.Offset)
	case step.Compact:
		return fmt.Sprintf("%s(%d)", c.Name(), c.Offset)
	}
	return fmt.Sprintf("%s(%s, token %d)", c.Name(), c.Domain, c.Token)
}

// Reply is what a ledger answered; the fields that the call does not have are zero.
type Reply struct {
	Acquisition lease.Acquisition
	Completion  lease.Completion
	Failure     lease.Failure
	Status      lease.Status // Offer
	Lease       lease.Lease  // Reclaim
	View        lease.View
	Err         error
}

// String leaves out what is zero.
func (r Reply) String() string {
	if r.Err != nil {
		return "error: " + r.Err.Error()
	}
	var parts []string
	for _, part := range []any{r.Acquisition, r.Completion, r.Failure, r.Status, r.Lease, r.View, r.View.Lease} {
		if v := reflect.ValueOf(part); !v.IsZero() {
			parts = append(parts, fmt.Sprintf("%+v", reflect.Indirect(v)))
		}
	}
	return cmp.Or(strings.Join(parts, ", held: "), "done")
}

// Do makes the call.
func (c Call) Do(ctx context.Context, l lease.Ledger) (r Reply) {
	switch c.Op {
	case 0:
		r.View, r.Err = l.Inspect(ctx, c.Domain)
	case step.TryAcquire:
		r.Acquisition, r.Err = l.TryAcquire(ctx, c.Domain, c.Offset)
	case step.Offer:
		r.Status, r.Err = l.Offer(ctx, c.Domain, c.Offset)
	case step.AcquireNext:
		r.Acquisition, r.Err = l.AcquireNext(ctx, c.Domain)
	case step.Succeed:
		r.Completion, r.Err = l.Succeed(ctx, c.Domain, c.Token)
	case step.Fail:
		r.Failure, r.Err = l.Fail(ctx, c.Domain, c.Token)
	case GiveUp:
		r.Failure, r.Err = l.GiveUp(ctx, c.Domain, c.Token)
	case step.Reclaim:
		r.Lease, r.Err = l.Reclaim(ctx, c.Domain, c.Token)
	case step.Release:
		r.Err = l.Release(ctx, c.Domain, c.Token)
	case step.Compact:
		r.Err = l.Compact(ctx, c.Offset)
	}
	return r
}

// Domain is what the contract says of one domain after the calls accepted so far.
type Domain struct {
	Lease     *lease.Lease
	Backlog   []int64
	Processed map[int64]bool
	Failed    map[int64]bool
	Floor     int64
	Highest   lease.Token // of all leases so far

	// The last completion, while it is the last thing that happened to the lease.
	Completed lease.LeaseNotFoundError
	// Forgettable: a Compact has passed the completed offset, so a ledger may, but need not, have forgotten it.
	Forgettable bool
}

// New is a domain never seen.
func New() *Domain {
	return &Domain{Processed: map[int64]bool{}, Failed: map[int64]bool{}, Floor: math.MinInt64}
}

// Clone copies d deeply.
func (d *Domain) Clone() *Domain {
	c := *d
	if d.Lease != nil {
		held := *d.Lease
		c.Lease = &held
	}
	c.Backlog, c.Processed, c.Failed = slices.Clone(d.Backlog), maps.Clone(d.Processed), maps.Clone(d.Failed)
	return &c
}

// Equal compares deeply.
func (d *Domain) Equal(o *Domain) bool { return reflect.DeepEqual(d, o) }

// Accept judges the reply that a ledger with cfg gave to c, and if it is right makes the call's change to d. After an
// error d is of no more use.
func (d *Domain) Accept(cfg lease.Config, c Call, got Reply) error {
	want := Reply{}
	switch c.Op {
	case 0:
		want.View = d.view(c.Domain)
		if len(got.View.Backlog) == 0 {
			got.View.Backlog = nil
		}
	case step.TryAcquire:
		want.Acquisition, want.Err = d.tryAcquire(cfg, c, got.Acquisition.Lease)
	case step.Offer:
		want.Status, want.Err = d.offer(cfg, c)
	case step.AcquireNext:
		switch {
		case d.Lease != nil:
			want.Acquisition.Status = lease.Busy
		case len(d.Backlog) == 0:
			want.Acquisition.Status = lease.NothingToDo
		default:
			want.Acquisition = d.acquire(c.Domain, d.Backlog[0], got.Acquisition.Lease)
		}
	case step.Succeed:
		want.Completion, want.Err = d.succeed(c)
	case step.Fail, GiveUp:
		want.Failure, want.Err = d.fail(cfg, c)
	case step.Reclaim:
		if want.Err = d.fence(c); want.Err == nil {
			d.Lease.Token, d.Lease.Released = d.fresh(got.Lease.Token), false
			want.Lease = *d.Lease
		}
	case step.Release:
		if want.Err = d.fence(c); want.Err == nil {
			d.Lease.Released = true
		}
	case step.Compact:
		if c.Offset < d.Floor {
			want.Err = &step.FloorError{Floor: d.Floor, Got: c.Offset}
			break
		}
		d.Floor = c.Offset
		d.Forgettable = d.Forgettable || d.Completed.Offset < d.Floor
	}
	if d.Forgettable && forgotten(got.Err, want.Err) {
		return nil
	}
	if !sameError(got.Err, want.Err) {
		return fmt.Errorf("%s: error %v, want %v", c, got.Err, want.Err)
	}
	got.Err, want.Err = nil, nil
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("%s: answer\n\t%v, want\n\t%v", c, got, want)
	}
	return nil
}

// live: leased or waiting.
func (d *Domain) live(offset int64) bool {
	return d.Lease != nil && d.Lease.Offset == offset || slices.Contains(d.Backlog, offset)
}

// terminal answers for an offset that is done; the floor speaks first, because behind it nobody remembers.
func (d *Domain) terminal(offset int64) (status lease.Status, below bool) {
	switch {
	case d.live(offset):
		return 0, false
	case offset < d.Floor:
		return lease.AlreadyProcessed, true
	case d.Processed[offset]:
		return lease.AlreadyProcessed, false
	case d.Failed[offset]:
		return lease.AlreadyFailed, false
	}
	return 0, false
}

func (d *Domain) tryAcquire(cfg lease.Config, c Call, got lease.Lease) (lease.Acquisition, error) {
	if status, below := d.terminal(c.Offset); status != 0 {
		return lease.Acquisition{Status: status, BelowFloor: below}, nil
	}
	if d.Lease != nil {
		if d.Lease.Offset == c.Offset {
			return lease.Acquisition{Status: lease.AlreadyAcquired, Lease: *d.Lease}, nil
		}
		if err := d.addToBacklog(cfg, c); err != nil {
			return lease.Acquisition{}, err
		}
		return lease.Acquisition{Status: lease.Enqueued}, nil
	}
	if len(d.Backlog) > 0 && d.Backlog[0] != c.Offset {
		return lease.Acquisition{}, &lease.BacklogOrderingError{Domain: c.Domain, Expected: d.Backlog[0], Got: c.Offset}
	}
	return d.acquire(c.Domain, c.Offset, got), nil
}

// acquire grants; the ledger chose the token and the time, within bounds.
func (d *Domain) acquire(domain string, offset int64, got lease.Lease) lease.Acquisition {
	if len(d.Backlog) > 0 {
		d.Backlog = slices.Delete(d.Backlog, 0, 1)
	}
	if got.AcquiredAt.IsZero() {
		got.AcquiredAt = time.Unix(1, 0) // wrong whatever it was: a lease carries its time
	}
	d.Lease = &lease.Lease{Domain: domain, Offset: offset, Token: d.fresh(got.Token), AcquiredAt: got.AcquiredAt}
	d.Completed, d.Forgettable = lease.LeaseNotFoundError{}, false
	return lease.Acquisition{Status: lease.Acquired, Lease: *d.Lease}
}

// fresh is got where that is a greater token than any before, and else one that got cannot equal.
func (d *Domain) fresh(got lease.Token) lease.Token {
	d.Highest = max(d.Highest+1, got)
	return d.Highest
}

func (d *Domain) offer(cfg lease.Config, c Call) (lease.Status, error) {
	if status, _ := d.terminal(c.Offset); status != 0 {
		return status, nil
	}
	if d.Lease != nil && d.Lease.Offset == c.Offset {
		return lease.AlreadyAcquired, nil
	}
	if err := d.addToBacklog(cfg, c); err != nil {
		return 0, err
	}
	return lease.Enqueued, nil
}

func (d *Domain) addToBacklog(cfg lease.Config, c Call) error {
	if slices.Contains(d.Backlog, c.Offset) {
		return nil
	}
	if cfg.MaxBacklog > 0 && len(d.Backlog) >= cfg.MaxBacklog {
		return &lease.BacklogFullError{Domain: c.Domain, Offset: c.Offset, MaxBacklog: cfg.MaxBacklog}
	}
	d.Backlog = append(d.Backlog, c.Offset)
	return nil
}

func (d *Domain) fence(c Call) error {
	if d.Lease == nil {
		if d.Completed.Status != 0 && d.Completed.Got == c.Token {
			known := d.Completed
			return &known
		}
		return &lease.LeaseNotFoundError{Domain: c.Domain, Got: c.Token}
	}
	finishes := c.Op == step.Succeed || c.Op == step.Fail || c.Op == GiveUp
	if d.Lease.Token != c.Token || d.Lease.Released && finishes {
		return &lease.TokenMismatchError{Domain: c.Domain, Offset: d.Lease.Offset, Got: c.Token}
	}
	return nil
}

func (d *Domain) succeed(c Call) (lease.Completion, error) {
	if err := d.fence(c); err != nil {
		return lease.Completion{}, err
	}
	d.Processed[d.Lease.Offset] = true
	d.end(lease.AlreadyProcessed)
	if len(d.Backlog) == 0 {
		return lease.Completion{Status: lease.NoBacklog}, nil
	}
	return lease.Completion{Status: lease.NextHint, Next: d.Backlog[0]}, nil
}

func (d *Domain) fail(cfg lease.Config, c Call) (lease.Failure, error) {
	if err := d.fence(c); err != nil {
		return lease.Failure{}, err
	}
	if c.Op != GiveUp && d.Lease.RetryCount < cfg.MaxRetries {
		d.Lease.RetryCount++
		return lease.Failure{Status: lease.RetryScheduled, RetryCount: d.Lease.RetryCount}, nil
	}
	retries := d.Lease.RetryCount
	d.Failed[d.Lease.Offset] = true
	d.end(lease.AlreadyFailed)
	if len(d.Backlog) == 0 {
		return lease.Failure{Status: lease.GiveUpNoBacklog, RetryCount: retries}, nil
	}
	return lease.Failure{Status: lease.GiveUpNextHint, RetryCount: retries, Next: d.Backlog[0]}, nil
}

func (d *Domain) end(how lease.Status) {
	d.Completed = lease.LeaseNotFoundError{Domain: d.Lease.Domain, Got: d.Lease.Token, Status: how, Offset: d.Lease.Offset}
	d.Forgettable = d.Lease.Offset < d.Floor
	d.Lease = nil
}

func (d *Domain) view(domain string) lease.View {
	v := lease.View{Domain: domain, Floor: d.Floor}
	if d.Lease != nil {
		held := *d.Lease
		v.Lease = &held
	}
	if len(d.Backlog) > 0 {
		v.Backlog = slices.Clone(d.Backlog)
	}
	for offset := range d.Processed {
		if offset >= d.Floor {
			v.Processed++
		}
	}
	for offset := range d.Failed {
		if offset >= d.Floor {
			v.Failed++
		}
	}
	return v
}

// forgotten: the ledger has forgotten an outcome that it would else have had to report.
func forgotten(got, want error) bool {
	var g, w *lease.LeaseNotFoundError
	return errors.As(got, &g) && errors.As(want, &w) && w.Status != 0 &&
		*g == lease.LeaseNotFoundError{Domain: w.Domain, Got: w.Got}
}

// sameError: the same type with the same fields, wrapped or not.
func sameError(got, want error) bool {
	if want == nil || got == nil {
		return got == want
	}
	for ; got != nil; got = errors.Unwrap(got) {
		if reflect.DeepEqual(got, want) {
			return true
		}
	}
	return false
}
