// SPDX-License-Identifier: Apache-2.0

package main

// This file opens an engine.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/deadletter"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/internal/adopt"
	"github.com/stopbank/stopbank/lease/leasekafka"
	"github.com/stopbank/stopbank/lease/leasenats"
	"github.com/stopbank/stopbank/lease/leasepg"
)

// engine is where letters are, and what is of a log. A bucket or a topic that is not there is rejected: whoever puts letters there
// makes it.
type engine struct {
	letters  func(ctx context.Context) (deadletter.Store, error)
	bindings func(ctx context.Context) ([]adopt.Binding, error)
}

// open connects.
func (o options) open(ctx context.Context) (e engine, end func(), err error) {
	switch {
	case o.postgres != "":
		return o.openPostgres(ctx)
	case o.nats != "":
		return o.openNATS()
	}
	return o.openKafka()
}

func (o options) openPostgres(ctx context.Context) (e engine, end func(), err error) {
	pool, err := pgxpool.New(ctx, o.postgres)
	if err != nil {
		return e, nil, err
	}
	e.letters = func(ctx context.Context) (deadletter.Store, error) {
		into := o.insert
		if o.outbox != "" {
			var err error
			if into, err = enqueue(ctx, pool, o.outbox); err != nil {
				return nil, err
			}
		}
		return leasepg.OpenLetters(ctx, leasepg.LettersConfig{Pool: pool, Append: into})
	}
	e.bindings = func(ctx context.Context) ([]adopt.Binding, error) { return leasepg.Bindings(ctx, pool) }
	return e, pool.Close, nil
}

// enqueue carries -outbox out. The outbox must be there already, and it takes letters of its own partitions alone.
func enqueue(ctx context.Context, pool *pgxpool.Pool, name string) (func(context.Context, pgx.Tx, string, dispatch.Record) error,
	error) {
	outbox, err := leasepg.OpenOutbox(ctx, leasepg.OutboxConfig{Pool: pool, Name: name, Notify: true})
	var invalid *lease.InvalidError
	if errors.As(err, &invalid) {
		err = fmt.Errorf("there is no outbox %q: -outbox names the one that the records are from", name)
	}
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, tx pgx.Tx, partition string, r dispatch.Record) error {
		if !slices.Contains(outbox.Partitions(), partition) {
			return fmt.Errorf("outbox %q has no partition %q: the record is from elsewhere", name, partition)
		}
		return outbox.Enqueue(ctx, tx, r)
	}, nil
}

// insert carries -append out. The key and the payload go as bytes, which a column of bytes or of text takes.
func (o options) insert(ctx context.Context, tx pgx.Tx, partition string, r dispatch.Record) error {
	type header struct {
		Key   string `json:"key"`
		Value string `json:"value"`
	}
	headers := make([]header, 0, len(r.Headers))
	for _, h := range r.Headers {
		headers = append(headers, header{h.Key, string(h.Value)})
	}
	list, err := json.Marshal(headers)
	if err != nil {
		return err
	}
	done, err := tx.Exec(ctx, o.appendSQL, pgx.NamedArgs{"partition": partition, "key": []byte(r.Domain), "payload": r.Payload,
		"headers": list})
	if err == nil && done.RowsAffected() != 1 {
		return fmt.Errorf("-append inserted %d rows; allowed: 1", done.RowsAffected())
	}
	return err
}

func (o options) openNATS() (e engine, end func(), err error) {
	options := []nats.Option{nats.Name("leasectl"), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})}
	if o.creds != "" {
		options = append(options, nats.UserCredentials(o.creds))
	}
	nc, err := nats.Connect(o.nats, options...)
	if err != nil {
		return e, nil, err
	}
	there := func(ctx context.Context) error {
		js, err := jetstream.New(nc)
		if err == nil {
			_, err = js.KeyValue(ctx, o.bucket)
		}
		if errors.Is(err, jetstream.ErrBucketNotFound) {
			err = fmt.Errorf("there is no bucket %q: -bucket names the one that dead letters, or a group and its ledgers, are kept in", o.bucket)
		}
		return err
	}
	e.letters = func(ctx context.Context) (deadletter.Store, error) {
		if err := there(ctx); err != nil {
			return nil, err
		}
		return leasenats.OpenLetters(ctx, leasenats.LettersConfig{Conn: nc, Bucket: o.bucket})
	}
	e.bindings = func(ctx context.Context) ([]adopt.Binding, error) {
		if err := there(ctx); err != nil {
			return nil, err
		}
		return leasenats.Bindings(ctx, nc, o.bucket, o.stream)
	}
	return e, nc.Close, nil
}

func (o options) openKafka() (e engine, end func(), err error) {
	brokers := strings.Split(o.kafka, ",")
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		return e, nil, err
	}
	e.letters = func(ctx context.Context) (deadletter.Store, error) {
		meta := kmsg.NewPtrMetadataRequest()
		meta.Topics, meta.AllowAutoTopicCreation = []kmsg.MetadataRequestTopic{{Topic: &o.topic}}, false
		found, err := meta.RequestWith(ctx, client)
		if err == nil && len(found.Topics) == 1 {
			err = kerr.ErrorForCode(found.Topics[0].ErrorCode)
		}
		if errors.Is(err, kerr.UnknownTopicOrPartition) {
			err = fmt.Errorf("there is no topic %q: -topic names the one that dead letters are kept in", o.topic)
		}
		if err != nil {
			return nil, err
		}
		return leasekafka.OpenLetters(ctx, leasekafka.LettersConfig{Brokers: brokers, Topic: o.topic})
	}
	e.bindings = func(ctx context.Context) ([]adopt.Binding, error) { return leasekafka.Bindings(ctx, client, o.group) }
	return e, client.Close, nil
}
