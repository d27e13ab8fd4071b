package leasenats

// This file is List: the headers of the ledger's keys tell the shelf, so no record is read.

import (
	"context"
	"crypto/sha256"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stopbank/stopbank/lease/durable"
)

// listBatch is how many headers one request brings.
const listBatch = 1000

// List implements durable.Store. It reads a header of about 150 bytes for each domain that the ledger ever had, by a
// consumer that is gone before the first name is yielded, and keeps the names that it found. A name that is too long for a key costs a request more. A key among the ledger's that is not a record is a
// *KeyError.
func (s *Store) List(ctx context.Context, index durable.Index) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		names, err := s.names(ctx, index)
		if err != nil {
			yield("", err)
			return
		}
		for _, name := range names {
			if err := ctx.Err(); err != nil {
				yield("", err)
				return
			}
			if !yield(name, nil) {
				return
			}
		}
	}
}

// names reads the headers until it has seen all that the leader had when it began. A key that is written meanwhile moves to the end
// of the stream, and is met there; a name that was on the shelf all the time is therefore not missed, and it may be met twice.
func (s *Store) names(ctx context.Context, index durable.Index) ([]string, error) {
	newest, err := s.last(ctx, ">")
	if err != nil || newest == nil {
		return nil, err
	}
	consumer, err := s.stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		FilterSubject: s.prefix + ">",
		DeliverPolicy: jetstream.DeliverAllPolicy,
		AckPolicy:     jetstream.AckNonePolicy,
		HeadersOnly:   true,
		MemoryStorage: true,
		Replicas:      1,
		// Longer than a request may take; for a process that dies meanwhile.
		InactiveThreshold: s.timeout + time.Minute,
	})
	if err != nil {
		return nil, s.unreachable(err)
	}
	defer func() {
		// Not in ctx, which may be done. What is not deleted here goes by itself.
		_ = s.conn.Publish("$JS.API.CONSUMER.DELETE.KV_"+s.bucket+"."+consumer.CachedInfo().Name, nil)
	}()
	var (
		found              []string
		known              = map[string]bool{}
		sequence, position uint64 // of the last message: in the stream, and among the consumer's
	)
	deadline := time.Now().Add(s.timeout)
	for {
		batch, err := consumer.FetchNoWait(listBatch)
		if err != nil {
			return nil, s.unreachable(err)
		}
		n := 0
		for m := range batch.Messages() {
			meta, err := m.Metadata()
			if err != nil {
				return nil, s.unreachable(err)
			}
			if position++; meta.Sequence.Consumer != position { // one was lost on the way, and is not sent again
				return nil, s.unreachable(fmt.Errorf("header %d came in place of %d", meta.Sequence.Consumer, position))
			}
			n++
			sequence = meta.Sequence.Stream
			key := strings.TrimPrefix(m.Subject(), s.prefix)
			name, at, err := s.header(key, m.Headers())
			if err == nil && at == index && name == "" {
				name, err = s.nameOf(ctx, key)
			}
			if err != nil {
				return nil, err
			}
			if at == index && !known[name] {
				known[name] = true
				found = append(found, name)
			}
		}
		if err := batch.Error(); err != nil {
			return nil, s.unreachable(err)
		}
		switch {
		case n < listBatch && sequence >= newest.sequence: // nothing was left when the batch was made
			return found, nil
		case n > 0:
			deadline = time.Now().Add(s.timeout)
		case time.Now().After(deadline):
			return nil, s.unreachable(fmt.Errorf("the list ends at %d, the bucket at %d", sequence, newest.sequence))
		default: // the server that sends the headers is behind the leader
			if !pause(ctx) {
				return nil, ctx.Err()
			}
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// header tells the name and the shelf of a key; the name is "" for the ledger's own record and for a key that is a hash.
func (s *Store) header(key string, header nats.Header) (name string, index durable.Index, err error) {
	if index, err = s.indexOf(key, header); err != nil || key == rootKey {
		return "", durable.Neither, err
	}
	if rest, ok := strings.CutPrefix(key, hashed); ok && len(rest) == 2*sha256.Size {
		return "", index, nil
	}
	rest, ok := strings.CutPrefix(key, plain)
	if ok {
		name, ok = unescape(rest)
	}
	if !ok {
		return "", 0, s.foreign(key, "not a key of a ledger")
	}
	return name, index, nil
}

// nameOf reads the name under a key that is a hash.
func (s *Store) nameOf(ctx context.Context, key string) (string, error) {
	m, err := s.last(ctx, key)
	if err != nil {
		return "", err
	}
	if m != nil {
		name, _, ok := cutName(m.data)
		if again, long := keyOf(name); ok && long && again == key {
			return name, nil
		}
	}
	return "", s.foreign(key, "the name of another domain")
}
