// SPDX-License-Identifier: Apache-2.0

// Benchmark rows of the dispatcher, in memory and on a fake Kafka: its time beside the least in which the same handlers could
// run.

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
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

// dispatchRows is the table of keys and workers. With few keys the longest key bounds the time, with many workers the handlers
// do.
func dispatchRows() []row {
	var rows []row
	for _, c := range []struct {
		title string
		keys  int
		hot   float64 // share of the records that one key has beside its own
	}{{"10 keys", 10, 0}, {"100 keys", 100, 0}, {"1000 keys", 1000, 0}, {"1000 keys, a tenth of the records of one", 1000, 0.1}} {
		for _, workers := range []int{8, 64} {
			rows = append(rows, boundedRow("lease/dispatch", fmt.Sprintf("dispatch: %d records of 0 to 5 ms, %s", records, c.title),
				"dispatch.Dispatcher over lease.Memory", workers,
				func(handle func(key string, pause time.Duration)) {
					rnd := rand.New(rand.NewPCG(uint64(c.keys), uint64(workers)))
					log, pauses := new(dispatch.Log), make([]time.Duration, records)
					for i := range pauses {
						pauses[i] = time.Duration(rnd.Int64N(int64(5 * time.Millisecond)))
						key := rnd.IntN(c.keys)
						if rnd.Float64() < c.hot {
							key = 0
						}
						log.Append(fmt.Sprint("key-", key), nil)
					}
					ctx, cancel := context.WithCancel(context.Background())
					ledger := must(lease.NewMemory(lease.Config{MaxRetries: lease.DefaultRetries}))
					d := must(dispatch.New(dispatch.Partition{Ledger: ledger, Source: log}, dispatch.Config{
						MaxInFlight: workers, DeadLetter: dispatch.Discard, Handler: untilAll(cancel, func(job dispatch.Job) {
							handle(job.Record.Domain, pauses[job.Record.Offset])
						}),
					}))
					must(0, d.Run(ctx))
				}))
		}
	}
	return rows
}

func kafkaRow(workers int) row {
	title := fmt.Sprintf("Kafka, a fake broker: %d records of %d keys, handler of 1 to 5 ms", records, teamKeys)
	return boundedRow("throughput on Kafka", title, "dispatch over leasekafka, ledgers in memory, in order per key", workers,
		func(handle func(string, time.Duration)) {
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
					Handler: untilAll(cancel, func(job dispatch.Job) {
						handle(job.Record.Domain, pause(job.Record.Offset))
					})}))
			must(0, consumer.Run(ctx))
		})
}

// untilAll is a handler that calls end after the last record.
func untilAll(end func(), handle func(dispatch.Job)) func(context.Context, dispatch.Job) error {
	var mu sync.Mutex
	done := 0
	return func(_ context.Context, job dispatch.Job) error {
		handle(job)
		mu.Lock()
		defer mu.Unlock()
		if done++; done == records {
			end()
		}
		return nil
	}
}

// boundedRow compares run, from the first handler to the end of the last, with a bound of the same run: handlers measure how long
// they really slept, and no schedule can be faster than their sum divided by the workers, or than the longest key.
func boundedRow(layer, title, name string, workers int, run func(handle func(key string, pause time.Duration))) row {
	return row{layer: layer, title: fmt.Sprintf("%s, %d workers", title, workers), variants: []variant{{name: name},
		{name: "max(measured work / workers, the longest key's)", most: 1.05}}, whole: func() []float64 {
		var mu sync.Mutex
		var begun, end time.Time
		var all, longest time.Duration
		work := map[string]time.Duration{}
		run(func(key string, pause time.Duration) {
			began := time.Now()
			time.Sleep(pause)
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
		})
		return []float64{float64(end.Sub(begun)) / records, float64(max(all/time.Duration(workers), longest)) / records}
	}}
}
