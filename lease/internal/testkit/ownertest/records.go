// SPDX-License-Identifier: Apache-2.0

// Consumers that process records while members join and leave, with a count of the effects downstream.

package ownertest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stopbank/stopbank/lease/dispatch"
)

var errFenced = errors.New("ownertest: a greater token was there before")

// consumer is a running Consumer. Its Ownership is the member's, and it records the partitions handed out.
type consumer struct {
	Member
	name   string
	cancel context.CancelFunc
	ended  chan struct{}
	err    error

	mu   sync.Mutex // guards all below
	held map[string]dispatch.Partition
	ctx  map[string]context.Context
	gone map[string]dispatch.Partition // work has returned
}

func (c *consumer) Hold(ctx context.Context, work func(context.Context, dispatch.Partition)) error {
	return c.Member.Hold(ctx, func(ctx context.Context, p dispatch.Partition) {
		c.mu.Lock()
		c.held[p.Name], c.ctx[p.Name] = p, ctx
		c.mu.Unlock()
		work(ctx, p)
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.held, p.Name)
		c.gone[p.Name] = p
	})
}

func (c *consumer) names() (names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.held {
		if c.ctx[name].Err() == nil {
			names = append(names, name)
		}
	}
	return names
}

// audit is shared by the consumers of one group: what they have to do, and what they have done.
type audit struct {
	testing.TB
	*account
	group     Group
	consumers []*consumer
	wanted    int
}

func newAudit(t testing.TB, open Open, partitions int) *audit {
	t.Helper()
	a := &audit{TB: t, account: newAccount(), group: open(t, partitions)}
	t.Cleanup(func() {
		for _, c := range a.consumers {
			c.Mend()
			c.cancel()
		}
		for _, c := range a.consumers {
			a.ends(c)
		}
	})
	return a
}

// append writes n records of some domains to each partition.
func (a *audit) append(n, domains int) {
	for _, p := range a.group.Partitions {
		for range n {
			domain := "k" + strconv.Itoa(a.wanted%domains)
			payload := strconv.Itoa(a.wanted)
			a.wanted++
			a.writes(p, domain, payload, "", 0)
			a.group.Append(p, domain, []byte(payload))
		}
	}
}

// count returns how many records have had their effect.
func (a *audit) count() int {
	undone, _ := a.open()
	return a.wanted - undone
}

// enter starts a Consumer with a member. before, unless nil, is called before every effect; its error prevents the effect.
func (a *audit) enter(m Member, before func(job dispatch.Job) error) *consumer {
	a.Helper()
	c := &consumer{
		Member: m, name: fmt.Sprint("consumer ", len(a.consumers)), ended: make(chan struct{}),
		held: map[string]dispatch.Partition{}, ctx: map[string]context.Context{}, gone: map[string]dispatch.Partition{},
	}
	d, err := dispatch.NewConsumer(c, dispatch.Config{
		MaxInFlight: 8, MaxBuffered: 64, Backoff: 10 * time.Millisecond, CommitEvery: 20 * time.Millisecond,
		Grace: 50 * time.Millisecond, DrainTimeout: patience,
		Handler: func(_ context.Context, job dispatch.Job) error {
			if before != nil {
				if err := before(job); err != nil {
					return err
				}
			}
			time.Sleep(time.Millisecond) // so that something is in progress when the fault happens
			if a.attempt(c.name, string(job.Record.Payload), job.Lease.Token) == sayFenced {
				return errFenced
			}
			return nil
		},
		DeadLetter: func(_ context.Context, letter dispatch.DeadLetter) error {
			a.Errorf("%s was given up after %d retries: %v", letter.Record.Payload, letter.Lease.RetryCount, letter.Err)
			return nil
		},
	})
	if err != nil {
		a.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	a.consumers = append(a.consumers, c)
	go func() {
		defer close(c.ended)
		c.err = d.Run(ctx)
	}()
	return c
}

// ends waits for the end of a consumer's Run.
func (a *audit) ends(c *consumer) {
	a.Helper()
	select {
	case <-c.ended:
		if c.err != nil && !errors.Is(c.err, dispatch.ErrDrain) {
			a.Errorf("Run: %v", c.err)
		}
	case <-time.After(2 * patience):
		a.Error("Run does not return")
	}
}

func (a *audit) eventually(what string, so func() bool) {
	a.Helper()
	if poll(so) {
		return
	}
	held := make([][]string, len(a.consumers))
	for i, c := range a.consumers {
		held[i] = c.names()
	}
	a.Fatalf("never: %s; %d effects of %d; the consumers hold %q", what, a.count(), a.wanted, held)
}

// check waits until all records are done, each once and in the order of its domain.
func (a *audit) check() {
	a.Helper()
	a.eventually("everything is done", func() bool { return a.count() == a.wanted })
	if _, violations := a.open(); violations > 0 {
		a.Error(a.report())
	}
}

// records: whatever happens to the members, every record has its effect once, in the order of its domain.
func records(t testing.TB, open Open) {
	a := newAudit(t, open, 4)
	a.append(150, 12)
	first := a.enter(a.group.Join(), nil)
	a.eventually("a beginning", func() bool { return a.count() > 50 })
	second := a.enter(a.group.Join(), nil)
	a.eventually("the second one works", func() bool { return len(second.names()) > 0 })
	a.eventually("a quarter", func() bool { return a.count() > a.wanted/4 })
	first.Cut()
	third := a.enter(a.group.Join(), nil)
	a.eventually("the third one works", func() bool { return len(third.names()) > 0 })
	a.eventually("a half", func() bool { return a.count() > a.wanted/2 })
	first.Mend()
	second.cancel()
	a.ends(second)
	a.eventually("the first one is back", func() bool { return len(first.names()) > 0 })
	third.Cut()
	third.cancel() // never mended
	a.check()
}

// zombie: a member that was cut off in the middle of a handler returns and continues. The token fences its effect, and the Source
// rejects its commit.
func zombie(t testing.TB, open Open) {
	a := newAudit(t, open, 2)
	a.append(40, 4)
	hang, hangs := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var seventh dispatch.Job
	var release sync.Once
	t.Cleanup(func() { release.Do(func() { close(hang) }) })
	old := a.enter(a.group.Join(), func(job dispatch.Job) error {
		mine := false
		if string(job.Record.Payload) == "7" {
			once.Do(func() { mine = true })
		}
		if mine {
			seventh = job
			close(hangs)
			<-hang
		}
		return nil
	})
	a.eventually("a handler that hangs", func() bool {
		select {
		case <-hangs:
			return true
		default:
			return false
		}
	})
	partition := a.group.Partitions[0] // has the first 40 records
	old.mu.Lock()
	held := old.held[partition]
	old.mu.Unlock()
	old.Cut()
	a.enter(a.group.Join(), nil)
	a.eventually("everything is done without it", func() bool { return a.count() == a.wanted })
	old.Mend()
	release.Do(func() { close(hang) })
	a.eventually("the old one has given the partition up", func() bool {
		old.mu.Lock()
		defer old.mu.Unlock()
		_, gone := old.gone[partition]
		return gone
	})
	a.mu.Lock()
	if a.refused == 0 {
		t.Error("the register took a write of the old owner")
	}
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if c, err := held.Ledger.Succeed(ctx, seventh.Lease.Domain, seventh.Lease.Token); err == nil {
		t.Errorf("the ledger took what the old owner completed: %+v", c)
	}
	if err := held.Source.Commit(ctx, seventh.Record.Offset); !errors.Is(err, dispatch.ErrLost) {
		t.Errorf("Commit of the old owner: %v, want ErrLost", err)
	}
	a.check()
}
