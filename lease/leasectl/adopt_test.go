// SPDX-License-Identifier: Apache-2.0

package main

// This file has the program adopt logs that took the place of others, in each engine.

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/leasekafka"
	"github.com/stopbank/stopbank/lease/leasenats"
	"github.com/stopbank/stopbank/lease/leasepg"
)

// replaced are desks of which each has a partition whose log is another one now, with the same records.
var replaced = map[string]func(t *testing.T) (d desk, left string){
	"postgres": func(t *testing.T) (desk, string) {
		pool, url := postgres(t)
		store := must(leasepg.OpenStore(t.Context(), leasepg.StoreConfig{Pool: pool, Name: "orders/1"}))(t)
		log := &named{name: "edition 1"}
		log.Append("ann", nil)
		worked(t, only{Name: "orders/1", Source: log, Ledger: must(durable.New(durable.Config{Store: store}))(t)}, 1)
		return desk{flags: []string{"-postgres", url}}, `{"adopted":0,"barred":0,"same":0}`
	},
	"nats": func(t *testing.T) (desk, string) {
		d := onNATS(t)
		nc := must(nats.Connect(d.flags[1]))(t)
		t.Cleanup(nc.Close)
		js := must(jetstream.New(nc))(t)
		jobs := jetstream.StreamConfig{Name: "JOBS", Subjects: []string{"jobs.>"}}
		must(js.CreateStream(t.Context(), jobs))(t)
		must(js.Publish(t.Context(), "jobs.0.ann", nil))(t)
		worked(t, must(leasenats.OpenGroup(t.Context(), leasenats.GroupConfig{Conn: nc, Stream: "JOBS", Subject: "jobs.*.>", Partitions: 1,
			Bucket: "jobs", Group: "orders"}))(t), 1)
		copied := func(to, from string, subjects ...string) {
			stream := must(js.CreateStream(t.Context(), jetstream.StreamConfig{Name: to, Mirror: &jetstream.StreamSource{Name: from}}))(t)
			for must(stream.Info(t.Context()))(t).State.LastSeq == 0 {
				time.Sleep(time.Millisecond) // a mirror tells nobody
			}
			noError(t, js.DeleteStream(t.Context(), from))
			must(js.UpdateStream(t.Context(), jetstream.StreamConfig{Name: to, Subjects: subjects}))(t)
		}
		copied("COPY", "JOBS", "copy.>")
		copied("JOBS", "COPY", jobs.Subjects...)
		d.flags = append(d.flags, "-bucket", "jobs", "-stream", "JOBS")
		return d, `{"adopted":0,"barred":0,"same":1}`
	},
	"kafka": func(t *testing.T) (desk, string) {
		d := onKafka(t)
		produce := func() {
			client := remadeTopic(t, d)
			noError(t, client.ProduceSync(t.Context(), kgo.KeyStringRecord("ann", "order-1")).FirstErr())
		}
		produce()
		worked(t, must(leasekafka.OpenGroup(t.Context(), leasekafka.GroupConfig{Brokers: []string{d.flags[1]}, Group: "shipping",
			Topics: []string{"jobs"}, Session: 10 * time.Second}))(t), 1)
		produce()
		d.flags = append(d.flags, "-group", "shipping")
		return d, `"adopted":0,"barred":0,"same":`
	},
}

// remadeTopic makes the topic jobs, anew if it is there, and returns a client that produces to it.
func remadeTopic(t *testing.T, d desk) *kgo.Client {
	t.Helper()
	client := must(kgo.NewClient(kgo.SeedBrokers(d.flags[1]), kgo.DefaultProduceTopic("jobs")))(t)
	t.Cleanup(client.Close)
	name := "jobs"
	old := kmsg.NewPtrDeleteTopicsRequest()
	former := kmsg.NewDeleteTopicsRequestTopic()
	former.Topic = &name
	old.Topics, old.TopicNames = append(old.Topics, former), []string{name}
	must(old.RequestWith(t.Context(), client))(t)
	req := kmsg.NewPtrCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, 1, 1
	req.Topics = append(req.Topics, topic)
	must(req.RequestWith(t.Context(), client))(t)
	return client
}

func TestAdopt(t *testing.T) {
	for engine, open := range replaced {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			d, left := open(t)
			d.program(t, "", "adopt").must(t, 1, "PARTITION", "IS OF", "to adopt", "in 1 places? ", "nothing was done", "0 adopted, ")
			d.program(t, "", "adopt", "-yes", "-partition", "nowhere").must(t, 0, "0 adopted, 0 the same, 0 barred")
			d.program(t, "", "adopt", "-yes", "-json").must(t, 0, `"fate":"to adopt"`, `{"adopted":1,"barred":0,`)
			if a := d.program(t, "", "adopt", "-json"); strings.Contains(a.out, "to adopt") || !strings.Contains(a.out, left) {
				t.Errorf("D13: left after it was adopted: %q", a.out)
			}
		})
	}
}

// What is not the log that it was is not adopted.
func TestAdoptNothingElse(t *testing.T) {
	d, _ := replaced["nats"](t)
	nc := must(nats.Connect(d.flags[1]))(t)
	defer nc.Close()
	js := must(jetstream.New(nc))(t)
	noError(t, js.DeleteStream(t.Context(), "JOBS"))
	must(js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "JOBS", Subjects: []string{"jobs.>"}}))(t)
	d.program(t, "", "adopt", "-yes").must(t, 1, "barred", "leasenats.position is 2; allowed: at most 1,", "0 adopted, 0 the same, 1 barred")
	must(js.Publish(t.Context(), "jobs.0.bob", nil))(t)
	d.program(t, "", "adopt", "-yes", "-json").must(t, 1, `"fate":"barred"`, "the message 1 that was handled was of",
		`{"adopted":0,"barred":1,"same":0}`)
}

// What is beyond the end of a topic is not adopted: what comes below it would be taken for done.
func TestAdoptNothingBeyondTheEnd(t *testing.T) {
	d, _ := replaced["kafka"](t)
	remadeTopic(t, d)
	d.program(t, "", "adopt", "-yes").must(t, 1, "barred", "leasekafka.offset is 1; allowed: at most 0,", "0 adopted, 0 the same, 1 barred")
}

// worked has a member do n records, and ends it.
func worked(t *testing.T, group dispatch.Ownership, n int) {
	t.Helper()
	done := make(chan struct{}, n)
	consumer := must(dispatch.NewConsumer(group, dispatch.Config{DeadLetter: dispatch.Discard, CommitEvery: 10 * time.Millisecond,
		Handler: func(context.Context, dispatch.Job) error {
			done <- struct{}{}
			return nil
		}}))(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- consumer.Run(ctx) }()
	for range n {
		<-done
	}
	cancel()
	noError(t, <-ended)
}

// named is a log that can be told from others.
type named struct {
	dispatch.Log
	name string
}

func (n *named) Identity(context.Context) (string, error) { return n.name, nil }

// only is a group with one member and one partition.
type only dispatch.Partition

func (o only) Hold(ctx context.Context, work func(context.Context, dispatch.Partition)) error {
	work(ctx, dispatch.Partition(o))
	return nil
}
