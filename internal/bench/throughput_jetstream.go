// Benchmark rows of whole consumers on JetStream, beside a bare pull consumer.

package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/leasenats"
)

const natsWorkers = 256

func throughputJetstreamRows() []row {
	var rows []row
	for _, how := range teamSizes() {
		rows = append(rows, teamRow("throughput on JetStream", "JetStream", how.processes, how.waits,
			contender{name: fmt.Sprintf("dispatch over leasenats, %d workers a process, in order per key", natsWorkers), load: loadJetstream("jetstream")},
			contender{name: fmt.Sprintf("a pull consumer, acks awaited, %d workers a process, in no order", natsWorkers), load: loadJetstream("pull")},
		))
	}
	return rows
}

// loadJetstream creates a stream with the records, partitioned by key.
func loadJetstream(kind string) func(bool) job {
	return func(waits bool) job {
		ctx := context.Background()
		js, err := jetstream.New(jetStream(), jetstream.WithPublishAsyncMaxPending(1000))
		if err != nil {
			exit("%v", err)
		}
		for name := range js.StreamNames(ctx).Name() { // of earlier runs
			if strings.HasPrefix(name, "TEAM") || strings.HasPrefix(name, "KV_team") {
				if err := js.DeleteStream(ctx, name); err != nil {
					exit("%v", err)
				}
			}
		}
		run := runName()
		stream, err := js.CreateStream(ctx, jetstream.StreamConfig{
			Name: "TEAM" + run, Subjects: []string{"team.*"},
			SubjectTransform: &jetstream.SubjectTransformConfig{Source: "team.*", Destination: fmt.Sprintf("team.{{partition(%d,1)}}.{{wildcard(1)}}", teamParts)},
		})
		if err != nil {
			exit("%v", err)
		}
		for i := range teamRecords {
			if _, err := js.PublishAsync("team."+teamKey(i), nil, jetstream.WithStallWait(time.Minute)); err != nil {
				exit("%v", err)
			}
		}
		<-js.PublishAsyncComplete()
		if info, err := stream.Info(ctx); err != nil || info.State.Msgs != teamRecords {
			exit("%v, %v", info, err)
		}
		if kind == "pull" {
			if _, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "bare", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 1 << 16}); err != nil {
				exit("%v", err)
			}
		}
		return job{Kind: kind, Server: natsServer.ClientURL(), Run: run, Workers: natsWorkers, Waits: waits}
	}
}

func jetstreamMember(ctx context.Context, j job, t *tally) error {
	conn, err := nats.Connect(j.Server)
	if err != nil {
		return err
	}
	group, err := leasenats.OpenGroup(ctx, leasenats.GroupConfig{
		Conn: conn, Stream: "TEAM" + j.Run, Subject: "team.*.>", Partitions: teamParts, Bucket: "team" + j.Run, Session: 2 * time.Second,
		Ledger: durable.Config{MaxRetries: lease.DefaultRetries},
		Domain: func(m jetstream.Msg) string { return m.Subject()[strings.LastIndex(m.Subject(), ".")+1:] },
	})
	if err != nil {
		return err
	}
	return consume(ctx, j, t, group)
}

// pullMember handles messages in any order, one per worker at a time; a record is done when the server confirms its ack.
func pullMember(ctx context.Context, j job, t *tally) error {
	conn, err := nats.Connect(j.Server)
	if err != nil {
		return err
	}
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	consumer, err := js.Consumer(ctx, "TEAM"+j.Run, "bare")
	if err != nil {
		return err
	}
	if !t.begins(ctx) {
		return nil
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(2 * j.Workers))
	if err != nil {
		return err
	}
	var group sync.WaitGroup
	for range j.Workers {
		group.Go(func() {
			for {
				m, err := messages.Next()
				if err != nil {
					return
				}
				meta, err := m.Metadata()
				if err != nil {
					exit("%v", err)
				}
				t.handle(j, int64(meta.Sequence.Stream))
				if err := m.DoubleAck(ctx); err != nil {
					if ctx.Err() == nil {
						exit("%v", err)
					}
					return
				}
				t.done.Add(1)
			}
		})
	}
	<-ctx.Done()
	messages.Stop()
	group.Wait()
	return nil
}
