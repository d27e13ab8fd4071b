// SPDX-License-Identifier: Apache-2.0

package leasenats_test

// Under load, with lost replies, a restarted server and a stopped leader, no record is lost or done twice.

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/internal/testkit/ownertest"
	"github.com/stopbank/stopbank/lease/leasenats"
)

// work processes each domain in one goroutine, which uses a random ledger for each call, as if the partition's owner moved
// between processes. The goroutine checks that no record is lost, repeated or out of order.
type work struct {
	t         *testing.T
	ledgers   []lease.Ledger
	offsets   int
	finished  atomic.Int64 // offsets
	failed    atomic.Int64 // calls that were repeated after an error of the store
	ambiguous atomic.Int64
}

func (w *work) domain(name string, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 0))
	ledger := func() lease.Ledger { return w.ledgers[rnd.IntN(len(w.ledgers))] }
	// call repeats f until it was applied, or may have been.
	call := func(do func(lease.Ledger) error) (unknown bool) {
		for deadline := time.Now().Add(2 * time.Minute); ; {
			err := do(ledger())
			switch {
			case err == nil:
				return false
			case errors.Is(err, durable.ErrAmbiguous):
				w.ambiguous.Add(1)
				return true
			case !errors.Is(err, durable.ErrStore):
				w.t.Errorf("%s: %v", name, err)
				return false
			case time.Now().After(deadline):
				w.t.Errorf("%s: no end of errors: %v", name, err)
				return false
			}
			w.failed.Add(1)
		}
	}
	for offset := range int64(w.offsets) {
		for call(func(l lease.Ledger) error { _, err := l.Offer(ctx, name, offset); return err }) {
		}
	}
	var last lease.Token
	for want := int64(0); want < int64(w.offsets) && !w.t.Failed(); want++ {
		var held lease.Lease
		if call(func(l lease.Ledger) error {
			a, err := l.AcquireNext(ctx, name)
			held = a.Lease
			if err == nil && a.Status != lease.Acquired {
				err = fmt.Errorf("AcquireNext: %v", a.Status)
			}
			return err
		}) {
			// The call may have been applied. No other goroutine uses this domain, so a lease is this one's.
			for held.Token == 0 && !w.t.Failed() {
				call(func(l lease.Ledger) error {
					a, err := l.AcquireNext(ctx, name)
					if a.Status == lease.Busy {
						var v lease.View
						if v, err = l.Inspect(ctx, name); err == nil && v.Lease != nil {
							held = *v.Lease
						}
						return err
					}
					held = a.Lease
					return err
				})
			}
		}
		if held.Offset != want || held.Token <= last {
			w.t.Errorf("%s: %+v, want offset %d and a token above %d", name, held, want, last)
			return
		}
		last = held.Token
		// After an unknown outcome, a repeated Succeed reports that the first one was applied.
		unknown := false
		for done := false; !done && !w.t.Failed(); {
			again := call(func(l lease.Ledger) error {
				_, err := l.Succeed(ctx, name, held.Token)
				var none *lease.LeaseNotFoundError
				if unknown && errors.As(err, &none) && none.Status == lease.AlreadyProcessed {
					return nil
				}
				return err
			})
			unknown = unknown || again
			done = !again
		}
		w.finished.Add(1)
	}
}

// run processes all domains, and calls disturb while it does.
func (w *work) run(domains int, disturb func(progress func(part float64))) {
	w.t.Helper()
	var group sync.WaitGroup
	for i := range domains {
		group.Go(func() { w.domain(fmt.Sprintf("domain %d", i), uint64(i)) })
	}
	total := int64(domains * w.offsets)
	disturb(func(part float64) {
		eventually(w.t, "progress", func() bool { return float64(w.finished.Load()) >= part*float64(total) || w.t.Failed() })
	})
	group.Wait()
	if got := w.finished.Load(); got != total {
		w.t.Fatalf("%d of %d", got, total)
	}
	for i := range domains {
		name := fmt.Sprintf("domain %d", i)
		v, err := w.ledgers[0].Inspect(ctx, name)
		if err != nil || v.Processed != w.offsets || v.Lease != nil || len(v.Backlog) != 0 {
			w.t.Errorf("%s: %+v, %v", name, v, err)
		}
	}
	w.t.Logf("%d offsets, each once and in order; %d calls refused, %d ambiguous", total, w.failed.Load(), w.ambiguous.Load())
}

// A restarted server has every write that it acknowledged.
func TestServerRestart(t *testing.T) {
	dir := t.TempDir()
	s := single(t, dir, 0)
	at, url := port(t, s), s.ClientURL()
	w := &work{t: t, offsets: 40}
	for range 3 {
		store := openStore(t, leasenats.WithTimeout(leasenats.StoreConfig{Conn: connect(t, url), Bucket: "b"}, 500*time.Millisecond))
		w.ledgers = append(w.ledgers, open(t, store, lease.Config{}))
	}
	w.run(8, func(progress func(float64)) {
		for _, part := range []float64{0.2, 0.5, 0.8} {
			progress(part)
			stop(s)
			s = single(t, dir, at)
		}
	})
}

// In a cluster of three servers, the stream's leader is stopped and started again, twice.
func TestLeaderLoss(t *testing.T) {
	n := cluster(t)
	var urls []string
	for _, s := range n.servers {
		urls = append(urls, s.ClientURL())
	}
	w := &work{t: t, offsets: 40}
	if thorough() {
		w.offsets = 400
	}
	var js jetstream.JetStream
	for range 3 {
		nc := connect(t, strings.Join(urls, ","))
		store := openStore(t, leasenats.WithTimeout(leasenats.StoreConfig{Conn: nc, Bucket: "b", Replicas: 3}, time.Second))
		w.ledgers = append(w.ledgers, open(t, store, lease.Config{}))
		var err error
		if js, err = jetstream.New(nc); err != nil {
			t.Fatal(err)
		}
	}
	w.run(6, func(progress func(float64)) {
		for _, part := range []float64{0.2, 0.6} {
			progress(part)
			leader := ""
			eventually(t, "a leader of the stream", func() bool {
				stream, err := js.Stream(ctx, "KV_b")
				if err != nil || stream.CachedInfo().Cluster == nil {
					return false
				}
				leader = stream.CachedInfo().Cluster.Leader
				return leader != ""
			})
			i := slices.IndexFunc(n.servers, func(s *server.Server) bool { return s.Name() == leader })
			if i < 0 {
				t.Fatalf("no server is called %q", leader)
			}
			stop(n.servers[i])
			t.Log("a leader is gone")
			progress(part + 0.1) // without it
			n.start(t, i)
			eventually(t, "three replicas again", func() bool {
				stream, err := js.Stream(ctx, "KV_b")
				if err != nil || stream.CachedInfo().Cluster == nil || len(stream.CachedInfo().Cluster.Replicas) != 2 {
					return false
				}
				for _, r := range stream.CachedInfo().Cluster.Replicas {
					if !r.Current {
						return false
					}
				}
				return true
			})
		}
	})
}

func TestLostReply(t *testing.T) {
	s, line := single(t, t.TempDir(), 0), ownertest.NewLine(t)
	opens := func(nc *nats.Conn) durable.Store {
		return openStore(t, leasenats.WithTimeout(leasenats.StoreConfig{Conn: nc, Bucket: "b"}, time.Second))
	}
	far := connect(t, s.ClientURL(), nats.SetCustomDialer(joining{line: line}))
	ownertest.LostReply(t, opens(connect(t, s.ClientURL())), opens(far), line)
}
