// Kafka processes the orders of a Kafka topic: in order per customer, customers in parallel, failed orders again.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/leasekafka"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	topic  = "quickstart-orders"
	orders = 20 // from 4 customers
)

func main() {
	brokers := flag.String("brokers", "127.0.0.1:9092", "broker addresses, separated by commas")
	flag.Parse()
	list := strings.Split(*brokers, ",")
	if err := produce(list); err != nil {
		log.Fatal(err)
	}
	if err := consume(list); err != nil {
		log.Fatal(err)
	}
}

func produce(brokers []string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DefaultProduceTopic(topic), kgo.AllowAutoTopicCreation())
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := client.Ping(ctx); err != nil {
		return fmt.Errorf("no Kafka broker at %s: %w", strings.Join(brokers, ","), err)
	}
	var records []*kgo.Record
	for i := range orders {
		records = append(records, kgo.KeyStringRecord(fmt.Sprint("customer-", i%4), fmt.Sprint("order ", i/4+1)))
	}
	return client.ProduceSync(ctx, records...).FirstErr()
}

func consume(brokers []string) error {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	group, err := leasekafka.OpenGroup(ctx, leasekafka.GroupConfig{
		Brokers: brokers, Group: "quickstart", Topics: []string{topic},
		Ledger: lease.Config{MaxRetries: lease.DefaultRetries},
	})
	if err != nil {
		return err
	}
	var done atomic.Int32
	handle := func(_ context.Context, job dispatch.Job) error {
		time.Sleep(50 * time.Millisecond) // the work
		customer, order := job.Record.Domain, string(job.Record.Payload)
		if customer == "customer-1" && order == "order 2" && job.Lease.RetryCount == 0 {
			fmt.Println(customer, order, "failed, will be retried")
			return errors.New("payment provider did not answer")
		}
		fmt.Println(customer, order, "done")
		if done.Add(1) == orders {
			stop() // a service runs until SIGTERM
		}
		return nil
	}
	consumer, err := dispatch.NewConsumer(group, dispatch.Config{Handler: handle, DeadLetter: dispatch.Discard})
	if err != nil {
		return err
	}
	return consumer.Run(ctx) // nil after a complete drain
}
