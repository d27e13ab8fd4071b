// SPDX-License-Identifier: Apache-2.0

package leasenats

// A source reads one partition of a stream.

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// sourceConfig says which partition a source is.
type sourceConfig struct {
	Conn      *nats.Conn
	Stream    string
	Subjects  []string                     // the partition's subjects. Empty: the whole stream
	Bucket    string                       // the key-value bucket of the position, for errors
	Partition string                       // names the position in the bucket
	Domain    func(dispatch.Record) string // nil: the subject
	Timeout   time.Duration                // bounds each request, in addition to ctx; not Fetch's wait for a message
}

// source is a partition of a JetStream stream. Offsets are stream sequences, so messages of other partitions leave gaps. It
// reads through ordered consumers, which begin at any sequence, need no acknowledgement and leave no state on the server; the
// position is one number in a key-value bucket. A durable consumer would be a second record of progress, with acknowledgement
// timeouts of its own, and its floor cannot be fenced. A key can: see Committed.
//
// It must be closed after the Dispatcher's Run has returned.
type source struct {
	cfg sourceConfig
	js  jetstream.JetStream
	kv  jetstream.KeyValue
	key string

	position position
	readers  []*reader // least recently used first; only Fetch and Close use them
}

var (
	_ dispatch.Source = (*source)(nil)
	_ dispatch.Ended  = (*source)(nil)
)

// reader reads the stream onwards from one sequence.
type reader struct {
	next     int64 // the next message has this sequence or a greater one
	consumer jetstream.Consumer
	messages jetstream.MessagesContext
}

const (
	// maxReaders is one for new messages and one for messages that are read again.
	maxReaders = 2
	// nextMessageWait is how long Fetch waits for one more message when it has some.
	nextMessageWait = time.Millisecond
)

func newSource(cfg sourceConfig, js jetstream.JetStream, kv jetstream.KeyValue) *source {
	return &source{cfg: cfg, js: js, kv: kv, key: positions + cfg.Stream + "." + cfg.Partition,
		position: position{owner: rand.Text()}}
}

// Fetch implements dispatch.Source.
func (s *source) Fetch(ctx context.Context, from int64, limit int) ([]dispatch.Record, error) {
	r, err := s.reader(ctx, from)
	if err != nil {
		return nil, err
	}
	var records []dispatch.Record
	for wait := jetstream.NextContext(ctx); len(records) < limit; wait = jetstream.NextMaxWait(nextMessageWait) {
		m, err := r.messages.Next(wait)
		if err == nil {
			var meta *jetstream.MsgMetadata
			if meta, err = m.Metadata(); err == nil {
				sequence := int64(meta.Sequence.Stream)
				if sequence < r.next { // sent again because the client recreated the consumer
					continue
				}
				r.next = sequence + 1
				record := dispatch.Record{
					Domain: m.Subject(), Offset: sequence, Payload: m.Data(), Headers: headersOf(m.Headers()), Time: meta.Timestamp,
				}
				if s.cfg.Domain != nil {
					record.Domain = s.cfg.Domain(record)
				}
				records = append(records, record)
				continue
			}
		}
		switch {
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout), ctx.Err() != nil:
		default:
			s.drop(r) // the next Fetch opens a new one where this one ended
		}
		if len(records) > 0 {
			break
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, s.failed(err)
	}
	return records, nil
}

// headersOf returns the headers sorted by name: the client does not keep their order.
func headersOf(of nats.Header) (headers []dispatch.Header) {
	for _, key := range slices.Sorted(maps.Keys(of)) {
		for _, value := range of[key] {
			headers = append(headers, dispatch.Header{Key: key, Value: []byte(value)})
		}
	}
	return headers
}

// reader returns a reader whose next message is at from.
func (s *source) reader(ctx context.Context, from int64) (*reader, error) {
	for i, r := range s.readers {
		if r.next == from {
			s.readers = append(append(s.readers[:i:i], s.readers[i+1:]...), r)
			return r, nil
		}
	}
	if len(s.readers) == maxReaders {
		s.drop(s.readers[0])
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	consumer, err := s.js.OrderedConsumer(ctx, s.cfg.Stream, jetstream.OrderedConsumerConfig{
		FilterSubjects: s.cfg.Subjects, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: uint64(max(1, from)),
		// If a lost consumer cannot be recreated at once, Fetch fails and is called again. The client would retry for ever without
		// looking at ctx.
		MaxResetAttempts: 1,
	})
	if err != nil {
		return nil, s.failed(err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		return nil, s.failed(err)
	}
	r := &reader{next: from, consumer: consumer, messages: messages}
	s.readers = append(s.readers, r)
	return r, nil
}

// drop removes a reader and deletes its consumer. The client would leave that to the server, which keeps it for minutes, while a
// domain that is behind needs a new one for each place that is read again.
func (s *source) drop(r *reader) {
	r.messages.Stop()
	if info := r.consumer.CachedInfo(); info != nil {
		// if this is lost, the server deletes it later
		_ = s.cfg.Conn.Publish("$JS.API.CONSUMER.DELETE."+s.cfg.Stream+"."+info.Name, nil)
	}
	for i := range s.readers {
		if s.readers[i] == r {
			s.readers = append(s.readers[:i:i], s.readers[i+1:]...)
			return
		}
	}
}

// End implements dispatch.Ended: the sequence after the last message of the partition's subjects. It reads that message.
func (s *source) End(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	stream, err := s.js.Stream(ctx, s.cfg.Stream)
	if err != nil {
		return 0, s.failed(err)
	}
	if len(s.cfg.Subjects) == 0 {
		return int64(stream.CachedInfo().State.LastSeq) + 1, nil
	}
	end := int64(1)
	for _, subject := range s.cfg.Subjects {
		last, err := stream.GetLastMsgForSubject(ctx, subject)
		switch {
		case err == nil:
			end = max(end, int64(last.Sequence)+1)
		case !errors.Is(err, jetstream.ErrMsgNotFound):
			return 0, s.failed(err)
		}
	}
	return end, nil
}

// Close stops reading. The position stays in the bucket.
func (s *source) Close() {
	for len(s.readers) > 0 {
		s.drop(s.readers[0])
	}
}

func (s *source) failed(err error) error {
	return fmt.Errorf("leasenats: stream %s, partition %s: %w", s.cfg.Stream, s.cfg.Partition, err)
}
