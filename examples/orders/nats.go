// The engine: JetStream, with a stream that the server partitions by customer, a bucket for the group and its ledgers, and a bucket
// for the effects.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/leasenats"
)

// servers are JetStream's. They run until stop.
type servers struct {
	url, about string
	stop       func() error
}

// serve returns the server of NATS_URL, or an embedded one.
func serve(o options) (servers, error) {
	if url := os.Getenv("NATS_URL"); url != "" {
		return servers{url, "the server of NATS_URL", func() error { return nil }}, nil
	}
	// Lazy fsync loses nothing when a process is killed; SyncAlways would also survive a power failure.
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: o.dir,
		NoLog: true, NoSigs: true})
	if err != nil {
		return servers{}, err
	}
	s.Start()
	stop := func() error {
		s.Shutdown()
		s.WaitForShutdown()
		return nil
	}
	if !s.ReadyForConnections(20 * time.Second) {
		return servers{}, errors.Join(errors.New("the server did not start"), stop())
	}
	return servers{s.ClientURL(), "a server in this process", stop}, nil
}

// engine is the connection of one process to the server, for one run.
type engine struct {
	nc       *nats.Conn
	js       jetstream.JetStream
	stream   string
	subjects string // prefix of the orders' subjects, one for each customer
	members  string // the bucket of the group
	effects  string // the bucket of the accounts
}

func connect(o options) (*engine, error) {
	nc, err := nats.Connect(o.servers, nats.MaxReconnects(-1), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, err
	}
	return &engine{
		nc: nc, js: js, stream: "ORDERS_" + o.run, subjects: "orders." + o.run + ".", members: "group_" + o.run,
		effects: "effects_" + o.run,
	}, nil
}

func (n *engine) close() { n.nc.Close() }

// prepare creates the stream of the orders, and makes the server add the partition, chosen by customer, to the subject.
func (n *engine) prepare(ctx context.Context, o options) error {
	_, err := n.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: n.stream, Subjects: []string{n.subjects + "*"},
		SubjectTransform: &jetstream.SubjectTransformConfig{
			Source: n.subjects + "*", Destination: fmt.Sprintf("%s{{partition(%d,1)}}.{{wildcard(1)}}", n.subjects, o.partitions),
		},
	})
	return err
}

// publish appends the orders from first to end-1. Order i has the key buyer(o, i) and the payload i+1. Only the parent calls it, one
// call at a time.
func (n *engine) publish(ctx context.Context, o options, first, end int) error {
	for i := first; i < end; i++ {
		payload := strconv.AppendInt(nil, int64(i)+1, 10)
		if _, err := n.js.PublishAsync(n.subjects+buyer(o, i), payload, jetstream.WithStallWait(time.Minute)); err != nil {
			return err
		}
	}
	select {
	case <-n.js.PublishAsyncComplete():
	case <-time.After(time.Minute):
		return errors.New("publishing timed out after a minute")
	}
	stream, err := n.js.Stream(ctx, n.stream)
	if err != nil {
		return err
	}
	if got := stream.CachedInfo().State.Msgs; got != uint64(end) {
		return fmt.Errorf("%d orders in the stream, %d published", got, end)
	}
	return nil
}

// group joins the consumer group, which assigns partitions with their ledgers.
func (n *engine) group(ctx context.Context, o options) (dispatch.Ownership, error) {
	return leasenats.OpenGroup(ctx, leasenats.GroupConfig{
		Conn: n.nc, Stream: n.stream, Subject: n.subjects + "*.>", Partitions: o.partitions, Bucket: n.members, Session: o.session,
		Ledger: lease.Config{MaxRetries: lease.DefaultRetries, Observer: o.decisions},
		Domain: func(r dispatch.Record) string { return r.Domain[strings.LastIndex(r.Domain, ".")+1:] },
	})
}

// remove deletes everything that the run created.
func (n *engine) remove(ctx context.Context) error {
	return errors.Join(n.js.DeleteStream(ctx, n.stream), n.js.DeleteKeyValue(ctx, n.members), n.js.DeleteKeyValue(ctx, n.effects))
}

// register returns the store of the effects.
func (n *engine) register(ctx context.Context) (register, error) {
	kv, err := n.js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: n.effects})
	return register{kv, n.js}, err
}

// register stores the effects: an account for each customer, written by compare-and-swap of the key's revision.
type register struct {
	kv jetstream.KeyValue
	js jetstream.JetStream
}

// load returns an account and its version; version 0 means that it does not exist.
func (b register) load(ctx context.Context, customer string) (a account, version uint64, err error) {
	entry, err := b.kv.Get(ctx, customer)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return account{}, 0, nil
	} else if err != nil {
		return account{}, 0, err
	}
	err = json.Unmarshal(entry.Value(), &a)
	return a, entry.Revision(), err
}

// swap writes an account if its version has not changed. An error may be a conflict or a failure.
func (b register) swap(ctx context.Context, customer string, a account, version uint64) error {
	value, err := json.Marshal(a)
	if err != nil {
		return err
	}
	_, err = b.kv.Update(ctx, customer, value, version)
	return err
}

// swaps counts the messages of the bucket's stream: one for each swap.
func (b register) swaps(ctx context.Context) (int, error) {
	stream, err := b.js.Stream(ctx, "KV_"+b.kv.Bucket())
	if err != nil {
		return 0, err
	}
	return int(stream.CachedInfo().State.LastSeq), nil
}
