// SPDX-License-Identifier: Apache-2.0

// Benchmark rows of the dispatcher on a fake Kafka: its time beside the least in which the same handlers could
// run.

package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/leasekafka"
)

// records is the number of records of a run.
const records = 10_000

// kafkaRow compares a run, from the first handler to the end of the last, with a bound of the same run: handlers measure how long
// they really slept, and no schedule can be faster than their sum divided by the workers, or than the longest key.
func kafkaRow(workers int) row {
	return row{layer: "throughput on Kafka", title: fmt.Sprintf("a fake broker, handler of 1 to 5 ms, %d workers", workers),
		variants: []variant{{}, {name: "the bound", most: 1.05}}, whole: func() []float64 {
			var mu sync.Mutex // guards the rest
			var begun, end time.Time
			var all, longest time.Duration
			work, done := map[string]time.Duration{}, 0
			onKafka(workers, func(job dispatch.Job) (last bool) {
				key, began := job.Record.Domain, time.Now()
				time.Sleep(pause(job.Record.Offset))
				ended := time.Now()
				mu.Lock()
				defer mu.Unlock()
				if begun.IsZero() || began.Before(begun) {
					begun = began
				}
				end = ended
				all += ended.Sub(began)
				work[key] += ended.Sub(began)
				longest = max(longest, work[key])
				done++
				return done == records
			})
			return []float64{float64(end.Sub(begun)) / records, float64(max(all/time.Duration(workers), longest)) / records}
		}}
}

// onKafka handles the records, which are in the broker before, until the last is handled.
func onKafka(workers int, handle func(dispatch.Job) (last bool)) {
	cluster := must(kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(teamParts, "team")))
	defer cluster.Close()
	client := must(kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.DefaultProduceTopic("team")))
	defer client.Close()
	ctx, cancel := context.WithCancel(context.Background())
	var all []*kgo.Record
	for i := range records {
		all = append(all, &kgo.Record{Key: []byte(teamKey(i)), Partition: int32(teamPart(i))})
	}
	must(0, client.ProduceSync(ctx, all...).FirstErr())
	consumer := must(dispatch.NewConsumer(
		must(leasekafka.OpenGroup(ctx, leasekafka.GroupConfig{Brokers: cluster.ListenAddrs(), Group: "team", Topics: []string{"team"},
			Ledger: lease.Config{MaxRetries: lease.DefaultRetries}})),
		dispatch.Config{MaxInFlight: workers, MaxBuffered: 8 * 1024, DeadLetter: dispatch.Discard,
			Handler: func(_ context.Context, job dispatch.Job) error {
				if handle(job) {
					cancel()
				}
				return nil
			}}))
	must(0, consumer.Run(ctx))
}
