// SPDX-License-Identifier: Apache-2.0

// A round: a ledger of its own, its waiting offsets, the workers' journal, and the verdict.

package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
)

type round struct {
	testing.TB
	server     Server
	ledger     string
	rnd        *rand.Rand
	maxRetries int
	control    Side         // connections of the test
	keeper     lease.Ledger // over control

	mu      sync.Mutex // guards journal
	journal []note

	arrived map[string][]int64 // offered offsets by domain, in order
	poison  *Entry             // record that kills its worker and must be given up
	strict  bool               // no lease is lost in this round, so no offset may be handled twice
	faults  int
}

func (r *round) hear(n note) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.journal = append(r.journal, n)
}

// heard counts the notes of a kind.
func (r *round) heard(what string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range r.journal {
		if h.What == what {
			n++
		}
	}
	return n
}

// play runs one scenario and checks its result.
func (r *round) play(s scenario) counts {
	r.Helper()
	ctx := r.Context()
	var err error
	if r.control, err = r.server.Open(ctx, r.server.Address, r.ledger); err != nil {
		r.Fatal(err)
	}
	defer r.control.Close()
	r.maxRetries, r.arrived = 20, map[string][]int64{}
	if r.keeper, err = durable.New(durable.Config{Store: r.control.Store, MaxRetries: r.maxRetries}); err != nil {
		r.Fatal(err)
	}
	s.play(r)
	if r.faults == 0 {
		r.Error("no fault came about")
	}
	var entries []Entry
	if err := again(ctx, func() (err error) { entries, err = r.control.Register.Entries(ctx); return err }); err != nil {
		r.Fatal(err)
	}
	c, findings := judge(entries, r.journal, r.arrived, r.poison, r.strict)
	c.add(r.look(ctx, &findings))
	for _, f := range findings {
		r.Error(f)
	}
	c[rounds], c[faulted] = 1, r.faults
	return c
}

// offer offers n offsets to each of the domains, in random order.
func (r *round) offer(n int, domains ...string) {
	r.Helper()
	for _, domain := range domains {
		for _, i := range r.rnd.Perm(n) {
			offset := int64(len(r.arrived[domain])/n*n + i)
			err := insist(r.Context(), func() error { _, err := r.keeper.Offer(r.Context(), domain, offset); return err })
			if err != nil {
				r.Fatalf("Offer: %v", err)
			}
			r.arrived[domain] = append(r.arrived[domain], offset)
		}
	}
}

// look reads the state of every offset from the ledger.
func (r *round) look(ctx context.Context, findings *[]string) (c counts) {
	found := func(n *int, format string, args ...any) {
		*n++
		*findings = append(*findings, fmt.Sprintf(format, args...))
	}
	for domain, offsets := range r.arrived {
		c[offered] += len(offsets)
		var v lease.View
		if err := insist(ctx, func() (err error) { v, err = r.keeper.Inspect(ctx, domain); return err }); err != nil {
			r.Fatal(err)
		}
		if v.Lease != nil || len(v.Backlog) > 0 || v.Processed+v.Failed != len(offsets) {
			found(&c[lost], "lost: %s is left with %+v, of %d offsets", domain, v, len(offsets))
			continue
		}
		for _, offset := range offsets {
			a, err := r.keeper.TryAcquire(ctx, domain, offset)
			want := lease.AlreadyProcessed
			if r.poison != nil && *r.poison == (Entry{Domain: domain, Offset: offset}) {
				want = lease.AlreadyFailed
			}
			if err != nil || a.Status != want {
				found(&c[lost], "lost: %s, %d is %v (%v), want %v", domain, offset, a.Status, err, want)
			}
		}
	}
	return c
}

// judge compares the register and the workers' journal with the offered offsets.
func judge(entries []Entry, journal []note, arrived map[string][]int64, poison *Entry,
	strict bool) (c counts, findings []string) {
	found := func(n *int, format string, args ...any) {
		*n++
		findings = append(findings, fmt.Sprintf(format, args...))
	}
	type place struct {
		domain string
		offset int64
	}
	done := map[place]lease.Token{}
	holders := map[lease.Token]place{}
	for _, n := range journal {
		at := place{n.Domain, n.Offset}
		switch n.What {
		case "violation":
			found(&c[otherViolation], "a worker: %s", n.Text)
		case "refused":
			c[refused]++
		case "fenced":
			c[fenced]++
		case "holding":
			if other, twice := holders[n.Token]; twice {
				found(&c[otherViolation], "token %d was granted twice: %v and %v", n.Token, other, at)
			}
			holders[n.Token] = at
		case "done":
			if before, twice := done[at]; twice {
				found(&c[doubled], "doubled: %v was completed under the tokens %d and %d", at, before, n.Token)
			}
			done[at] = n.Token
		}
	}

	shown := map[string][]Entry{}
	for _, e := range entries {
		shown[e.Domain] = append(shown[e.Domain], e)
	}
	for domain := range shown {
		if _, ok := arrived[domain]; !ok {
			found(&c[otherViolation], "the register has %q, in which nothing arrived", domain)
		}
	}
	for domain, offsets := range arrived {
		var order []int64 // handled offsets, without repetitions
		var last lease.Token
		for _, e := range shown[domain] {
			if e.Token <= last {
				found(&c[otherViolation], "%s: token %d after %d in the register", domain, e.Token, last)
			}
			last = e.Token
			if token, ended := done[place{domain, e.Offset}]; ended && e.Token > token {
				found(&c[doubled], "doubled: %s, %d under token %d, completed under %d before", domain, e.Offset, e.Token, token)
			}
			if n := len(order); n > 0 && order[n-1] == e.Offset {
				c[redone]++
				if strict {
					found(&c[doubled], "doubled: %s, %d, and nobody had lost it", domain, e.Offset)
				}
				continue
			}
			if slices.Contains(order, e.Offset) {
				found(&c[doubled], "doubled: %s, %d came back under token %d", domain, e.Offset, e.Token)
			}
			order = append(order, e.Offset)
		}
		want := slices.DeleteFunc(slices.Clone(offsets), func(o int64) bool {
			return poison != nil && *poison == (Entry{Domain: domain, Offset: o})
		})
		for _, offset := range want {
			if !slices.Contains(order, offset) {
				found(&c[lost], "lost: %s, %d is not in the register", domain, offset)
			}
		}
		if len(order) == len(want) && !slices.Equal(order, want) {
			found(&c[otherViolation], "%s: carried out as %v, arrived as %v", domain, order, want)
		}
	}
	return c, findings
}
