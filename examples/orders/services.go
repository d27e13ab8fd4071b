// What the pipeline stands on: a server, in the process or elsewhere, the stream of orders, and what is removed at the end.

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// services are a connection and the names of this run.
type services struct {
	nc             *nats.Conn
	js             jetstream.JetStream
	url            string
	stream         string
	subjects       string // the prefix of the orders' subjects: one for each customer
	group, effects string // buckets
}

// withServer calls f with a server that is there while f runs.
func withServer(o options, f func(*services) error) error {
	url := os.Getenv("NATS_URL")
	if url == "" {
		// What a killed process has written is in the hands of the operating system, so lazy fsync loses nothing here; a power failure
		// would be another matter (SyncAlways).
		s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: o.dir, NoLog: true, NoSigs: true})
		if err != nil {
			return err
		}
		s.Start()
		defer s.WaitForShutdown()
		defer s.Shutdown()
		if !s.ReadyForConnections(20 * time.Second) {
			return errors.New("the server does not start")
		}
		url = s.ClientURL()
	}
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	return f(&services{
		nc: nc, js: js, url: url, stream: "ORDERS_" + o.run, subjects: "orders." + o.run + ".",
		group: "group_" + o.run, effects: "effects_" + o.run,
	})
}

// fill makes the stream and publishes the orders: order i is of customer i·7919 mod customers, so that neighbours are strangers. The
// server puts the number of a partition into the subject, by the customer.
func (s *services) fill(ctx context.Context, o options) error {
	if _, err := s.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: s.stream, Subjects: []string{s.subjects + "*"},
		SubjectTransform: &jetstream.SubjectTransformConfig{
			Source: s.subjects + "*", Destination: fmt.Sprintf("%s{{partition(%d,1)}}.{{wildcard(1)}}", s.subjects, o.partitions),
		},
	}); err != nil {
		return err
	}
	if _, err := s.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: s.effects}); err != nil {
		return err
	}
	for i := range o.orders {
		if _, err := s.js.PublishAsync(s.subjects+customer(i*7919%o.customers), fmt.Appendf(nil, "order %d", i)); err != nil {
			return err
		}
	}
	select {
	case <-s.js.PublishAsyncComplete():
	case <-time.After(time.Minute):
		return errors.New("publishing takes more than a minute")
	}
	stream, err := s.js.Stream(ctx, s.stream)
	if err != nil {
		return err
	}
	if n := stream.CachedInfo().State.Msgs; n != uint64(o.orders) {
		return fmt.Errorf("%d orders in the stream", n)
	}
	return nil
}

func customer(n int) string { return fmt.Sprintf("customer-%04d", n) }

// remove takes back what this run has made.
func (s *services) remove(ctx context.Context) error {
	failed := s.js.DeleteStream(ctx, s.stream)
	for _, bucket := range []string{s.group, s.effects} {
		failed = errors.Join(failed, s.js.DeleteKeyValue(ctx, bucket))
	}
	return failed
}
