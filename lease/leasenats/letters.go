// SPDX-License-Identifier: Apache-2.0

package leasenats

// Each dead letter is a key of a bucket. The key stays when the letter is gone, and says whether it was replayed or discarded.

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stopbank/stopbank/lease/deadletter"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/internal/clip"
	"github.com/stopbank/stopbank/lease/internal/dlq"
)

// LettersConfig configures OpenLetters.
type LettersConfig struct {
	// Conn is the connection to use. Required. The caller owns it.
	Conn *nats.Conn
	// Bucket is the key-value bucket: letters, digits, - and _, at most 64. Required. OpenLetters creates it if it does not exist.
	// It may hold ledgers too, unless one is named dead-letters.
	Bucket string
	// Stream is the stream of the records. Required for Put, which writes it into the letter.
	Stream string
	// Route returns the subject to publish a record to in a replay, before any subject transform of the stream. Nil: its
	// domain, which is right where the Group has no Domain of its own and the stream has no transform. Put calls it and
	// writes the result into the letter.
	Route func(record dispatch.Record) string
	// Replicas and Storage are the bucket's, as in StoreConfig.
	Replicas int
	Storage  jetstream.StorageType
}

// letters is a deadletter.Store in a bucket of JetStream.
type letters struct {
	cfg     LettersConfig
	js      jetstream.JetStream
	kv      jetstream.KeyValue
	timeout time.Duration // of each request
}

var _ deadletter.Store = (*letters)(nil)

// lettersPrefix begins the key of each letter. The partition, escaped like a ledger's domain, and the offset follow.
const lettersPrefix = "dead-letters."

// The first byte of a value.
const (
	tagLetter = 'L' // a letter follows
	tagGone   = 'G' // a deadletter.Fate follows
)

// OpenLetters returns the dead letters in a bucket, for all partitions of one or more streams, and creates the bucket if
// it does not exist; ctx and 5 seconds bound that. There is nothing to close. Errors: *lease.InvalidError naming the field,
// also for a bucket that would lose letters; or the client's.
//
// Put of a new letter and Get take one round trip, Park, Unpark and Discard two, Replay three, more after a conflict; each
// call is bounded by its ctx and 5 seconds. A letter is one message, with its record, failure and note; where
// that is above the server's max_payload, the record stays in its stream alone, from which Get and Replay read it as long as it is
// there. A list reads the letters of the partition, or of all partitions, with what is left of those that
// are gone, and holds them without their payloads; a server that is silent for 5 seconds is an error.
//
// A replay publishes the record, without headers that begin with Nats- (instructions to the server for the first message),
// and then removes the letter. A Replay that failed in between, and concurrent ones, publish under the same Nats-Msg-Id:
// within the stream's duplicate window (2 minutes unless configured) the record is appended once, after that perhaps a
// second time. A Discard in between succeeds although the record has been appended.
func OpenLetters(ctx context.Context, cfg LettersConfig) (deadletter.Store, error) {
	if cfg.Route == nil {
		cfg.Route = func(record dispatch.Record) string { return record.Domain }
	}
	bucket := StoreConfig{Conn: cfg.Conn, Bucket: cfg.Bucket, Name: "dead-letters", Replicas: cfg.Replicas, Storage: cfg.Storage}
	if err := validate(ctx, "LettersConfig.", bucket); err != nil {
		return nil, err
	}
	store, err := open(ctx, bucket)
	if err != nil {
		return nil, err
	}
	s := &letters{cfg: cfg, js: store.js, timeout: store.timeout}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if s.kv, err = s.js.KeyValue(ctx, cfg.Bucket); err != nil {
		return nil, s.failed(err)
	}
	return s, nil
}

func (s *letters) failed(err error) error { return &unreachableError{bucket: s.cfg.Bucket, err: err} }

func letterKey(id deadletter.ID) string {
	partition, _ := keyOf(id.Partition)
	return lettersPrefix + partition + "." + strconv.FormatInt(id.Offset, 10)
}

// Put implements deadletter.Store.
func (s *letters) Put(ctx context.Context, l deadletter.Letter) error {
	if s.cfg.Stream == "" {
		return invalidField("LettersConfig.Stream", `""`, "the name of the stream that the records came from")
	}
	l.Route = s.cfg.Stream + " " + s.cfg.Route(l.Record)
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	_, err := s.kv.Create(ctx, letterKey(l.ID()), dlq.Append([]byte{tagLetter}, l))
	var api *jetstream.APIError
	if errors.Is(err, nats.ErrMaxPayload) || errors.As(err, &api) && api.ErrorCode == codeTooLarge {
		if found, missing := s.fetch(ctx, &l); missing != nil || !found { // it would be nowhere
			return s.failed(errors.Join(err, missing))
		}
		l.Size = len(l.Record.Payload)
		_, err = s.kv.Create(ctx, letterKey(l.ID()), dlq.AppendElsewhere([]byte{tagLetter}, l))
	}
	if err != nil && !errors.Is(err, jetstream.ErrKeyExists) {
		return s.failed(err)
	}
	return nil
}

// kept is a letter as it is in the bucket.
type kept struct {
	deadletter.Letter
	here bool            // with its record, which is in its stream alone if it is too large
	gone deadletter.Fate // "": it is not gone
}

func (l kept) value() []byte {
	if l.here {
		return dlq.Append([]byte{tagLetter}, l.Letter)
	}
	return dlq.AppendElsewhere([]byte{tagLetter}, l.Letter)
}

// read decodes the value of a key.
func (s *letters) read(key string, put bool, value []byte) (l kept, err error) {
	switch {
	case put && len(value) > 1 && value[0] == tagLetter:
		l.Letter, l.here, err = dlq.Decode(value[1:])
	case put && len(value) > 1 && value[0] == tagGone:
		l.gone = deadletter.Fate(value[1:])
	default:
		err = fmt.Errorf("%w: deleted, or another program's", deadletter.ErrCorrupt)
	}
	if err != nil {
		return l, unexpectedValue(s.cfg.Bucket, key, err)
	}
	return l, nil
}

// List implements deadletter.Store.
func (s *letters) List(ctx context.Context, filter deadletter.Filter) iter.Seq2[deadletter.Letter, error] {
	return func(yield func(deadletter.Letter, error) bool) {
		err := dlq.Check(filter)
		var all []*deadletter.Letter
		if err == nil {
			all, err = s.collect(ctx, filter)
		}
		if err != nil {
			yield(deadletter.Letter{}, err)
			return
		}
		dlq.Sorted(all, filter)(yield)
	}
}

func (s *letters) collect(ctx context.Context, filter deadletter.Filter) ([]*deadletter.Letter, error) {
	keys := lettersPrefix + ">"
	if filter.Partition != "" {
		partition, _ := keyOf(filter.Partition)
		keys = lettersPrefix + partition + ".*"
	}
	prefix := "$KV." + s.cfg.Bucket + "."
	of := jetstream.ConsumerConfig{FilterSubject: prefix + keys, DeliverPolicy: jetstream.DeliverAllPolicy}
	f, err := openFeed(ctx, s.js, s.cfg.Conn, "KV_"+s.cfg.Bucket, of, mostBytes, s.timeout)
	if err != nil {
		return nil, s.failed(err)
	}
	defer f.close()
	f.ends = true
	found := map[string]*deadletter.Letter{} // by subject: one that is changed meanwhile comes again
	for {
		m, _, err := f.next(ctx, 0)
		switch {
		case errors.Is(err, errNothing):
			return slices.Collect(maps.Values(found)), nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			return nil, s.failed(err)
		}
		l, err := s.read(strings.TrimPrefix(m.Subject, prefix), m.Header.Get("KV-Operation") == "", m.Data)
		if err != nil {
			return nil, err
		}
		if delete(found, m.Subject); l.gone == "" && dlq.Matches(filter, l.Letter) {
			l.Record.Payload, l.Record.Headers = nil, nil
			found[m.Subject] = &l.Letter
		}
	}
}

// Get implements deadletter.Store.
func (s *letters) Get(ctx context.Context, id deadletter.ID) (deadletter.Letter, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	l, _, err := s.get(ctx, id)
	if err == nil && !l.here {
		_, err = s.fetch(ctx, &l.Letter)
	}
	if err != nil {
		return deadletter.Letter{}, err
	}
	return l.Letter, nil
}

// fetch fills in the record of a letter that left it in its stream, and reports whether it is there still.
func (s *letters) fetch(ctx context.Context, l *deadletter.Letter) (found bool, err error) {
	name, _, _ := strings.Cut(l.Route, " ")
	stream, err := s.js.Stream(ctx, name)
	if err != nil {
		return false, s.failed(fmt.Errorf("the record of %q: %w", l.ID().String(), err))
	}
	m, err := stream.GetMsg(ctx, uint64(l.Record.Offset))
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return false, nil
	case err != nil:
		return false, s.failed(fmt.Errorf("the record of %q: %w", l.ID().String(), err))
	case !m.Time.Equal(l.Record.Time): // that of a stream that was made anew
		return false, nil
	}
	l.Record.Payload, l.Record.Headers = m.Data, headersOf(m.Header)
	return true, nil
}

func (s *letters) get(ctx context.Context, id deadletter.ID) (l kept, revision uint64, err error) {
	entry, err := s.kv.Get(ctx, letterKey(id))
	if errors.Is(err, jetstream.ErrKeyNotFound) && !errors.Is(err, jetstream.ErrKeyDeleted) {
		return l, 0, &deadletter.NotDeadError{ID: id, Fate: deadletter.Unknown}
	} else if err != nil {
		return l, 0, s.failed(err)
	}
	l, err = s.read(entry.Key(), entry.Operation() == jetstream.KeyValuePut, entry.Value())
	switch {
	case err != nil:
		return l, 0, err
	case l.gone != "":
		return l, 0, &deadletter.NotDeadError{ID: id, Fate: l.gone}
	case l.ID() != id:
		err := fmt.Errorf("%w: that of another record, %q", deadletter.ErrCorrupt, l.ID().String())
		return l, 0, unexpectedValue(s.cfg.Bucket, entry.Key(), err)
	}
	return l, entry.Revision(), nil
}

// change reads a letter and swaps it for the value that next returns, again after each conflict.
func (s *letters) change(ctx context.Context, id deadletter.ID,
	next func(context.Context, kept) ([]byte, error)) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
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

// Park implements deadletter.Store.
func (s *letters) Park(ctx context.Context, id deadletter.ID, note string) error {
	return s.change(ctx, id, func(_ context.Context, l kept) ([]byte, error) {
		l.Parked, l.Note = true, clip.Text(note)
		return l.value(), nil
	})
}

// Unpark implements deadletter.Store.
func (s *letters) Unpark(ctx context.Context, id deadletter.ID) error {
	return s.change(ctx, id, func(_ context.Context, l kept) ([]byte, error) {
		l.Parked, l.Note = false, ""
		return l.value(), nil
	})
}

// Discard implements deadletter.Store.
func (s *letters) Discard(ctx context.Context, id deadletter.ID) error {
	return s.change(ctx, id, func(context.Context, kept) ([]byte, error) {
		return append([]byte{tagGone}, deadletter.Discarded...), nil
	})
}

// Replay implements deadletter.Store.
func (s *letters) Replay(ctx context.Context, id deadletter.ID) error {
	return s.change(ctx, id, func(ctx context.Context, l kept) ([]byte, error) {
		stream, subject, _ := strings.Cut(l.Route, " ")
		if !l.here {
			if found, err := s.fetch(ctx, &l.Letter); err != nil {
				return nil, err
			} else if !found {
				return nil, s.failed(fmt.Errorf("the record of %q was too large for a letter, and stream %s has deleted it", id.String(), stream))
			}
		}
		record := dlq.Replay(l.Letter)
		m := &nats.Msg{Subject: subject, Data: record.Payload, Header: nats.Header{}}
		for _, h := range record.Headers {
			if !strings.HasPrefix(h.Key, "Nats-") {
				m.Header[h.Key] = append(m.Header[h.Key], string(h.Value))
			}
		}
		if _, err := s.js.PublishMsg(ctx, m, jetstream.WithExpectStream(stream),
			jetstream.WithMsgID("stopbank-replay-of-"+id.String())); err != nil {
			return nil, s.failed(fmt.Errorf("publish to %q of stream %q: %w", subject, stream, err))
		}
		return append([]byte{tagGone}, deadletter.Replayed...), nil
	})
}
