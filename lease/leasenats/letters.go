package leasenats

// This file is the dead-letter queue: a key for each letter in a bucket, which stays when its letter is gone.

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stopbank/stopbank/lease/deadletter"
	"github.com/stopbank/stopbank/lease/dispatch"
)

// LettersConfig configures Letters.
type LettersConfig struct {
	// Conn is the connection to use. Required. The caller owns it.
	Conn *nats.Conn
	// Bucket is the key-value bucket: letters, digits, - and _. Required. OpenLetters creates it if it does not exist.
	// It may hold ledgers too, unless one is named dead-letters.
	Bucket string
	// Stream is the stream of the records. Required for Put, which writes it into the letter.
	Stream string
	// Subject returns the subject to publish a record to in a replay, before any subject transform of the stream. Nil:
	// its domain, which is right where the Group has no Domain of its own and the stream has no transform. Put calls it
	// and writes the result into the letter.
	Subject func(record dispatch.Record) string
	// Replicas and Storage are the bucket's, if OpenLetters creates it.
	Replicas int
	Storage  jetstream.StorageType
	// Timeout bounds each request, in addition to the caller's ctx. 0: 5 seconds. Not negative.
	Timeout time.Duration
}

// Letters is a deadletter.Store in a bucket of JetStream, for all partitions of one or more streams. It must come from
// OpenLetters: any other rejects every call. A letter is one message, its record and a few hundred bytes more; a letter
// above the server's max_payload is rejected.
//
// A replay publishes the record and then removes the letter. A Replay that failed in between, and concurrent ones,
// publish under the same Nats-Msg-Id: within the stream's duplicate window (2 minutes unless configured) the record is
// appended once, after that perhaps a second time. A Discard in between succeeds although the record has been appended.
type Letters struct {
	cfg LettersConfig
	js  jetstream.JetStream
	kv  jetstream.KeyValue
}

var _ deadletter.Store = (*Letters)(nil)

// lettersPrefix is that of their keys. Then come the partition, as a ledger's domain is written, and the offset.
const lettersPrefix = "dead-letters."

// What a value begins with: a letter follows, or what became of it.
const (
	tagLetter = 'L'
	tagGone   = 'G'
)

// OpenLetters returns the letters in a bucket, and creates the bucket if it does not exist; ctx bounds that. Errors:
// *InvalidError, *BucketError, *UnreachableError.
func OpenLetters(ctx context.Context, cfg LettersConfig) (*Letters, error) {
	if cfg.Timeout == 0 {
		cfg.Timeout = 5 * time.Second
	}
	if cfg.Subject == nil {
		cfg.Subject = func(record dispatch.Record) string { return record.Domain }
	}
	bucket := Config{Conn: cfg.Conn, Bucket: cfg.Bucket, Ledger: "dead-letters", Replicas: cfg.Replicas, Storage: cfg.Storage, Timeout: cfg.Timeout}
	if err := validate(ctx, "LettersConfig.", bucket); err != nil {
		return nil, err
	}
	store, err := Open(ctx, bucket)
	if err != nil {
		return nil, err
	}
	s := &Letters{cfg: cfg, js: store.js}
	ctx, cancel := context.WithTimeout(ctx, cfg.Timeout)
	defer cancel()
	if s.kv, err = s.js.KeyValue(ctx, cfg.Bucket); err != nil {
		return nil, s.failed(err)
	}
	return s, nil
}

func (s *Letters) made() error {
	if s == nil || s.js == nil {
		return invalidField("Letters", "nil or zero", "letters made by OpenLetters")
	}
	return nil
}

func (s *Letters) failed(err error) error { return &UnreachableError{Bucket: s.cfg.Bucket, Err: err} }

func letterKey(id deadletter.ID) string {
	partition, _ := keyOf(id.Partition)
	return lettersPrefix + partition + "." + strconv.FormatInt(id.Offset, 10)
}

// Put implements deadletter.Store. It blocks for one round trip.
func (s *Letters) Put(ctx context.Context, l deadletter.Letter) error {
	if err := s.made(); err != nil {
		return err
	}
	if s.cfg.Stream == "" {
		return invalidField("LettersConfig.Stream", `""`, "the name of the stream that the records came from")
	}
	l.Route = s.cfg.Stream + " " + s.cfg.Subject(l.Record)
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	value, err := l.AppendBinary([]byte{tagLetter})
	if err == nil {
		_, err = s.kv.Create(ctx, letterKey(l.ID()), value)
	}
	if err != nil && !errors.Is(err, jetstream.ErrKeyExists) {
		return s.failed(err)
	}
	return nil
}

// read reads a value.
func (s *Letters) read(entry jetstream.KeyValueEntry) (l deadletter.Letter, gone deadletter.Fate, err error) {
	value := entry.Value()
	switch {
	case entry.Operation() == jetstream.KeyValuePut && len(value) > 1 && value[0] == tagLetter:
		l, err = deadletter.Decode(value[1:])
	case entry.Operation() == jetstream.KeyValuePut && len(value) > 1 && value[0] == tagGone:
		return l, deadletter.Fate(value[1:]), nil
	default:
		err = errors.New("deleted, or not a dead letter")
	}
	if err != nil {
		return l, "", &KeyError{Bucket: s.cfg.Bucket, Key: entry.Key(), Reason: err.Error()}
	}
	return l, "", nil
}

// List implements deadletter.Store. It reads all keys of the partition, or of all partitions, also of letters that are
// gone, and holds the letters without their payloads to sort them. A server that is silent for Timeout is an error.
func (s *Letters) List(ctx context.Context, filter deadletter.Filter) iter.Seq2[deadletter.Letter, error] {
	return func(yield func(deadletter.Letter, error) bool) {
		err := s.made()
		if err == nil {
			err = filter.Check()
		}
		var all []*deadletter.Letter
		if err == nil {
			all, err = s.collect(ctx, filter)
		}
		if err != nil {
			yield(deadletter.Letter{}, err)
			return
		}
		deadletter.Sorted(all, filter)(yield)
	}
}

func (s *Letters) collect(ctx context.Context, filter deadletter.Filter) (all []*deadletter.Letter, err error) {
	keys := lettersPrefix + ">"
	if filter.Partition != "" {
		partition, _ := keyOf(filter.Partition)
		keys = lettersPrefix + partition + ".*"
	}
	watcher, err := s.kv.Watch(ctx, keys)
	if err != nil {
		return nil, s.failed(err)
	}
	defer func() { _ = watcher.Stop() }() // goes by itself later if this is lost
	silence := time.NewTimer(s.cfg.Timeout)
	defer silence.Stop()
	for {
		select {
		case entry := <-watcher.Updates():
			if entry == nil { // the end
				return all, ctx.Err()
			}
			l, gone, err := s.read(entry)
			if err != nil {
				return nil, err
			}
			if gone == "" && filter.Matches(l) {
				l.Record.Payload, l.Record.Headers = nil, nil
				all = append(all, &l)
			}
			silence.Reset(s.cfg.Timeout)
		case <-silence.C:
			return nil, s.failed(context.DeadlineExceeded)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Get implements deadletter.Store. It blocks for one round trip.
func (s *Letters) Get(ctx context.Context, id deadletter.ID) (deadletter.Letter, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	l, _, err := s.get(ctx, id)
	return l, err
}

func (s *Letters) get(ctx context.Context, id deadletter.ID) (l deadletter.Letter, revision uint64, err error) {
	if err := s.made(); err != nil {
		return l, 0, err
	}
	entry, err := s.kv.Get(ctx, letterKey(id))
	if errors.Is(err, jetstream.ErrKeyNotFound) && !errors.Is(err, jetstream.ErrKeyDeleted) {
		return l, 0, &deadletter.NotDeadError{ID: id, Fate: deadletter.Unknown}
	} else if err != nil {
		return l, 0, s.failed(err)
	}
	l, gone, err := s.read(entry)
	switch {
	case err != nil:
		return l, 0, err
	case gone != "":
		return l, 0, &deadletter.NotDeadError{ID: id, Fate: gone}
	case l.ID() != id:
		return l, 0, &KeyError{Bucket: s.cfg.Bucket, Key: entry.Key(), Reason: "the letter of another record: " + strconv.Quote(l.ID().String())}
	}
	return l, entry.Revision(), nil
}

// change reads a letter and swaps it for what next returns, until nobody comes between the two.
func (s *Letters) change(ctx context.Context, id deadletter.ID, next func(context.Context, deadletter.Letter) ([]byte, error)) error {
	if err := s.made(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	for {
		l, revision, err := s.get(ctx, id)
		if err != nil {
			return err
		}
		value, err := next(ctx, l)
		if err != nil {
			return err
		}
		if _, err = s.kv.Update(ctx, letterKey(id), value, revision); err == nil {
			return nil
		} else if !conflict(err) {
			return s.failed(err)
		}
	}
}

// Park implements deadletter.Store. It blocks for two round trips.
func (s *Letters) Park(ctx context.Context, id deadletter.ID, note string) error {
	return s.change(ctx, id, func(_ context.Context, l deadletter.Letter) ([]byte, error) {
		l.Parked, l.Note = true, deadletter.Clip(note)
		return l.AppendBinary([]byte{tagLetter})
	})
}

// Unpark implements deadletter.Store. It blocks for two round trips.
func (s *Letters) Unpark(ctx context.Context, id deadletter.ID) error {
	return s.change(ctx, id, func(_ context.Context, l deadletter.Letter) ([]byte, error) {
		l.Parked, l.Note = false, ""
		return l.AppendBinary([]byte{tagLetter})
	})
}

// Discard implements deadletter.Store. It blocks for two round trips.
func (s *Letters) Discard(ctx context.Context, id deadletter.ID) error {
	return s.change(ctx, id, func(context.Context, deadletter.Letter) ([]byte, error) {
		return append([]byte{tagGone}, deadletter.Discarded...), nil
	})
}

// Replay implements deadletter.Store. Headers that begin with Nats- are dropped: they are instructions to the server for
// the first message. It blocks for three round trips.
func (s *Letters) Replay(ctx context.Context, id deadletter.ID) error {
	return s.change(ctx, id, func(ctx context.Context, l deadletter.Letter) ([]byte, error) {
		stream, subject, _ := strings.Cut(l.Route, " ")
		record := l.Replay()
		m := &nats.Msg{Subject: subject, Data: record.Payload, Header: nats.Header{}}
		for _, h := range record.Headers {
			if !strings.HasPrefix(h.Key, "Nats-") {
				m.Header[h.Key] = append(m.Header[h.Key], string(h.Value))
			}
		}
		if _, err := s.js.PublishMsg(ctx, m, jetstream.WithExpectStream(stream), jetstream.WithMsgID("stopbank-replay-of-"+id.String())); err != nil {
			return nil, s.failed(fmt.Errorf("publish to %q of stream %q: %w", subject, stream, err))
		}
		return append([]byte{tagGone}, deadletter.Replayed...), nil
	})
}
