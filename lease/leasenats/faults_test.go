// SPDX-License-Identifier: Apache-2.0

package leasenats_test

// With a stopped leader, and with lost replies, no record is lost or done twice.

import (
	"context"
	"fmt"
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
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/internal/testkit/ownertest"
	"github.com/stopbank/stopbank/lease/leasenats"
)

// In a cluster of three servers, the leader of a ledger's bucket is stopped and started again, twice: each record is done once, those
// of a key in order.
func TestLeaderLoss(t *testing.T) {
	const keys = 6
	each, n, log := 40, cluster(t), &dispatch.Log{}
	if thorough() {
		each = 400
	}
	for i := range each * keys {
		log.Append(fmt.Sprint("k", i%keys), nil)
	}
	var urls []string
	for _, s := range n.servers {
		urls = append(urls, s.ClientURL())
	}
	nc := connect(t, strings.Join(urls, ","))
	js := must(jetstream.New(nc))(t)
	store := openStore(t, leasenats.WithTimeout(leasenats.StoreConfig{Conn: nc, Bucket: "b", Replicas: 3}, time.Second))
	var mu sync.Mutex // guards done
	done := map[string][]int64{}
	var count atomic.Int64
	d := must(dispatch.New(dispatch.Partition{Source: log, Ledger: open(t, store, lease.Config{MaxRetries: 5})}, dispatch.Config{
		DeadLetter: dispatch.Discard, MaxInFlight: 3,
		Handler: func(_ context.Context, job dispatch.Job) error {
			mu.Lock()
			defer mu.Unlock()
			done[job.Record.Domain] = append(done[job.Record.Domain], job.Record.Offset)
			count.Add(1)
			return nil
		}}))(t)
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- d.Run(running) }()
	progress := func(part float64) {
		eventually(t, "progress", func() bool { return float64(count.Load()) >= part*float64(each*keys) })
	}
	bucket := func() *jetstream.ClusterInfo {
		stream, err := js.Stream(ctx, "KV_b")
		if err != nil || stream.CachedInfo().Cluster == nil {
			return &jetstream.ClusterInfo{}
		}
		return stream.CachedInfo().Cluster
	}
	for _, part := range []float64{0.2, 0.6} {
		progress(part)
		i := -1
		eventually(t, "a leader of the bucket", func() bool {
			leader := bucket().Leader
			i = slices.IndexFunc(n.servers, func(s *server.Server) bool { return s.Name() == leader })
			return i >= 0
		})
		stop(n.servers[i])
		progress(part + 0.1) // without it
		n.start(t, i)
		eventually(t, "three replicas again", func() bool {
			replicas := bucket().Replicas
			return len(replicas) == 2 && replicas[0].Current && replicas[1].Current
		})
	}
	progress(1)
	cancel()
	noError(t, <-ended)
	for key, offsets := range done {
		if len(offsets) != each || !slices.IsSorted(offsets) || len(slices.Compact(offsets)) != each {
			t.Errorf("%s: %d of %d are done: %v", key, len(offsets), each, offsets)
		}
	}
}

func TestLostReply(t *testing.T) {
	s, line := single(t, t.TempDir(), 0), ownertest.NewLine(t)
	opens := func(nc *nats.Conn) durable.Store {
		return openStore(t, leasenats.WithTimeout(leasenats.StoreConfig{Conn: nc, Bucket: "b"}, 500*time.Millisecond))
	}
	far := connect(t, s.ClientURL(), nats.SetCustomDialer(joining{line: line}))
	ownertest.LostReply(t, opens(connect(t, s.ClientURL())), opens(far), line)
}
