// Benchmark rows of dispatch on Kafka, a fake broker in this process, beside the least time that the same handlers need.

package main

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/leasekafka"
)

func throughputKafkaRows() []row { return []row{kafkaRow(16), kafkaRow(64)} }

// kafkaRow: the bound comes from the same run, as in dispatchRow.
func kafkaRow(workers int) row {
	r := row{layer: "throughput on Kafka", title: fmt.Sprintf("Kafka, a fake broker: %d records of %d keys, handler of 1 to 5 ms, %d workers", teamRecords, teamKeys, workers)}
	wholes[r.title] = func() []cell {
		took, bound, ratio := make([]float64, teamRounds), make([]float64, teamRounds), make([]float64, teamRounds)
		for i := range teamRounds {
			took[i], bound[i] = kafkaRun(workers)
			ratio[i] = took[i] / bound[i]
		}
		slices.Sort(ratio)
		return []cell{
			{name: "dispatch over leasekafka, ledgers in memory, in order per key", ns: summary(took).Center},
			{name: "max(measured work / workers, the longest key's)", ns: summary(bound).Center, ratio: ratio[teamRounds/2], low: ratio[0], high: ratio[teamRounds-1], most: 1.05},
		}
	}
	return r
}

// kafkaTopic starts a broker with the records.
func kafkaTopic() *kfake.Cluster {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(teamParts, "team"))
	if err != nil {
		exit("%v", err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic("team"))
	if err != nil {
		exit("%v", err)
	}
	defer client.Close()
	var records []*kgo.Record
	for i := range teamRecords {
		records = append(records, &kgo.Record{Key: []byte(teamKey(i)), Partition: int32(teamPart(i))})
	}
	if err := client.ProduceSync(context.Background(), records...).FirstErr(); err != nil {
		exit("%v", err)
	}
	return cluster
}

// kafkaRun processes the records and returns nanoseconds per record, from the first handler to the end of the last, and the bound.
func kafkaRun(workers int) (took, bound float64) {
	cluster := kafkaTopic()
	defer cluster.Close()
	group, err := leasekafka.New(leasekafka.Config{Brokers: cluster.ListenAddrs(), Group: "team", Topics: []string{"team"}, Memory: lease.Config{MaxRetries: lease.DefaultRetries}})
	if err != nil {
		exit("%v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var begun, end time.Time // of the first and of the last handler
	var started, done atomic.Int64
	work := make([]atomic.Int64, teamKeys)
	key := map[string]int{}
	for i := range teamKeys {
		key[teamKey(i)] = i
	}
	consumer, err := dispatch.NewConsumer(group, dispatch.Config{
		MaxInFlight: workers, MaxBuffered: 8 * 1024, DeadLetter: dispatch.Discard,
		Handler: func(_ context.Context, job dispatch.Job) error {
			began := time.Now()
			if started.Add(1) == 1 {
				begun = began
			}
			wait(job.Record.Offset)
			work[key[job.Record.Domain]].Add(int64(time.Since(began)))
			if done.Add(1) == teamRecords {
				end = time.Now()
				cancel()
			}
			return nil
		},
	})
	if err != nil {
		exit("%v", err)
	}
	if err := consumer.Run(ctx); err != nil {
		exit("%v", err)
	}
	var all, longest int64
	for i := range work {
		all += work[i].Load()
		longest = max(longest, work[i].Load())
	}
	return float64(end.Sub(begun)) / teamRecords, max(float64(all)/float64(workers), float64(longest)) / teamRecords
}
