// SPDX-License-Identifier: Apache-2.0

// A store for another engine: four calls over a key-value service with compare-and-swap.

package durable_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/stopbank/stopbank/lease/durable"
)

// service stands for etcd, Consul, a table: each key has a revision, which rises with every write.
type service struct {
	mu       sync.Mutex
	revision uint64
	values   map[string]value
}

type value struct {
	bytes    []byte
	revision uint64
}

func (s *service) get(key string) value {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.values[key]
}

// swap writes only over the revision old, 0 for none.
func (s *service) swap(key string, b []byte, old uint64) (revision uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.values[key].revision != old {
		return 0, false
	}
	s.revision++
	s.values[key] = value{b, s.revision}
	return s.revision, true
}

func (s *service) keys() (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.values {
		all = append(all, key)
	}
	return all
}

// serviceStore keeps a ledger in a service. The first byte of a value is the record's index, so that one write sets both.
type serviceStore struct {
	service *service
	prefix  string // of this ledger's keys
}

func (s serviceStore) Load(ctx context.Context, name string) (state []byte, version uint64, err error) {
	v := s.service.get(s.prefix + name)
	if v.revision == 0 {
		return nil, 0, ctx.Err()
	}
	return slices.Clone(v.bytes[1:]), v.revision, ctx.Err()
}

func (s serviceStore) Swap(ctx context.Context, name string, old uint64, state []byte,
	index durable.Index) (version uint64, err error) {
	if err := ctx.Err(); err != nil { // not sent; any error of a request that was sent is returned as it is
		return 0, fmt.Errorf("%w: %w", durable.ErrNotApplied, err)
	}
	version, ok := s.service.swap(s.prefix+name, append([]byte{byte(index)}, state...), old)
	if !ok {
		return 0, fmt.Errorf("%w: %q is not at revision %d", durable.ErrConflict, name, old)
	}
	return version, nil
}

func (serviceStore) Limit(string) int { return 0 }

func (s serviceStore) List(ctx context.Context, index durable.Index) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, key := range s.service.keys() {
			name, ours := strings.CutPrefix(key, s.prefix)
			if !ours || durable.Index(s.service.get(key).bytes[0]) != index {
				continue
			}
			if err := ctx.Err(); err != nil {
				yield("", err)
				return
			}
			if !yield(name, nil) {
				return
			}
		}
	}
}

// leasetest.Run over durable.New holds such a store to the contract.
func Example_store() {
	ctx := context.Background()
	store := serviceStore{service: &service{values: map[string]value{}}, prefix: "ledgers/orders/"}
	ledger, err := durable.New(durable.Config{Store: store, MaxRetries: 3})
	if err != nil {
		fmt.Println(err)
		return
	}
	held, err := ledger.TryAcquire(ctx, "order-17", 1)
	fmt.Println(held.Status, err)
	for l, err := range ledger.Held(ctx) {
		fmt.Println(l.Domain, l.Offset, err)
	}
	// Output:
	// ACQUIRED <nil>
	// order-17 1 <nil>
}
