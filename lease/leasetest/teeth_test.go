// SPDX-License-Identifier: Apache-2.0

// The ledger in memory broken on purpose, one way at a time: the check that is there for it must notice.

package leasetest

import (
	"context"
	"errors"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/internal/model"
	"github.com/stopbank/stopbank/lease/internal/step"
	"github.com/stopbank/stopbank/lease/internal/testkit/witness"
)

// broken is a way to be wrong: with another configuration, in a call, or in a walk.
type broken struct {
	by   string // the checks that have to notice, among others
	cfg  func(*lease.Config)
	call fault
	walk string // what Ready and Held do, or one of them
}

// fault makes a call on a ledger, or does something else.
type fault func(context.Context, *inner, model.Call) model.Reply

// inner is a ledger as a fault sees it.
type inner struct {
	lease.Ledger
	walk  string
	mu    sync.Mutex // held by each call; guards all below
	calls int
	views map[string]lease.View
}

func (in *inner) view(domain string) lease.View {
	v, _ := in.Inspect(ctx, domain)
	return v
}

// token is the current one of domain; 0: it has no lease.
func (in *inner) token(domain string) lease.Token {
	if l := in.view(domain).Lease; l != nil {
		return l.Token
	}
	return 0
}

func (b broken) open(t testing.TB, cfg lease.Config) lease.Ledger {
	if b.cfg != nil {
		b.cfg(&cfg)
	}
	m, err := lease.NewMemory(cfg)
	if err != nil {
		t.Fatal(err)
	}
	in := &inner{Ledger: m, walk: b.walk, views: map[string]lease.View{}}
	return model.Through{Ledger: in, Make: func(ctx context.Context, c model.Call) model.Reply {
		in.mu.Lock()
		defer in.mu.Unlock()
		if in.calls++; b.call == nil {
			return c.Do(ctx, m)
		}
		return b.call(ctx, in, c)
	}}
}

// ignored answers calls of this kind and does not make them.
func ignored(op step.Kind) fault {
	return func(ctx context.Context, in *inner, c model.Call) model.Reply {
		if c.Op == op {
			return model.Reply{}
		}
		return c.Do(ctx, in)
	}
}

// before changes the calls of this kind, or makes others before them.
func before(op step.Kind, change func(*inner, *model.Call)) fault {
	return func(ctx context.Context, in *inner, c model.Call) model.Reply {
		if c.Op == op && ctx.Err() == nil && c.Domain != "" {
			change(in, &c)
		}
		return c.Do(ctx, in)
	}
}

// after changes replies, or makes other calls after those to which they are the replies.
func after(change func(*inner, model.Call, *model.Reply)) fault {
	return func(ctx context.Context, in *inner, c model.Call) model.Reply {
		r := c.Do(ctx, in)
		change(in, c, &r)
		return r
	}
}

// shown changes each lease that a reply shows.
func shown(change func(*lease.Lease)) fault {
	return after(func(_ *inner, _ model.Call, r *model.Reply) {
		for _, l := range []*lease.Lease{&r.Acquisition.Lease, &r.Lease, r.View.Lease} {
			if l != nil && l.Token != 0 {
				change(l)
			}
		}
	})
}

// renamed files domains under other names.
func renamed(as func(string) string) fault {
	return func(ctx context.Context, in *inner, c model.Call) model.Reply {
		named := c.Domain
		c.Domain = as(named)
		r := c.Do(ctx, in)
		for _, l := range []*lease.Lease{&r.Acquisition.Lease, &r.Lease, r.View.Lease} {
			if l != nil && l.Token != 0 {
				l.Domain = named
			}
		}
		r.View.Domain = named
		return r
	}
}

// numbered files offsets and floors under other numbers, and shows these.
func numbered(as func(int64) int64) fault {
	return func(ctx context.Context, in *inner, c model.Call) model.Reply {
		c.Offset = as(c.Offset)
		return c.Do(ctx, in)
	}
}

func reclaimed(in *inner, c *model.Call) {
	if l, err := in.Reclaim(ctx, c.Domain, c.Token); err == nil {
		c.Token = l.Token
	}
}

func faults() map[string]broken {
	random := "Machine Histories "
	all := map[string]broken{
		"two owners": {by: random, call: after(func(_ *inner, _ model.Call, r *model.Reply) {
			if r.Acquisition.Status == lease.AlreadyAcquired {
				r.Acquisition.Status = lease.Acquired
			}
		})},
		"two domains share a token": {by: random,
			call: after(func(_ *inner, _ model.Call, r *model.Reply) {
				if r.Acquisition.Status == lease.Acquired {
					r.Acquisition.Lease.Token = 7
				}
			})},
		"the next token succeeds": {by: "Machine",
			call: before(step.Succeed, func(in *inner, c *model.Call) {
				if now := in.token(c.Domain); c.Token == now+1 {
					c.Token = now
				}
			})},
		"no token succeeds": {by: "Machine", call: before(step.Succeed, func(in *inner, c *model.Call) {
			if c.Token == 0 {
				c.Token = in.token(c.Domain)
			}
		})},
		"what was released can be finished": {by: random,
			call: before(step.Succeed, func(in *inner, c *model.Call) {
				if l := in.view(c.Domain).Lease; l != nil && l.Released {
					reclaimed(in, c)
				}
			})},
		"Release does nothing": {by: random, call: ignored(step.Release)},
		"Reclaim keeps the token": {by: random,
			call: before(step.Reclaim, func(in *inner, c *model.Call) {
				if c.Token == in.token(c.Domain) {
					c.Op = 0
				}
			})},
		"a retry renews the lease": {by: "Machine AcquiredAtIsWallTime",
			call: shown(func(l *lease.Lease) { l.AcquiredAt = l.AcquiredAt.Add(time.Duration(l.RetryCount)) })},
		"AcquiredAt is local": {by: "AcquiredAtIsWallTime",
			call: shown(func(l *lease.Lease) { l.AcquiredAt = l.AcquiredAt.In(time.FixedZone("", 3600)) })},
		"AcquiredAt has a monotonic reading": {by: "AcquiredAtIsWallTime",
			call: shown(func(l *lease.Lease) { l.AcquiredAt = time.Now() })},
		"AcquiredAt counts from the start": {by: "AcquiredAtIsWallTime",
			call: shown(func(l *lease.Lease) { l.AcquiredAt = time.Unix(0, 1).UTC() })},
		"one attempt too many": {by: random + "TenRetries",
			cfg: func(cfg *lease.Config) { cfg.MaxRetries++ }},
		"no more than five retries": {by: "TenRetries",
			cfg: func(cfg *lease.Config) { cfg.MaxRetries = min(cfg.MaxRetries, 5) }},
		"GiveUp gives one more chance": {by: "Machine",
			call: before(model.GiveUp, func(_ *inner, c *model.Call) { c.Op = step.Fail })},
		"a full backlog takes more": {by: random, cfg: func(cfg *lease.Config) { cfg.MaxBacklog = 0 }},
		"the hint is the last that came": {by: random,
			call: after(func(in *inner, c model.Call, r *model.Reply) {
				if r.Completion.Status == lease.NextHint {
					b := in.view(c.Domain).Backlog
					r.Completion.Next = b[len(b)-1]
				}
			})},
		"the backlog is shown backwards": {by: random + "LongBacklog",
			call: after(func(_ *inner, _ model.Call, r *model.Reply) { slices.Reverse(r.View.Backlog) })},
		"the backlog drops what comes after 256": {by: "LongBacklog", call: before(step.Offer, func(in *inner, c *model.Call) {
			if b := in.view(c.Domain).Backlog; len(b) > 255 {
				c.Offset = b[0]
			}
		})},
		"Offer grants nothing but says it did": {by: random,
			call: after(func(in *inner, c model.Call, r *model.Reply) {
				if r.Status == lease.Enqueued && in.token(c.Domain) == 0 {
					r.Status = lease.Acquired
				}
			})},
		"Busy hands out the token": {by: random,
			call: after(func(in *inner, c model.Call, r *model.Reply) {
				if r.Acquisition.Status == lease.Busy {
					r.Acquisition.Lease = *in.view(c.Domain).Lease
				}
			})},
		"the outcome is not recorded": {by: random,
			call: after(func(_ *inner, c model.Call, r *model.Reply) {
				if errors.Is(r.Err, lease.ErrLeaseNotFound) {
					r.Err = &lease.LeaseNotFoundError{Domain: c.Domain, Got: c.Token}
				}
			})},
		"Compact does nothing": {by: random + "FloorsAreWhole", call: ignored(step.Compact)},
		"the floor goes down, it says": {by: "Machine",
			call: after(func(_ *inner, _ model.Call, r *model.Reply) {
				if errors.Is(r.Err, lease.ErrFloor) {
					r.Err = nil
				}
			})},
		"Compact misses a domain": {by: "CompactReachesEveryDomain", call: after(func(_ *inner, c model.Call, r *model.Reply) {
			if strings.HasSuffix(c.Domain, "129") {
				r.Acquisition.BelowFloor, r.View.Floor = false, math.MinInt64
			}
		})},
		"the view is no copy": {by: "InspectCopies", call: after(func(in *inner, c model.Call, r *model.Reply) {
			if old, ok := in.views[c.Domain]; ok && c.Op == 0 {
				r.View = old
			} else if c.Op == 0 {
				in.views[c.Domain] = r.View
			}
		})},
		"a done context is not looked at": {by: "DoneContextChangesNothing",
			call: func(ctx context.Context, in *inner, c model.Call) model.Reply {
				return c.Do(context.WithoutCancel(ctx), in)
			}},
		"no name is a name": {by: "EmptyDomain", call: renamed(func(s string) string { return s + "'" })},
		"names are folded":  {by: "DomainsAreBytes", call: renamed(strings.ToLower)},
		"names are trimmed": {by: "DomainsAreBytes", call: renamed(strings.TrimSpace)},
		"names end at a zero byte": {by: "DomainsAreBytes",
			call: renamed(func(s string) string { s, _, _ = strings.Cut(s, "\x00"); return s })},
		"names become valid UTF-8": {by: "DomainsAreBytes",
			call: renamed(func(s string) string { return strings.ToValidUTF8(s, "\ufffd") })},
		"names are normalised": {by: "DomainsAreBytes",
			call: renamed(func(s string) string { return strings.ReplaceAll(s, "e\u0301", "\u00e9") })},
		"names are cut at 1023 bytes": {by: "DomainsAreBytes",
			call: renamed(func(s string) string { return s[:min(len(s), 1023)] })},
		"names are subjects": {by: "DomainsAreBytes",
			call: renamed(strings.NewReplacer("/", ".", " ", "_", "*", "_", ">", "_").Replace)},
		"an offset is cut to 32 bits": {by: "OffsetsAreWhole FloorsAreWhole",
			call: numbered(func(o int64) int64 { return int64(int32(o)) })},
		"an offset passes through a float": {by: "OffsetsAreWhole FloorsAreWhole",
			call: numbered(func(o int64) int64 { return int64(float64(o)) })},
		"the least offset is none": {by: "OffsetsAreWhole FloorsAreWhole",
			call: numbered(func(o int64) int64 { return max(o, math.MinInt64+1) })},
		"Ready yields what is held":         {by: "Machine ReadyAndHeld", walk: "Ready yields what is held"},
		"Held misses leases with a backlog": {by: "Machine ReadyAndHeld", walk: "Held misses leases with a backlog"},
		"Held yields under its lock":        {by: "HeldBodyReclaimsAndFails", walk: "Held yields under its lock"},
		"Ready yields under its lock":       {by: "ReadyAndHeld", walk: "Ready yields under its lock"},
	}
	for _, walk := range []string{"Held ", "Ready "} {
		for what, by := range map[string]string{
			"yields a page only": "HeldBodyReclaimsAndFails", "yields the end of a page again": "HeldBodyReclaimsAndFails",
			"goes on after a break": "WalksStopAtBreak", "stays locked after a break": "WalksStopAtBreak",
			"does not notice that it is cancelled":    "WalksEndWhenCancelled",
			"goes on after its error":                 "WalksEndWhenCancelled WalksWithADoneContext",
			"ends in silence":                         "WalksEndWhenCancelled WalksWithADoneContext",
			"of nothing does not look at the context": "WalksWithADoneContext",
		} {
			all[walk+what] = broken{by: by, walk: walk + what}
		}
	}
	return all
}

func (in *inner) Held(ctx context.Context) iter.Seq2[lease.Lease, error] {
	var all []lease.Lease
	for l := range in.Ledger.Held(context.Background()) {
		if in.walk != "Held misses leases with a backlog" || len(in.view(l.Domain).Backlog) == 0 {
			all = append(all, l)
		}
	}
	return walk(ctx, in, "Held", all)
}

func (in *inner) Ready(ctx context.Context) iter.Seq2[lease.Head, error] {
	var all []lease.Head
	for h := range in.Ledger.Ready(context.Background()) {
		all = append(all, h)
	}
	if in.walk == "Ready yields what is held" {
		for l := range in.Ledger.Held(context.Background()) {
			all = append(all, lease.Head{Domain: l.Domain, Offset: l.Offset})
		}
	}
	return walk(ctx, in, "Ready", all)
}

func walk[T any](ctx context.Context, in *inner, name string, items []T) iter.Seq2[T, error] {
	broken := func(fault string) bool { return in.walk == name+" "+fault }
	return func(yield func(T, error) bool) {
		switch {
		case broken("yields a page only"):
			items = items[:min(len(items), 100)]
		case broken("yields the end of a page again") && len(items) > 100:
			items = slices.Insert(items, 100, items[99])
		case broken("yields under its lock"):
			in.mu.Lock()
			defer in.mu.Unlock()
		case broken("of nothing does not look at the context") && len(items) == 0:
			return
		}
		for i := 0; ; i++ {
			if err := ctx.Err(); err != nil && (i == 0 || !broken("does not notice that it is cancelled")) {
				var none T
				if broken("ends in silence") || !yield(none, err) || !broken("goes on after its error") {
					return
				}
			}
			if i >= len(items) {
				return
			}
			if !yield(items[i], nil) {
				if broken("stays locked after a break") {
					in.mu.Lock()
				}
				if !broken("goes on after a break") {
					return
				}
			}
		}
	}
}

func TestTheSuiteHasTeeth(t *testing.T) {
	witness.Quiet(t)
	without := map[string]bool{}
	for _, c := range checks() {
		without[c.name] = true
	}
	all := faults()
	for _, b := range all {
		for name := range strings.FieldsSeq(b.by) {
			delete(without, name)
		}
	}
	if len(without) > 0 {
		t.Errorf("no fault for %v", slices.Sorted(maps.Keys(without)))
	}
	for name, b := range all {
		t.Run(name, func(t *testing.T) {
			for by := range strings.FieldsSeq(b.by) {
				i := slices.IndexFunc(checks(), func(c check) bool { return c.name == by })
				if i < 0 {
					t.Fatalf("there is no check %s", by)
				}
				text := ""
				for tries := 0; text == "" && tries < 30; tries++ { // chance may spare it, with -short more often than not
					text = witness.Watch(t, func(t testing.TB) { checks()[i].run(t, b.open) })
				}
				if text == "" {
					t.Errorf("%s does not notice", by)
				}
			}
		})
	}
}

// A fault of nothing passes, so that what is noticed is the fault.
func TestTheSuiteLetsTheSoundPass(t *testing.T) {
	Run(t, broken{}.open)
}
