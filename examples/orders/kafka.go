// The Kafka engine: a topic and a consumer group. Kafka has no compare-and-swap, so ledgers and effects are on JetStream.
// Ledgers in memory would satisfy the audit, but only shared ones fence.

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/leasekafka"
	"github.com/stopbank/stopbank/lease/leasenats"
)

// serveKafka returns the addresses of the brokers (KAFKA_BROKERS or a fake one) and, after a space, of the JetStream server.
func serveKafka(ctx context.Context, o options) (servers, error) {
	js, err := serveNATS(ctx, o)
	if err != nil {
		return servers{}, err
	}
	about, least := "the brokers of KAFKA_BROKERS", 6*time.Second // the default minimum of brokers
	brokers, stop := os.Getenv("KAFKA_BROKERS"), func() error { return nil }
	if brokers == "" {
		about, least = "a FAKE broker (franz-go's kfake: no disk, one node) in its own process", 0
		if brokers, stop, err = startFake(); err != nil {
			return servers{}, errors.Join(err, js.stop())
		}
	}
	return servers{
		at: brokers + " " + js.at, about: "Kafka, " + about + "; ledgers and effects on " + js.about, session: least,
		stop: func() error { return errors.Join(stop(), js.stop()) },
	}, nil
}

// fakeGreeting is what a fake broker prints, with its address.
const fakeGreeting = "fake Kafka broker at %s (Ctrl-D ends it)\n"

// startFake starts this program as a fake broker.
func startFake() (brokers string, stop func() error, err error) {
	cmd, err := self("-fake-broker")
	if err != nil {
		return "", nil, err
	}
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() error { return errors.Join(stdin.Close(), cmd.Wait()) }
	if _, err := fmt.Fscanf(stdout, fakeGreeting, &brokers); err != nil {
		return "", nil, errors.Join(fmt.Errorf("the fake broker did not start: %w", err), stop())
	}
	return brokers, stop, nil
}

// fakeBroker prints its address and runs until standard input ends.
func fakeBroker() error {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.AllowAutoTopicCreation(),
		kfake.GroupMinSessionTimeout(100*time.Millisecond))
	if err != nil {
		return err
	}
	defer cluster.Close()
	fmt.Printf(fakeGreeting, strings.Join(cluster.ListenAddrs(), ","))
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// onKafka implements engine; its register is that of JetStream.
type onKafka struct {
	*onNATS
	brokers []string
	client  *kgo.Client
	name    string // of topic and group
}

func connectKafka(_ context.Context, o options) (engine, error) {
	list, url, _ := strings.Cut(o.servers, " ")
	js, err := dialNATS(o, url)
	if err != nil {
		return nil, err
	}
	k := &onKafka{onNATS: js, brokers: strings.Split(list, ","), name: "stopbank-orders-" + o.run}
	if k.client, err = kgo.NewClient(kgo.SeedBrokers(k.brokers...), kgo.DefaultProduceTopic(k.name)); err != nil {
		js.close()
		return nil, err
	}
	return k, nil
}

func (k *onKafka) close() {
	k.client.Close()
	k.onNATS.close()
}

func (k *onKafka) prepare(ctx context.Context, o options) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = k.name, int32(o.partitions), -1
	req.Topics, req.TimeoutMillis = append(req.Topics, topic), 10_000
	resp, err := req.RequestWith(ctx, k.client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.Topics[0].ErrorCode)
}

// publish lets the client choose the partition, by customer.
func (k *onKafka) publish(ctx context.Context, o options, first, end int) error {
	var records []*kgo.Record
	for i := first; i < end; i++ {
		records = append(records, kgo.KeyStringRecord(buyer(o, i), strconv.Itoa(i+1)))
	}
	return k.client.ProduceSync(ctx, records...).FirstErr()
}

func (k *onKafka) group(ctx context.Context, o options) (dispatch.Ownership, error) {
	return leasekafka.OpenGroup(ctx, leasekafka.GroupConfig{
		Brokers: k.brokers, Group: k.name, Topics: []string{k.name}, Session: o.session, DrainTimeout: drain,
		RebalanceTimeout: 3 * drain,
		OpenLedger: func(ctx context.Context, partition string) (lease.Ledger, error) {
			name := strings.ReplaceAll(partition, "/", "-")
			store, err := leasenats.OpenStore(ctx, leasenats.StoreConfig{Conn: k.nc, Bucket: k.members, Name: name})
			if err != nil {
				return nil, err
			}
			return durable.New(durable.Config{Store: store, MaxRetries: lease.DefaultRetries, Observer: o.decisions})
		},
	})
}

func (k *onKafka) remove(ctx context.Context) error {
	group := kmsg.NewPtrDeleteGroupsRequest()
	group.Groups = []string{k.name}
	_, err1 := group.RequestWith(ctx, k.client)
	topic := kmsg.NewPtrDeleteTopicsRequest()
	one := kmsg.NewDeleteTopicsRequestTopic()
	one.Topic = &k.name
	topic.TopicNames, topic.Topics, topic.TimeoutMillis = []string{k.name}, append(topic.Topics, one), 10_000
	_, err2 := topic.RequestWith(ctx, k.client)
	return errors.Join(err1, err2, k.removeBuckets(ctx))
}
