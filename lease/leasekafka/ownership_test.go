// SPDX-License-Identifier: Apache-2.0

package leasekafka_test

// A Group passes the suite of dispatch.Ownership, and its torture.

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/internal/testkit/ownertest"
	"github.com/stopbank/stopbank/lease/leasekafka"
)

func TestOwnership(t *testing.T) {
	ownertest.RunIn(t, virtually, group)
}

func TestTortureOwners(t *testing.T) {
	t.Parallel() // with TestPropertyLetters, which waits
	ownertest.TortureIn(t, virtually, group)
}

// Outside of virtual time the network can be late, and large records slow (L20).
func TestTortureOwnersOnLoopback(t *testing.T) {
	if long, _ := ownertest.Budget(); long == 0 || configured() != nil {
		t.Skip("needs a minute and -torture.time; with KAFKA_BROKERS it is TestTortureOwners")
	}
	ownertest.Torture(t, func(t testing.TB, partitions int) ownertest.Group {
		return onLoopback(t, int32(partitions)).group(t, time.Second, false)
	})
}

// With ledgers in memory the contract is the same: tokens rise from owner to owner, and records that the previous owner had done
// but not committed are done again under a greater one.
func TestOwnershipInMemory(t *testing.T) {
	ownertest.RunIn(t, virtually, groupInMemory)
}

func TestTortureOwnersInMemory(t *testing.T) {
	t.Parallel()
	ownertest.TortureIn(t, virtually, groupInMemory)
}

// distant is a store at the other end of a line.
type distant struct {
	durable.Store
	line *ownertest.Line
}

func (d distant) Load(ctx context.Context, name string) ([]byte, uint64, error) {
	d.line.Wait()
	defer d.line.Wait()
	return d.Store.Load(ctx, name)
}

func (d distant) Swap(ctx context.Context, name string, old uint64, state []byte, index durable.Index) (uint64, error) {
	d.line.Wait()
	defer d.line.Wait()
	return d.Store.Swap(ctx, name, old, state, index)
}

// group is an ownertest.Group on a topic of its own.
func group(t testing.TB, partitions int) ownertest.Group {
	return start(t, int32(partitions)).group(t, 500*time.Millisecond, false)
}

func groupInMemory(t testing.TB, partitions int) ownertest.Group {
	return start(t, int32(partitions)).group(t, 500*time.Millisecond, true)
}

func (k *kafka) group(t testing.TB, session time.Duration, inMemory bool) ownertest.Group {
	written := make([]int64, k.partitions)
	cfg := k.config()
	cfg.DrainTimeout = time.Second // what a torture's members have
	cfg.RebalanceTimeout = 3 * time.Second
	ended := func(string) {}
	if k.Cluster != nil {
		cfg.Session = session
		ended = k.removeGhosts(t, session)
	}
	members := 0
	g := ownertest.Group{
		Lease: cfg.Session,
		// which a rebalance waits for a member that does not answer; a ghost stays two sessions
		HandOver: 4*cfg.Session + cfg.RebalanceTimeout,
		Append: func(partition, domain string, payload []byte) {
			number := must(strconv.Atoi(partition[strings.LastIndexByte(partition, '/')+1:]))(t)
			k.produce(t, &kgo.Record{Key: []byte(domain), Value: payload, Partition: int32(number)})
			written[number]++
		},
	}
	for i := range k.partitions {
		g.Partitions = append(g.Partitions, k.topic+"/"+strconv.Itoa(i))
	}
	g.Behind = func() (behind []string, err error) {
		for i, floor := range k.committed(t, int32(k.partitions)) {
			if max(floor, 0) < written[i] {
				behind = append(behind, g.Partitions[i])
			}
		}
		return behind, nil
	}
	g.Join = func() ownertest.Member {
		line := k.line(t)
		own := cfg
		members++
		client := fmt.Sprint("member-", members)
		own.Options = append(own.Options[:len(own.Options):len(own.Options)], kgo.Dialer(line.DialContext), kgo.ClientID(client))
		own.OpenLedger = func(_ context.Context, partition string) (lease.Ledger, error) {
			return durable.New(durable.Config{Store: distant{k.store(partition), line}, MaxRetries: 100})
		}
		if inMemory {
			own.OpenLedger, own.Ledger, own.CommitEvery = nil, lease.Config{MaxRetries: 100}, 20*time.Millisecond
		}
		group := must(leasekafka.OpenGroup(t.Context(), own))(t)
		m := ownertest.Member{Ownership: group, Cut: line.Cut, Mend: line.Mend, Close: func() { ended(client) }}
		// the client holds a mutex while it waits for an answer to a commit, and virtual time stands while another waits for that
		if !k.virtual {
			m.Line = line
		}
		return m
	}
	return g
}
