package leasenats

// This file is a partition of a stream as a dispatch.Source: what it is made from, and how it is read.

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// SourceConfig configures a Source.
type SourceConfig struct {
	// Conn is the connection to use. Required. It stays the caller's, who closes it after the Source.
	Conn *nats.Conn
	// Stream is the stream to read. Required; it must be there.
	Stream string
	// Subjects are the subjects of the stream that make the partition. Empty: all. Offsets are the stream's sequences, so what belongs to other
	// partitions leaves gaps.
	Subjects []string
	// Bucket is the key-value bucket for the position: letters, digits, - and _. Required. OpenSource makes it when it is not there. It may be the
	// ledger's.
	Bucket string
	// Partition names the position among those in the bucket: letters, digits, - and _. Required. The key is source-, the stream's
	// name, a point and this.
	Partition string
	// Domain says which domain a message is of. Nil: its subject.
	Domain func(jetstream.Msg) string
	// Replicas and Storage are of the bucket, if it is made.
	Replicas int
	Storage  jetstream.StorageType
	// Timeout bounds each request, in addition to the caller's ctx; not the wait of Fetch for a message. 0: 5 seconds. Not negative.
	Timeout time.Duration
}

// Source is a partition of a JetStream stream. Offsets are stream sequences. It reads through ordered consumers, which
// begin wherever they are told, need no acknowledgement and leave no state on the server; what is done is one number in a
// key-value bucket. A durable consumer is not used on purpose: its acknowledgements are a second ledger beside the ledger, with time-outs
// of its own, and its floor cannot be fenced. A key can: see Committed.
//
// It must come from OpenSource (any other refuses every call), and be closed after the Dispatcher's Run has returned.
type Source struct {
	cfg SourceConfig
	js  jetstream.JetStream
	kv  jetstream.KeyValue
	key string

	position position
	readers  []*reader // the one used last comes last; only Fetch and Close touch them
}

var (
	_ dispatch.Source = (*Source)(nil)
	_ dispatch.Ended  = (*Source)(nil)
)

// reader is one place in the stream from which messages come.
type reader struct {
	next     int64 // the next message has this sequence or a greater one
	consumer jetstream.Consumer
	messages jetstream.MessagesContext
}

const (
	// mostReaders: one at the end of the stream, and one for what has to be read again.
	mostReaders = 2
	// lull is how long Fetch waits for one more message when it has some.
	lull = time.Millisecond
)

// OpenSource returns a Source, having made its bucket if need be; ctx bounds that. It claims nothing: Committed does.
// Errors: *InvalidError, *SourceError.
func OpenSource(ctx context.Context, cfg SourceConfig) (*Source, error) {
	if cfg.Timeout == 0 {
		cfg.Timeout = 5 * time.Second
	}
	if cfg.Domain == nil {
		cfg.Domain = jetstream.Msg.Subject
	}
	if cfg.Stream == "" {
		return nil, &InvalidError{Field: "SourceConfig.Stream", Value: strconv.Quote(cfg.Stream), Allowed: "the name of a stream"}
	}
	if err := validate(ctx, "SourceConfig.", Config{Conn: cfg.Conn, Bucket: cfg.Bucket, Ledger: "source", Replicas: cfg.Replicas, Storage: cfg.Storage, Timeout: cfg.Timeout}); err != nil {
		return nil, err
	}
	if !token(cfg.Partition) {
		return nil, &InvalidError{Field: "SourceConfig.Partition", Value: strconv.Quote(cfg.Partition), Allowed: tokens}
	}
	js, err := jetstream.New(cfg.Conn)
	if err != nil {
		return nil, &InvalidError{Field: "SourceConfig.Conn", Value: err.Error(), Allowed: "a connection"}
	}
	s := newSource(cfg, js, nil)
	ctx, cancel := context.WithTimeout(ctx, cfg.Timeout)
	defer cancel()
	if _, err := js.Stream(ctx, cfg.Stream); err != nil {
		return nil, s.failed(err)
	}
	s.kv, err = js.KeyValue(ctx, cfg.Bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		s.kv, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: cfg.Bucket, Description: "positions (stopbank)", Replicas: max(1, cfg.Replicas), Storage: cfg.Storage,
		})
		if errors.Is(err, jetstream.ErrBucketExists) { // made by another process, just now
			s.kv, err = js.KeyValue(ctx, cfg.Bucket)
		}
	}
	if err != nil {
		return nil, s.failed(err)
	}
	return s, nil
}

func newSource(cfg SourceConfig, js jetstream.JetStream, kv jetstream.KeyValue) *Source {
	return &Source{cfg: cfg, js: js, kv: kv, key: positions + cfg.Stream + "." + cfg.Partition, position: position{owner: rand.Text()}}
}

// Fetch implements dispatch.Source.
func (s *Source) Fetch(ctx context.Context, from int64, limit int) ([]dispatch.Record, error) {
	r, err := s.reader(ctx, from)
	if err != nil {
		return nil, err
	}
	var records []dispatch.Record
	for wait := jetstream.NextContext(ctx); len(records) < limit; wait = jetstream.NextMaxWait(lull) {
		m, err := r.messages.Next(wait)
		if err == nil {
			var meta *jetstream.MsgMetadata
			if meta, err = m.Metadata(); err == nil {
				sequence := int64(meta.Sequence.Stream)
				if sequence < r.next { // sent twice, when the consumer was made anew
					continue
				}
				r.next = sequence + 1
				records = append(records, dispatch.Record{
					Domain: s.cfg.Domain(m), Offset: sequence, Payload: m.Data(), Headers: headersOf(m.Headers()), Time: meta.Timestamp,
				})
				continue
			}
		}
		switch {
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout), ctx.Err() != nil:
		default:
			s.drop(r) // the next Fetch begins anew where this one ended
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

// headersOf sorts by name: the client keeps no other order.
func headersOf(of nats.Header) (headers []dispatch.Header) {
	for _, key := range slices.Sorted(maps.Keys(of)) {
		for _, value := range of[key] {
			headers = append(headers, dispatch.Header{Key: key, Value: []byte(value)})
		}
	}
	return headers
}

// reader returns one that reads on at from.
func (s *Source) reader(ctx context.Context, from int64) (*reader, error) {
	for i, r := range s.readers {
		if r.next == from {
			s.readers = append(append(s.readers[:i:i], s.readers[i+1:]...), r)
			return r, nil
		}
	}
	if err := s.made(); err != nil {
		return nil, err
	}
	if len(s.readers) == mostReaders {
		s.drop(s.readers[0])
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	consumer, err := s.js.OrderedConsumer(ctx, s.cfg.Stream, jetstream.OrderedConsumerConfig{
		FilterSubjects: s.cfg.Subjects, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: uint64(max(1, from)),
		// A consumer that is lost and cannot be made anew at once ends Fetch, which is called again. The client alone would try for ever,
		// deaf to ctx.
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

// drop forgets a reader. The client leaves its consumer to the server, which would keep it for minutes; and with a domain behind there is a new
// one for each place that is read again.
func (s *Source) drop(r *reader) {
	r.messages.Stop()
	if info := r.consumer.CachedInfo(); info != nil {
		_ = s.cfg.Conn.Publish("$JS.API.CONSUMER.DELETE."+s.cfg.Stream+"."+info.Name, nil) // goes by itself later if this is lost
	}
	for i := range s.readers {
		if s.readers[i] == r {
			s.readers = append(s.readers[:i:i], s.readers[i+1:]...)
			return
		}
	}
}

// End implements dispatch.Ended: the sequence after the last message of the partition's subjects. It reads that message.
func (s *Source) End(ctx context.Context) (int64, error) {
	if err := s.made(); err != nil {
		return 0, err
	}
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

// made refuses a Source that OpenSource did not make.
func (s *Source) made() error {
	if s.js == nil {
		return &InvalidError{Field: "Source", Value: "zero", Allowed: "one made by OpenSource"}
	}
	return nil
}

// Close stops reading. The position stays.
func (s *Source) Close() {
	for len(s.readers) > 0 {
		s.drop(s.readers[0])
	}
}

func (s *Source) failed(err error) error {
	return &SourceError{Stream: s.cfg.Stream, Partition: s.cfg.Partition, Err: err}
}

// ErrSource marks a *SourceError.
var ErrSource = errors.New("leasenats: stream not read")

// SourceError says that the stream, or the bucket with the position, could not be read or written. The call may be made again.
type SourceError struct {
	Stream    string
	Partition string
	Err       error
}

func (e *SourceError) Error() string {
	return fmt.Sprintf("leasenats: stream %s, partition %s: %v", e.Stream, e.Partition, e.Err)
}

// Unwrap returns ErrSource and what the client said.
func (e *SourceError) Unwrap() []error { return []error{ErrSource, e.Err} }
