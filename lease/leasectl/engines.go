// SPDX-License-Identifier: Apache-2.0

package main

// This file opens the letters of an engine.

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
	"github.com/stopbank/stopbank/lease/leasekafka"
	"github.com/stopbank/stopbank/lease/leasenats"
	"github.com/stopbank/stopbank/lease/leasepg"
)

// open connects. A bucket or a topic that is not there is rejected: whoever puts letters there makes it.
func (o options) open(ctx context.Context) (desk deadletter.Store, end func(), err error) {
	switch {
	case o.postgres != "":
		return o.openPostgres(ctx)
	case o.nats != "":
		return o.openNATS(ctx)
	}
	return o.openKafka(ctx)
}

func (o options) openPostgres(ctx context.Context) (deadletter.Store, func(), error) {
	pool, err := pgxpool.New(ctx, o.postgres)
	if err != nil {
		return nil, nil, err
	}
	into := o.insert
	if o.outbox != "" {
		into, err = enqueue(ctx, pool, o.outbox)
	}
	var letters deadletter.Store
	if err == nil {
		letters, err = leasepg.OpenLetters(ctx, leasepg.LettersConfig{Pool: pool, Append: into})
	}
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return letters, pool.Close, nil
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

func (o options) openNATS(ctx context.Context) (deadletter.Store, func(), error) {
	options := []nats.Option{nats.Name("leasectl"), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})}
	if o.creds != "" {
		options = append(options, nats.UserCredentials(o.creds))
	}
	nc, err := nats.Connect(o.nats, options...)
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(nc)
	if err == nil {
		_, err = js.KeyValue(ctx, o.bucket)
	}
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		err = fmt.Errorf("there is no bucket %q: -bucket names the one that dead letters are kept in", o.bucket)
	}
	var letters deadletter.Store
	if err == nil {
		letters, err = leasenats.OpenLetters(ctx, leasenats.LettersConfig{Conn: nc, Bucket: o.bucket})
	}
	if err != nil {
		nc.Close()
		return nil, nil, err
	}
	return letters, nc.Close, nil
}

func (o options) openKafka(ctx context.Context) (deadletter.Store, func(), error) {
	brokers := strings.Split(o.kafka, ",")
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		return nil, nil, err
	}
	defer client.Close()
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
		return nil, nil, err
	}
	letters, err := leasekafka.OpenLetters(ctx, leasekafka.LettersConfig{Brokers: brokers, Topic: o.topic})
	if err != nil {
		return nil, nil, err
	}
	return letters, func() {}, nil
}
