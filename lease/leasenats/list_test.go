// SPDX-License-Identifier: Apache-2.0

package leasenats_test

// List returns the right names, whatever listing was saved and whatever happened to it.

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/leasenats"
)

func namesOn(ctx context.Context, s durable.Store, index durable.Index) ([]string, error) {
	var names []string
	for name, err := range s.List(ctx, index) {
		if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

// Two Stores write, list and save listings, while the saved listing is deleted, or replaced by an earlier one, by another
// bucket's or by nonsense. Each List returns the same as without.
func TestPropertyListIsTheShelves(t *testing.T) {
	nc := connect(t, single(t, t.TempDir(), 0).ClientURL())
	js := must(jetstream.New(nc))(t)
	var ledgers, read int
	rapid.Check(t, func(t *rapid.T) {
		ledgers++
		cfg := leasenats.StoreConfig{Conn: nc, Bucket: "b", Name: fmt.Sprint("n", ledgers)}
		stores := make([]durable.Store, 2)
		for i := range stores {
			s := must(leasenats.OpenStore(ctx, cfg))(t)
			stores[i] = leasenats.ListAgain(s, rapid.IntRange(0, 4).Draw(t, "again"))
		}
		store := func() durable.Store { return stores[rapid.IntRange(0, 1).Draw(t, "store")] }
		subject := leasenats.Listing(stores[0])
		stream := must(js.Stream(ctx, "KV_b"))(t)
		listing := func() []byte {
			m, err := stream.GetLastMsgForSubject(ctx, subject)
			if err != nil {
				return nil
			}
			return m.Data
		}
		put := func(m *nats.Msg) {
			must(js.PublishMsg(ctx, m))(t)
		}
		shelf, versions, earlier := map[string]durable.Index{}, map[string]uint64{}, []byte(nil)
		t.Repeat(map[string]func(*rapid.T){
			"swap": func(t *rapid.T) {
				name := rapid.SampledFrom([]string{"a", "b", "c.d", "e", strings.Repeat("long", 50)}).Draw(t, "name")
				index := durable.Index(rapid.IntRange(0, 2).Draw(t, "index"))
				version := must(store().Swap(ctx, name, versions[name], []byte("x"), index))(t)
				shelf[name], versions[name] = index, version
			},
			"list": func(t *rapid.T) {
				index := rapid.SampledFrom([]durable.Index{durable.Ready, durable.Held}).Draw(t, "shelf")
				if listing() != nil {
					read++
				}
				got, err := namesOn(ctx, store(), index)
				var want []string
				for name, at := range shelf {
					if at == index {
						want = append(want, name)
					}
				}
				if slices.Sort(want); err != nil || !slices.Equal(got, want) {
					t.Fatalf("%v: %q, %v, want %q", index, got, err, want)
				}
			},
			"keep": func(*rapid.T) { earlier = listing() },
			"tamper": func(t *rapid.T) {
				m := nats.NewMsg(subject)
				switch rapid.IntRange(0, 4).Draw(t, "how") {
				case 0:
					m.Header.Set("KV-Operation", "DEL")
				case 1:
					m.Data = []byte("{nonsense")
				case 2:
					m.Data = []byte(`{"Created":"2026-01-01T00:00:00Z","Sequence":1000000,"Ready":["d.a","d.never"],"Held":["d.b"]}`)
				case 3:
					m.Data = earlier
				default:
					noError(t, stream.Purge(ctx, jetstream.WithPurgeSubject(subject)))
					return
				}
				put(m)
			},
		})
	})
	if t.Logf("%d Lists began with what another had found", read); read == 0 {
		t.Error("nothing was written down")
	}
}

// After one List of many domains the next ones, also of other processes, read only what has changed.
func TestListCostsWhatHasChanged(t *testing.T) {
	const idle = 3000
	nc := connect(t, single(t, t.TempDir(), 0).ClientURL())
	cfg := leasenats.StoreConfig{Conn: nc, Bucket: "b"}
	s := openStore(t, cfg)
	var group sync.WaitGroup
	for part := range 50 {
		group.Go(func() {
			for i := part; i < idle; i += 50 {
				if _, err := s.Swap(ctx, fmt.Sprint("idle", i), 0, []byte("x"), durable.Neither); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	list := func(s durable.Store, want ...string) (messages uint64) {
		t.Helper()
		before := nc.Stats().InMsgs
		got, err := namesOn(ctx, s, durable.Ready)
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("%q, %v, want %q", got, err, want)
		}
		return nc.Stats().InMsgs - before
	}
	if n := list(s); n < idle {
		t.Errorf("the first List took %d messages", n)
	}
	later := openStore(t, cfg)
	if n := list(later); n > 10 {
		t.Errorf("a List after no change took %d messages", n)
	}
	for i := range 20 {
		must(s.Swap(ctx, fmt.Sprint("new", i), 0, []byte("x"), durable.Index(i/19)))(t)
	}
	if n := list(later, "new19"); n > 40 {
		t.Errorf("a List after 20 changes took %d messages", n)
	}
}

// A name that stays ready or held is in every List, while others change and all Lists save their listings.
func TestListBesideWriters(t *testing.T) {
	nc := connect(t, single(t, t.TempDir(), 0).ClientURL())
	cfg := leasenats.StoreConfig{Conn: nc, Bucket: "b"}
	s := leasenats.ListAgain(openStore(t, cfg), 3)
	stays := []string{"s0", "s1", "s2", "s3"}
	for _, name := range stays {
		must(s.Swap(ctx, name, 0, []byte("x"), durable.Held))(t)
	}
	var done atomic.Bool
	var writers, listers sync.WaitGroup
	for w := range 3 {
		writers.Go(func() {
			versions := map[string]uint64{}
			for i := 0; !done.Load(); i++ {
				name, index := fmt.Sprint("w", w, "-", i%5), durable.Index(i%3)
				if i%7 == 0 { // one of those that keep their index; each has one writer
					name, index = stays[w], durable.Held
					if versions[name] == 0 {
						_, versions[name], _ = s.Load(ctx, name)
					}
				}
				version, err := s.Swap(ctx, name, versions[name], []byte("x"), index)
				if err != nil {
					t.Error(err)
					return
				}
				versions[name] = version
			}
		})
	}
	for range 2 {
		store := leasenats.ListAgain(openStore(t, cfg), 3)
		listers.Go(func() {
			for range 60 {
				got, err := namesOn(ctx, store, durable.Held)
				if err != nil {
					t.Error(err)
					return
				}
				for _, name := range stays {
					if !slices.Contains(got, name) {
						t.Errorf("%s is not in %q", name, got)
					}
				}
				if len(slices.Compact(slices.Clone(got))) != len(got) {
					t.Errorf("twice: %q", got)
				}
			}
		})
	}
	listers.Wait()
	done.Store(true)
	writers.Wait()
}
